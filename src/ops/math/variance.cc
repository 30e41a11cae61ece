// Variances over axes, and their gradient.
#include <algorithm>
#include <array>

#include "core/multiversion.h"
#include "core/parallel.h"
#include "op/record.h"
#include "ops/math/broadcast.h"
#include "ops/math/elementwise.h"
#include "ops/math/float_chunks.h"
#include "ops/math/in_float32.h"
#include "ops/math/reduce.h"
#include "ops/math/reduce_engine.h"
#include "ops/math/rows.h"
#include "runtime/dispatch.h"
#include "tandem/array.h"
#include "tandem/creation.h"
#include "tandem/math.h"

namespace tandem {
namespace {

// --- Variance: input x; outputs the variance and the mean ---

void infer_variance(InferContext& c) {
  check_dtype(c.op().name, kFloating, c.dtype(0));
  const auto& attrs = c.attrs<ReduceAttrs>();
  for (int output = 0; output < 2; ++output)
    c.add_output(wide_dtype(c.dtype(0)), reduced_shape(c.op().name, attrs, c.shape(0)));
}

// The count of elements, their mean, and the sum of their squared distances from it. In double,
// because many blocks of few elements are joined one after the other.
struct Moments {
  double count, mean, squares;

  // T. F. Chan, G. H. Golub and R. J. LeVeque, 1979. `share` is other.count / (count +
  // other.count).
  TANDEM_INLINED void join(const Moments& other, double share) {
    const double distance = other.mean - mean;
    mean += distance * share;
    squares += other.squares + distance * distance * (count * share);
    count += other.count;
  }
};
static_assert(sizeof(Moments) <= kMaxAccumulator);

// The moments of `count` numbers. `mean`: rounded; `rest` and `squares`: the sum of the distances
// from it, and the sum of the squared distances.
TANDEM_INLINED Moments corrected(double count, double mean, double rest, double squares) {
  return {count, mean + rest / count, squares - rest * rest / count};
}

// In two passes over a run that fits into the cache.
template <class C, class T>
TANDEM_INLINED Moments moments_of(const T* x, std::int64_t count) {
  const C mean = row_sum<C>(count, [x](std::int64_t i) { return static_cast<C>(x[i]); }) /
                 static_cast<C>(count);
  const C rest =
      row_sum<C>(count, [x, mean](std::int64_t i) { return static_cast<C>(x[i]) - mean; });
  const C squares = row_sum<C>(count, [x, mean](std::int64_t i) {
    const C distance = static_cast<C>(x[i]) - mean;
    return distance * distance;
  });
  return corrected(static_cast<double>(count), static_cast<double>(mean), static_cast<double>(rest),
                   static_cast<double>(squares));
}

template <class T>
TANDEM_INLINED void variance_runs_loop(const void* input, std::int64_t runs, std::int64_t length,
                                       void* accumulators) {
  const T* x = static_cast<const T*>(input);
  auto* out = static_cast<Moments*>(accumulators);
  for (std::int64_t run = 0; run < runs; ++run, x += length)
    out[run] = moments_of<Compute<T>>(x, length);
}

// The moments of each column are computed in two passes over the rows, then joined.
template <class T>
TANDEM_INLINED void variance_rows_loop(const void* input, std::int64_t rows, std::int64_t stride,
                                       std::int64_t columns, bool fresh, void* accumulators) {
  using C = Compute<T>;
  const T* x = static_cast<const T*>(input);
  auto* out = static_cast<Moments*>(accumulators);
  if (fresh) std::fill_n(out, columns, Moments{});
  if (rows == 0) return;
  alignas(64) C means[kReduceColumns] = {}, rests[kReduceColumns] = {},
                squares[kReduceColumns] = {};
  for (std::int64_t row = 0; row < rows; ++row)
    for (std::int64_t i = 0; i < columns; ++i) means[i] += static_cast<C>(x[row * stride + i]);
  const C scale = C(1) / static_cast<C>(rows);
  for (std::int64_t i = 0; i < columns; ++i) means[i] *= scale;
  for (std::int64_t row = 0; row < rows; ++row)
    for (std::int64_t i = 0; i < columns; ++i) {
      const C distance = static_cast<C>(x[row * stride + i]) - means[i];
      rests[i] += distance;
      squares[i] += distance * distance;
    }
  const auto count = static_cast<double>(rows);
  const double share = count / (out[0].count + count);
  for (std::int64_t i = 0; i < columns; ++i)
    out[i].join(corrected(count, static_cast<double>(means[i]), static_cast<double>(rests[i]),
                          static_cast<double>(squares[i])),
                share);
}

void variance_combine_loop(void* accumulators, const void* others, std::int64_t count) {
  auto* moments = static_cast<Moments*>(accumulators);
  const auto* more = static_cast<const Moments*>(others);
  for (std::int64_t i = 0; i < count; ++i)
    moments[i].join(more[i], more[i].count / (moments[i].count + more[i].count));
}

template <class C>
struct Result {
  C variance, mean;
};

template <class C>
void variance_finish_loop(const void* accumulators, std::int64_t count, std::int64_t,
                          void* results) {
  const auto* moments = static_cast<const Moments*>(accumulators);
  auto* out = static_cast<Result<C>*>(results);
  for (std::int64_t i = 0; i < count; ++i) {
    // Not a number without elements
    const double mean = moments[i].count > 0 ? moments[i].mean : 0.0 / moments[i].count;
    out[i] = {static_cast<C>(moments[i].squares / moments[i].count), static_cast<C>(mean)};
  }
}

template <class T>
constexpr ReduceLoops kVarianceLoops = {run_loop<T, variance_runs_loop<T>>,
                                        run_loop<T, variance_rows_loop<T>>,
                                        variance_combine_loop,
                                        variance_finish_loop<Compute<T>>,
                                        sizeof(T),
                                        sizeof(Moments),
                                        sizeof(Result<Compute<T>>)};

void variance_kernel(KernelContext& c) {
  const InFloat32 in_float32(c);
  const std::uint32_t mask =
      reduced_axes(c.op->name, c.attrs<ReduceAttrs>(), c.inputs[0].shape.rank());
  switch_floating(c.inputs[0].dtype, [&]<class T>(TypeTag<T>) {
    using C = Compute<T>;
    const std::int64_t size = c.outputs[0].size();
    auto* results =
        static_cast<Result<C>*>(c.scratch(static_cast<std::size_t>(size) * sizeof(Result<C>)));
    run_reduce(c, mask, kVarianceLoops<T>, results);
    C *variance = c.outputs[0].as<C>(), *mean = c.outputs[1].as<C>();
    for (std::int64_t i = 0; i < size; ++i) {
      variance[i] = results[i].variance;
      mean[i] = results[i].mean;
    }
  });
}

void variance_gradient(GradContext& c) {
  Tensor dx;
  if (c.grad(0).defined())
    dx = scaled_distance(c.input(0), with_reduced_axes(c, c.output(1)),
                         with_reduced_axes(c, per_reduced_element(c, c.grad(0)) * 2.0));
  if (c.grad(1).defined()) {
    const Tensor share = broadcast_to(with_reduced_axes(c, per_reduced_element(c, c.grad(1))),
                                      c.input_spec(0).shape);
    dx = dx.defined() ? dx + cast(share, dx.dtype()) : cast(share, c.input_spec(0).dtype);
  }
  c.set_grad(0, dx);
}

// --- ScaledDistance: inputs x, mean, scale; output (x - mean) * scale ---

void infer_scaled_distance(InferContext& c) {
  const auto& name = c.op().name;
  check_dtype(name, kFloating, c.dtype(0));
  for (int input : {1, 2}) {
    if (c.dtype(input) != wide_dtype(c.dtype(0)))
      fail<DTypeError>("[{}] expected a mean and a scale of dtype {}, got {}", name,
                       name_of(wide_dtype(c.dtype(0))), name_of(c.dtype(input)));
    if (!dim::may_equal(broadcast_shape(name, c.shape(0), c.shape(input)), c.shape(0)))
      fail<InvalidArgumentError>("[{}] expected a mean and a scale that broadcast to {}, got {}",
                                 name, c.shape(0).to_string(), c.shape(input).to_string());
  }
  if (!dim::may_equal(c.shape(1), c.shape(2)))
    fail<ShapeError>("[{}] expected a mean and a scale of one shape, got {} and {}", name,
                     c.shape(1).to_string(), c.shape(2).to_string());
  c.add_output(c.dtype(0), c.shape(0));
}

template <class T>
TANDEM_INLINED void distances(const T* x, const Compute<T>* mean, const Compute<T>* scale, T* y,
                              std::int64_t count) {
  write_elements(y, count, [=](std::int64_t i) {
    return (static_cast<Compute<T>>(x[i]) - mean[i]) * scale[i];
  });
}

template <class T>
TANDEM_INLINED void distances_from_number(const T* x, Compute<T> mean, Compute<T> scale, T* y,
                                          std::int64_t count) {
  write_elements(y, count,
                 [=](std::int64_t i) { return (static_cast<Compute<T>>(x[i]) - mean) * scale; });
}

void scaled_distance_kernel(KernelContext& c) {
  const TensorView &x = c.inputs[0], &statistics = c.inputs[1], &y = c.outputs[0];
  if (x.size() == 0) return;
  const InFloat32 in_float32(c);
  const BroadcastPlan plan(x.shape, std::array{&x.shape, &statistics.shape});
  switch_floating(x.dtype, [&]<class T>(TypeTag<T>) {
    using C = Compute<T>;
    const C *mean = statistics.as<const C>(), *scale = c.inputs[2].as<const C>();
    parallel_for(x.size(), kElementwiseGrain, [&](std::int64_t begin, std::int64_t end) {
      plan.for_runs(begin, end,
                    [&](std::int64_t at, const BroadcastPlan::Offsets& from, std::int64_t length) {
                      const T* data = x.as<const T>() + at;
                      if (plan.inner_stride(1) == 0)
                        run_loop<T, distances_from_number<T>>(data, mean[from[1]], scale[from[1]],
                                                              y.as<T>() + at, length);
                      else
                        run_loop<T, distances<T>>(data, mean + from[1], scale + from[1],
                                                  y.as<T>() + at, length);
                    });
    });
  });
}

void scaled_distance_gradient(GradContext& c) {
  const DType wide = c.input_spec(1).dtype;
  const Shape& statistics = c.input_spec(1).shape;
  if (c.needs_grad(0)) c.set_grad(0, scaled(c.grad(), c.input(2)));
  if (!c.needs_grad(1) && !c.needs_grad(2)) return;
  const Tensor dy = cast(c.grad(), wide);
  if (c.needs_grad(1)) c.set_grad(1, negative(sum_to_shape(dy * c.input(2), statistics)));
  if (c.needs_grad(2))
    c.set_grad(2, sum_to_shape(dy * (cast(c.input(0), wide) - c.input(1)), statistics));
}

}  // namespace

const OpDef kVariance = {.name = "Variance",
                         .attrs = attrs_type<ReduceAttrs>,
                         .infer = infer_variance,
                         .gradient = variance_gradient,
                         .cpu_kernel = variance_kernel,
                         .saved_inputs = 0b1,
                         .saved_outputs = 0b10};
const OpDef kScaledDistance = {.name = "ScaledDistance",
                               .infer = infer_scaled_distance,
                               .gradient = scaled_distance_gradient,
                               .cpu_kernel = scaled_distance_kernel,
                               .saved_inputs = 0b111};

Tensor scaled_distance(const Tensor& x, const Tensor& mean, const Tensor& scale) {
  return run(kScaledDistance, {&x, &mean, &scale});
}

Tensor scaled(const Tensor& x, const Tensor& scale) {
  return x.dtype() == scale.dtype() ? x * scale : scaled_distance(x, zeros_like(scale), scale);
}

}  // namespace tandem
