// argmax and argmin.
#include <algorithm>
#include <array>

#include "core/multiversion.h"
#include "core/parallel.h"
#include "ops/math/elementwise.h"
#include "ops/math/in_float32.h"
#include "ops/math/reduce.h"
#include "runtime/dispatch.h"

namespace tandem {
namespace {

void infer_arg_reduce(InferContext& c) {
  check_dtype(c.op().name, kNumeric, c.dtype(0));
  const Shape& shape = c.shape(0);
  if (!shape.known()) {
    c.add_output(int64, Shape());
    return;
  }
  const int axis = resolve_axis(c.op().name, c.attrs<AxisAttrs>().axis, shape.rank());
  const Shape result = reduced_shape(shape, 1u << axis, false);
  if (shape.word(axis) == 0 && !dim::may_equal(dim::num_elements(result), 0))
    fail<ShapeError>("[{}] expected at least one element along axis {}, got shape {}", c.op().name,
                     axis, shape.to_string());
  c.add_output(int64, result);
}

// NaN beats every number, and the first NaN beats later ones.
struct Above {
  template <class C>
  static bool beats(C challenger, C best) {
    return challenger > best || (challenger != challenger && best == best);
  }
};
struct Below {
  template <class C>
  static bool beats(C challenger, C best) {
    return challenger < best || (challenger != challenger && best == best);
  }
};

constexpr std::int64_t kCompared = 32;  // elements of a run that are compared together
constexpr std::int64_t kColumns = 256;  // interleaved runs that are processed together

// The position of the extremum in each run of adjacent elements. Finds the extremum first and then
// the first element that equals it, so that neither loop carries a position.
template <class Op, class T>
TANDEM_INLINED std::int64_t arg_of_run(const T* x, std::int64_t length) {
  using C = Compute<T>;
  C best = static_cast<C>(x[0]);
  std::int64_t k = 1;
  if (length >= 2 * kCompared) {
    std::array<C, kCompared> lanes;
    for (std::int64_t j = 0; j < kCompared; ++j) lanes[j] = static_cast<C>(x[j]);
    for (k = kCompared; k + kCompared <= length; k += kCompared)
      for (std::int64_t j = 0; j < kCompared; ++j) {
        const C value = static_cast<C>(x[k + j]);
        lanes[j] = Op::beats(value, lanes[j]) ? value : lanes[j];
      }
    for (const C lane : lanes) best = Op::beats(lane, best) ? lane : best;
  }
  for (; k < length; ++k) {
    const C value = static_cast<C>(x[k]);
    best = Op::beats(value, best) ? value : best;
  }
  const auto found = [x, best](std::int64_t i) {
    const C value = static_cast<C>(x[i]);
    return value == best || (value != value && best != best);
  };
  std::int64_t at = 0;
  for (; at + kCompared <= length; at += kCompared) {
    int here = 0;
    for (std::int64_t j = 0; j < kCompared; ++j) here |= found(at + j);
    if (here != 0) break;
  }
  while (!found(at)) ++at;
  return at;
}

template <class Op, class T>
TANDEM_INLINED void args_of_runs(const T* x, std::int64_t runs, std::int64_t length,
                                 std::int64_t* out) {
  for (std::int64_t i = 0; i < runs; ++i) out[i] = arg_of_run<Op>(x + i * length, length);
}

// The positions in `count` (at most kColumns) interleaved runs, which begin at adjacent elements
// and have the stride `stride`.
template <class Op, class T>
TANDEM_INLINED void args_of_columns(const T* x, std::int64_t length, std::int64_t stride,
                                    std::int64_t count, std::int64_t* out) {
  using C = Compute<T>;
  std::array<C, kColumns> best;
  std::array<std::int64_t, kColumns> at{};
  for (std::int64_t j = 0; j < count; ++j) best[j] = static_cast<C>(x[j]);
  for (std::int64_t k = 1; k < length; ++k)
    for (std::int64_t j = 0; j < count; ++j) {
      const C value = static_cast<C>(x[k * stride + j]);
      const bool wins = Op::beats(value, best[j]);
      best[j] = wins ? value : best[j];
      at[j] = wins ? k : at[j];
    }
  std::copy_n(at.begin(), count, out);
}

template <class Op>
void arg_reduce_kernel(KernelContext& c) {
  const InFloat32 in_float32(c);
  const Shape& shape = c.inputs[0].shape;
  const int axis = resolve_axis(c.op->name, c.attrs<AxisAttrs>().axis, shape.rank());
  const std::int64_t length = shape.word(axis);
  const std::int64_t inner = shape.without_leading(axis + 1).num_elements();
  auto* out = c.outputs[0].as<std::int64_t>();
  switch_numeric(c.inputs[0].dtype, [&]<class T>(TypeTag<T>) {
    const T* x = c.inputs[0].as<const T>();
    const std::int64_t grain =
        std::max<std::int64_t>(1, kElementwiseGrain / std::max<std::int64_t>(length, 1));
    parallel_for(c.outputs[0].size(), grain, [&](std::int64_t begin, std::int64_t end) {
      if (inner == 1)
        return run_loop<T, args_of_runs<Op, T>>(x + begin * length, end - begin, length,
                                                out + begin);
      while (begin < end) {
        const std::int64_t column = begin % inner;
        const std::int64_t count = std::min({inner - column, end - begin, kColumns});
        run_loop<T, args_of_columns<Op, T>>(x + begin / inner * length * inner + column, length,
                                            inner, count, out + begin);
        begin += count;
      }
    });
  });
}

}  // namespace

const OpDef kArgMax = {.name = "ArgMax",
                       .attrs = attrs_type<AxisAttrs>,
                       .infer = infer_arg_reduce,
                       .cpu_kernel = arg_reduce_kernel<Above>};
const OpDef kArgMin = {.name = "ArgMin",
                       .attrs = attrs_type<AxisAttrs>,
                       .infer = infer_arg_reduce,
                       .cpu_kernel = arg_reduce_kernel<Below>};

Tensor argmax(const Tensor& x, std::int64_t axis) { return run(kArgMax, {&x}, AxisAttrs{axis}); }
Tensor argmin(const Tensor& x, std::int64_t axis) { return run(kArgMin, {&x}, AxisAttrs{axis}); }

namespace {

void expect_vector(const char* function, const Tensor& x) {
  if (x.rank() != 1)
    fail<InvalidArgumentError>(
        "[{0}] expected an axis, {0}(x, axis), for shape {1}: without one TensorFlow takes the "
        "first "
        "axis, PyTorch and NumPy take all elements, as x.{0}()",
        function, x.shape().to_string());
}

}  // namespace

Tensor argmax(const Tensor& x) {
  expect_vector("argmax", x);
  return argmax(x, 0);
}
Tensor argmin(const Tensor& x) {
  expect_vector("argmin", x);
  return argmin(x, 0);
}

}  // namespace tandem
