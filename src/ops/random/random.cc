// Random tensors. Each call takes the next offset of the generator. The random numbers depend on
// that offset, the seed, the replica and the element's position, but not on threads.
#include "tandem/random.h"

#include "core/multiversion.h"
#include "core/parallel.h"
#include "ops/math/elementwise.h"
#include "ops/math/in_float32.h"
#include "ops/math/number.h"
#include "ops/op_list.h"
#include "ops/random/distributions.h"
#include "ops/random/random_attrs.h"
#include "runtime/dispatch.h"
#include "runtime/generator.h"
#include "runtime/trace.h"
#include "tandem/array.h"

namespace tandem {
namespace {

// Attributes with the next random key of the thread's generator.
RandomAttrs next_attrs(const Shape& shape, const random::Options& options) {
  RandomKey random_key = Generator::current().next();
  if (options.seed) {  // in the stream, which a traced operation keeps from run to run
    const std::uint64_t mixed = *options.seed * 0x9e3779b97f4a7c15u + 0x632be59bd9b4e019u;
    random_key.stream ^= static_cast<std::uint32_t>(mixed >> 32) | 1u << 31;
  }
  return {.shape = shape.known() ? shape : Shape::scalar(),
          .dtype = options.dtype,
          .seed = random_key.seed,
          .number = random_key.number,
          .stream = random_key.stream};
}

template <DTypeSet kDTypes>
void infer_random(InferContext& c) {
  const auto& attrs = c.attrs<RandomAttrs>();
  check_dtype(c.op().name, kDTypes, attrs.dtype);
  for (std::int64_t size : attrs.shape.words())
    if (!dim::may_be_at_most(0, size))
      fail<ShapeError>("[{}] expected a shape of sizes of at least 0, got {}", c.op().name,
                       attrs.shape.to_string());
  c.add_output(attrs.dtype, attrs.shape);
}

// Fills the blocks [begin, end) of the `count` elements of `out`. The distribution is passed by
// value, so that writes cannot alias it.
template <class T, class C, class Distribution>
TANDEM_INLINED void fill_blocks(const RandomKey random_key, const Distribution distribution, T* out,
                                std::int64_t count, std::int64_t begin, std::int64_t end) {
  alignas(64) Words words;
  alignas(64) C elements[Distribution::kElements];
  for (std::int64_t block = begin; block < end; ++block) {
    fill_words(random_key, block, words);
    distribution(words, elements);
    const std::int64_t start = block * Distribution::kElements;
    const std::int64_t length = std::min<std::int64_t>(Distribution::kElements, count - start);
    for (std::int64_t i = 0; i < length; ++i) out[start + i] = store_as<T>(elements[i]);
  }
}

template <class T, class C, class Distribution>
void fill_random(KernelContext& c, const Distribution& distribution) {
  const RandomKey random_key = c.attrs<RandomAttrs>().random_key();
  T* out = c.outputs[0].as<T>();
  const std::int64_t count = c.outputs[0].size();
  const std::int64_t blocks = (count + Distribution::kElements - 1) / Distribution::kElements;
  parallel_for(blocks, 4096 / Distribution::kElements, [&](std::int64_t begin, std::int64_t end) {
    run_loop<T, fill_blocks<T, C, Distribution>>(random_key, distribution, out, count, begin, end);
  });
}

// The largest T below `high`; `high` itself if no T lies between `low` and `high`.
template <class T>
Compute<T> largest_below(double low, double high) {
  using C = Compute<T>;
  if (low == high) return static_cast<C>(high);
  C top = static_cast<C>(to_element<T>(high));
  if (static_cast<double>(top) < high) return top;
  if constexpr (is_16_bit_floating<T>) {
    T value = to_element<T>(high);
    const auto magnitude = static_cast<std::uint16_t>(value.bits & 0x7fffu);
    if (magnitude == 0)
      value.bits = 0x8001u;
    else
      value.bits = static_cast<std::uint16_t>(top > 0 ? value.bits - 1 : value.bits + 1);
    return static_cast<C>(value);
  } else {
    return std::nextafter(top, -std::numeric_limits<C>::infinity());
  }
}

}  // namespace

double largest_uniform(const RandomAttrs& attrs) {
  double largest = 0.0;
  switch_dtype(attrs.dtype, [&]<class T>(TypeTag<T>) {
    if constexpr (std::floating_point<Compute<T>>)
      largest = static_cast<double>(largest_below<T>(attrs.a, attrs.b));
  });
  return largest;
}

namespace {

void uniform_kernel(KernelContext& c) {
  const auto& attrs = c.attrs<RandomAttrs>();
  const InFloat32 in_float32(c);
  switch_floating(c.outputs[0].dtype, [&]<class T>(TypeTag<T>) {
    using C = Compute<T>;
    fill_random<T, C>(c, Uniform<C>{static_cast<C>(attrs.a), static_cast<C>(attrs.b - attrs.a),
                                    static_cast<C>(largest_uniform(attrs))});
  });
}

template <template <class> class Distribution>
void normal_kernel(KernelContext& c) {
  const auto& attrs = c.attrs<RandomAttrs>();
  const InFloat32 in_float32(c);
  switch_floating(c.outputs[0].dtype, [&]<class T>(TypeTag<T>) {
    using C = Compute<T>;
    fill_random<T, C>(c, Distribution<C>{static_cast<C>(attrs.a), static_cast<C>(attrs.b)});
  });
}

void bernoulli_kernel(KernelContext& c) {
  const auto& attrs = c.attrs<RandomAttrs>();
  const Bernoulli distribution = {attrs.ones()};
  const InFloat32 in_float32(c);
  switch_computed(c.outputs[0].dtype,
                  [&]<class T>(TypeTag<T>) { fill_random<T, float>(c, distribution); });
}

void uniform_int_kernel(KernelContext& c) {
  const auto& attrs = c.attrs<RandomAttrs>();
  const UniformInt distribution = {attrs.low, attrs.integers()};
  switch_numeric(attrs.dtype, [&]<class T>(TypeTag<T>) {
    if constexpr (std::integral<T>) fill_random<T, std::int64_t>(c, distribution);
  });
}

// The Fisher-Yates shuffle.
// The Fisher-Yates shuffle. The positions to swap are computed a block ahead, to be in the cache by
// then.
void permutation_kernel(KernelContext& c) {
  const RandomKey random_key = c.attrs<RandomAttrs>().random_key();
  auto* out = c.outputs[0].as<std::int64_t>();
  const std::int64_t count = c.outputs[0].size();
  for (std::int64_t i = 0; i < count; ++i) out[i] = i;
  std::int64_t others[2][kColumns];
  const auto prepare = [&](std::int64_t block) {
    Words words;
    fill_words(random_key, block, words);
    for (int j = 0; j < kColumns; ++j) {
      const std::int64_t i = block * kColumns + j;
      const auto other = static_cast<std::int64_t>(random_below(
          static_cast<std::uint64_t>(i) + 1, std::uint64_t{words[0][j]} << 32 | words[1][j]));
      others[block % 2][j] = other;
      if (other < count) __builtin_prefetch(out + other, 1);
    }
  };
  const std::int64_t last = (count - 1) / kColumns;
  if (count > 0) prepare(last);
  for (std::int64_t block = last; block >= 0 && count > 0; --block) {
    if (block > 0) prepare(block - 1);
    for (std::int64_t i = std::min(count, (block + 1) * kColumns) - 1;
         i >= std::max<std::int64_t>(1, block * kColumns); --i)
      std::swap(out[i], out[others[block % 2][i % kColumns]]);
  }
}

constexpr OpDef random_op(std::string_view name, InferFn infer, KernelFn kernel, bool gpu = true) {
  return {.name = name,
          .attrs = attrs_type<RandomAttrs>,
          .infer = infer,
          .cpu_kernel = kernel,
          .gpu = gpu,
          .traits = kStateful,
          .exchange_key = exchange_key<RandomAttrs>};
}

constexpr DTypeSet kIntegers = set_of(int32) | set_of(int64) | set_of(uint8);
const OpDef kNormal =
    random_op("RandomStandardNormal", infer_random<kFloating>, normal_kernel<Normal>);
const OpDef kTruncatedNormal =
    random_op("TruncatedNormal", infer_random<kFloating>, normal_kernel<TruncatedNormal>);
const OpDef kUniform = random_op("RandomUniform", infer_random<kFloating>, uniform_kernel);
const OpDef kUniformInt =
    random_op("RandomUniformInt", infer_random<kIntegers>, uniform_int_kernel);
const OpDef kBernoulli = random_op("RandomBernoulli", infer_random<kAnyDType>, bernoulli_kernel);
const OpDef kPermutation =
    random_op("RandomPermutation", infer_random<set_of(int64)>, permutation_kernel, false);

}  // namespace

OpList random_ops() {
  return list_of<kNormal, kTruncatedNormal, kUniform, kUniformInt, kBernoulli, kPermutation>();
}

namespace random {
namespace {

Tensor run_normal(const OpDef& op, const Shape& shape, double mean, double stddev,
                  const Options& options) {
  if (!(stddev >= 0.0))
    fail<InvalidArgumentError>("[{}] expected a stddev of at least 0, got {}", op.name, stddev);
  RandomAttrs attrs = next_attrs(shape, options);
  attrs.a = mean;
  attrs.b = stddev;
  return named(run(op, {}, attrs), options.name);
}

}  // namespace

Tensor normal(const Shape& shape, double mean, double stddev, const Options& options) {
  return run_normal(kNormal, shape, mean, stddev, options);
}

Tensor truncated_normal(const Shape& shape, double mean, double stddev, const Options& options) {
  return run_normal(kTruncatedNormal, shape, mean, stddev, options);
}

Tensor uniform(const Shape& shape, double low, double high, const Options& options) {
  if (!(low <= high) || !std::isfinite(high - low))
    fail<InvalidArgumentError>("[RandomUniform] expected finite low <= high, got {} and {}", low,
                               high);
  check_number("RandomUniform", options.dtype, low);
  check_number("RandomUniform", options.dtype, high);
  RandomAttrs attrs = next_attrs(shape, options);
  attrs.a = low;
  attrs.b = high;
  return named(run(kUniform, {}, attrs), options.name);
}

Tensor normal(const Shape& shape, const NormalOptions& o) {
  return normal(shape, o.mean, o.stddev, {.dtype = o.dtype, .seed = o.seed, .name = o.name});
}

Tensor truncated_normal(const Shape& shape, const NormalOptions& o) {
  return truncated_normal(shape, o.mean, o.stddev,
                          {.dtype = o.dtype, .seed = o.seed, .name = o.name});
}

Tensor uniform(const Shape& shape, const UniformOptions& o) {
  const Options options{.dtype = o.dtype, .seed = o.seed, .name = o.name};
  if (!is_integer(o.dtype)) return uniform(shape, o.minval, o.maxval.value_or(1.0), options);
  if (!o.maxval)
    fail<InvalidArgumentError>("[RandomUniformInt] expected maxval for dtype {}, got none",
                               name_of(o.dtype));
  check_number("RandomUniformInt", int64, o.minval);
  check_number("RandomUniformInt", int64, *o.maxval);
  return uniform_int(shape, static_cast<std::int64_t>(o.minval),
                     static_cast<std::int64_t>(*o.maxval), options);
}

Tensor uniform_int(const Shape& shape, std::int64_t low, std::int64_t high,
                   const Options& options) {
  if (low >= high)
    fail<InvalidArgumentError>("[RandomUniformInt] expected low < high, got {} and {}", low, high);
  check_number("RandomUniformInt", options.dtype, static_cast<double>(low));
  if (options.dtype != int64)
    check_number("RandomUniformInt", options.dtype, static_cast<double>(high - 1));
  RandomAttrs attrs = next_attrs(shape, options);
  attrs.low = static_cast<std::uint64_t>(low);
  attrs.high = static_cast<std::uint64_t>(high);
  return named(run(kUniformInt, {}, attrs), options.name);
}

Tensor bernoulli(const Shape& shape, double probability, const Options& options) {
  if (!(probability >= 0.0 && probability <= 1.0))
    fail<InvalidArgumentError>("[RandomBernoulli] expected a probability in [0, 1], got {}",
                               probability);
  RandomAttrs attrs = next_attrs(shape, options);
  attrs.a = probability;
  return named(run(kBernoulli, {}, attrs), options.name);
}

Tensor permutation(Dim given) {
  const std::int64_t count = given.word();
  if (!dim::may_be_at_most(0, count))
    fail<InvalidArgumentError>("[RandomPermutation] expected a count of at least 0, got {}",
                               dim::text(count));
  return run(kPermutation, {}, next_attrs(Shape({count}), {.dtype = int64}));
}

Tensor shuffle(const Tensor& x) {
  if (x.rank() == 0) fail<ShapeError>("[shuffle] expected at least one axis, got shape ()");
  return gather(x, permutation(x.size_word(0)));
}

}  // namespace random
}  // namespace tandem
