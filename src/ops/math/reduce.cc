// Reductions over axes: sums, means, products, extrema, all/any and norms.
#include "ops/math/reduce.h"

#include <cmath>
#include <limits>

#include "core/multiversion.h"
#include "op/record.h"
#include "ops/formula/reductions.h"
#include "ops/math/broadcast.h"
#include "ops/math/element_count.h"
#include "ops/math/elementwise.h"
#include "ops/math/in_float32.h"
#include "ops/math/reduce_engine.h"
#include "ops/math/sum_to_shape.h"
#include "ops/op_list.h"
#include "runtime/autocast.h"
#include "runtime/dispatch.h"
#include "runtime/trace.h"
#include "tandem/array.h"
#include "tandem/creation.h"

namespace tandem {

int resolve_axis(std::string_view op, std::int64_t axis, int rank) {
  if (axis < -rank || axis >= rank)
    fail<ShapeError>("[{}] expected an axis in [{}, {}), got {}", op, -rank, rank, axis);
  return static_cast<int>(axis < 0 ? axis + rank : axis);
}

std::uint32_t reduced_axes(std::string_view op, const ReduceAttrs& attrs, int rank) {
  if (attrs.all) return (1u << rank) - 1u;
  std::uint32_t mask = 0;
  for (std::int64_t axis : attrs.axes) {
    const std::uint32_t bit = 1u << resolve_axis(op, axis, rank);
    if ((mask & bit) != 0) fail<ShapeError>("[{}] expected distinct axes, got {} twice", op, axis);
    mask |= bit;
  }
  return mask;
}

Shape reduced_shape(const Shape& shape, std::uint32_t mask, bool keepdims) {
  Dims sizes;
  for (int axis = 0; axis < shape.rank(); ++axis) {
    const bool reduced = (mask >> axis & 1u) != 0;
    if (!reduced)
      sizes.push_back(shape.word(axis));
    else if (keepdims)
      sizes.push_back(1);
  }
  return Shape(sizes);
}

Shape reduced_shape(std::string_view op, const ReduceAttrs& attrs, const Shape& shape) {
  if (!shape.known()) return attrs.all && !attrs.keepdims ? Shape::scalar() : Shape();
  return reduced_shape(shape, reduced_axes(op, attrs, shape.rank()), attrs.keepdims);
}

Tensor with_reduced_axes(const GradContext& c, const Tensor& y) {
  const auto& attrs = c.attrs<ReduceAttrs>();
  if (attrs.keepdims) return y;
  const Shape& shape = c.input_spec(0).shape;
  return reshape(y, reduced_shape(shape, reduced_axes(c.op().name, attrs, shape.rank()), true));
}

// The sizes of the axes of the mask.
static Shape reduced_sizes(const Shape& shape, std::uint32_t mask) {
  return reduced_shape(shape, ~mask, false);
}

Tensor per_reduced_element(const GradContext& c, const Tensor& y) {
  const Shape& shape = c.input_spec(0).shape;
  const std::uint32_t mask = reduced_axes(c.op().name, c.attrs<ReduceAttrs>(), shape.rank());
  const Shape reduced = reduced_sizes(shape, mask);
  const Tensor wide = cast(y, wide_dtype(y.dtype()));
  if (reduced.fully_defined())
    // An empty input has an empty gradient; the divisor only must not be 0.
    return wide / static_cast<double>(std::max<std::int64_t>(reduced.num_elements(), 1));
  // The count is known when the graph runs.
  return wide / element_count(reduced, wide.dtype());
}

namespace {

// --- the loops of a formula of ops/formula/reductions.h ---
// The number of parallel accumulators for a long run, which are combined pairwise at its end. It is
// the same on every machine, so that the order of the sum is, too.
constexpr int kReducedLanes = 64;

template <class Op, class T>
TANDEM_INLINED void runs_loop(const void* input, std::int64_t runs, std::int64_t length,
                              void* accumulators) {
  using C = Compute<T>;
  const T* x = static_cast<const T*>(input);
  C* out = static_cast<C*>(accumulators);
  for (std::int64_t run = 0; run < runs; ++run, x += length) {
    if (length < kReducedLanes) {
      C sum = Op::template neutral<C>();
      for (std::int64_t i = 0; i < length; ++i)
        sum = Op::combine(sum, Op::load(static_cast<C>(x[i])));
      out[run] = sum;
      continue;
    }
    alignas(64) C lanes[kReducedLanes];
    for (int j = 0; j < kReducedLanes; ++j) lanes[j] = Op::load(static_cast<C>(x[j]));
    std::int64_t i = kReducedLanes;
    for (; i + kReducedLanes <= length; i += kReducedLanes)
      for (int j = 0; j < kReducedLanes; ++j)
        lanes[j] = Op::combine(lanes[j], Op::load(static_cast<C>(x[i + j])));
    for (int j = 0; i + j < length; ++j)
      lanes[j] = Op::combine(lanes[j], Op::load(static_cast<C>(x[i + j])));
    for (int width = kReducedLanes / 2; width > 0; width /= 2)
      for (int j = 0; j < width; ++j) lanes[j] = Op::combine(lanes[j], lanes[j + width]);
    out[run] = lanes[0];
  }
}

template <class Op, class T, class C>
TANDEM_INLINED void plain_rows(const T* x, std::int64_t rows, std::int64_t stride,
                               std::int64_t columns, C* __restrict__ sums) {
  const auto at = [&](std::int64_t i) { return Op::load(static_cast<C>(x[i])); };
  std::int64_t row = 0;
  for (; row + 4 <= rows; row += 4, x += 4 * stride)  // in the same order as one by one
    for (std::int64_t i = 0; i < columns; ++i) {
      const C two = Op::combine(Op::combine(sums[i], at(i)), at(i + stride));
      sums[i] = Op::combine(Op::combine(two, at(i + 2 * stride)), at(i + 3 * stride));
    }
  for (; row < rows; ++row, x += stride)
    for (std::int64_t i = 0; i < columns; ++i) sums[i] = Op::combine(sums[i], at(i));
}

template <class Op, class T>
void rows_loop(const void* input, std::int64_t rows, std::int64_t stride, std::int64_t columns,
               bool fresh, void* accumulators) {
  using C = Compute<T>;
  C* sums = static_cast<C*>(accumulators);
  if (fresh) std::fill_n(sums, columns, Op::template neutral<C>());
  run_loop<T, plain_rows<Op, T, C>>(static_cast<const T*>(input), rows, stride, columns, sums);
}

template <class Op, class T>
void combine_loop(void* accumulators, const void* others, std::int64_t count) {
  using C = Compute<T>;
  C* sums = static_cast<C*>(accumulators);
  const C* more = static_cast<const C*>(others);
#pragma GCC ivdep
  for (std::int64_t i = 0; i < count; ++i) sums[i] = Op::combine(sums[i], more[i]);
}

template <class Op>
concept HasWideResult = requires {
  Op::kWideResult;
};
template <class Op, class T>
using ResultOf = std::conditional_t<HasWideResult<Op>, Compute<T>, T>;

template <class Op, class T>
void finish_loop(const void* accumulators, std::int64_t count, std::int64_t reduced, void* result) {
  using C = Compute<T>;
  const C* sums = static_cast<const C*>(accumulators);
  auto* out = static_cast<ResultOf<Op, T>*>(result);
  for (std::int64_t i = 0; i < count; ++i)
    out[i] = store_as<ResultOf<Op, T>>(Op::finish(sums[i], reduced));
}

template <class Op, class T>
constexpr ReduceLoops kLoops = {run_loop<T, runs_loop<Op, T>>,
                                rows_loop<Op, T>,
                                combine_loop<Op, T>,
                                finish_loop<Op, T>,
                                sizeof(T),
                                sizeof(Compute<T>),
                                sizeof(ResultOf<Op, T>)};

template <class Op, DTypeSet kDTypes>
void reduce_kernel(KernelContext& c) {
  const std::uint32_t mask =
      reduced_axes(c.op->name, c.attrs<ReduceAttrs>(), c.inputs[0].shape.rank());
  const InFloat32 in_float32(c);
  switch_computed(c.inputs[0].dtype, [&]<class T>(TypeTag<T>) {
    if constexpr ((kDTypes & set_of(dtype_of<T>)) != 0)
      run_reduce(c, mask, kLoops<Op, T>, c.outputs[0].data);
  });
}

template <class Op, DTypeSet kDTypes>
void infer_reduce(InferContext& c) {
  check_dtype(c.op().name, kDTypes, c.dtype(0));
  const DType dtype = HasWideResult<Op> ? wide_dtype(c.dtype(0)) : c.dtype(0);
  c.add_output(dtype, reduced_shape(c.op().name, c.attrs<ReduceAttrs>(), c.shape(0)));
}

// --- gradients ---

void sum_gradient(GradContext& c) {
  c.set_grad(0, broadcast_to(with_reduced_axes(c, c.grad()), c.input_spec(0).shape));
}

void mean_gradient(GradContext& c) {
  const Tensor share = cast(per_reduced_element(c, c.grad()), c.grad().dtype());
  c.set_grad(0, broadcast_to(with_reduced_axes(c, share), c.input_spec(0).shape));
}

// If several elements equal the extremum, they share the gradient equally, as in TensorFlow.
void extremum_gradient(GradContext& c) {
  const Tensor& x = c.input(0);
  const Tensor winners = equal(x, with_reduced_axes(c, c.output(0)));
  const auto& attrs = c.attrs<ReduceAttrs>();
  ReduceOptions over = {.axis = attrs.all ? std::nullopt : std::optional(attrs.axes),
                        .keepdims = true};
  // Computed in a dtype that represents large counts.
  const DType wide = x.dtype() == float64 ? float64 : float32;
  const Tensor count = reduce_sum(cast(winners, wide), over);
  const Tensor share = cast(cast(with_reduced_axes(c, c.grad()), wide) / count, x.dtype());
  c.set_grad(0, cast(winners, x.dtype()) * share);
}

// All axes, with those of the mask first.
Dims axes_in_front(std::uint32_t mask, int rank) {
  Dims order;
  for (const bool in_mask : {true, false})
    for (int axis = 0; axis < rank; ++axis)
      if (((mask >> axis & 1u) != 0) == in_mask) order.push_back(axis);
  return order;
}

// More rows than fit into any memory.
constexpr std::int64_t kMostRows = std::int64_t{1} << 40;

// Per row: the product of the rows before it, or of those after it. Computed by doubling, without
// divisions, so that zeros need no special case in derivatives of any order.
Tensor products_of_others(const Tensor& rows, bool after) {
  const std::int64_t count = rows.size_word(0);
  const auto moved = [&](const Tensor& x, std::int64_t distance) {
    const std::int64_t by = dim::min(distance, count), left = dim::difference(count, by);
    return after ? pad(slice_rows(x, by, count), {{0, by}, {0, 0}}, 1.0)
                 : pad(slice_rows(x, 0, left), {{by, 0}, {0, 0}}, 1.0);
  };
  Tensor products = moved(rows, 1);
  // For an unknown count, as many steps as the largest one takes: those beyond it multiply by 1.
  const std::int64_t most = dim::is_unknown(count) ? kMostRows : count;
  for (std::int64_t by = 1; by < most - 1; by *= 2) products = products * moved(products, by);
  return products;
}

// The derivative of a product by an element is the product of the other elements.
void prod_gradient(GradContext& c) {
  const Tensor& x = c.input(0);
  const int rank = x.rank();
  const std::uint32_t mask = reduced_axes(c.op().name, c.attrs<ReduceAttrs>(), rank);
  const std::int64_t columns = dim::num_elements(reduced_shape(x.shape(), mask, false)),
                     count = dim::num_elements(reduced_sizes(x.shape(), mask));
  const DType wide = wide_dtype(x.dtype());
  const Dims order = axes_in_front(mask, rank);
  const Tensor in_order = transpose(cast(x, wide), order);
  const Tensor rows = reshape(in_order, {count, columns});
  const Tensor others = products_of_others(rows, false) * products_of_others(rows, true) *
                        reshape(cast(c.grad(), wide), {1, columns});
  Dims back = order;
  for (int i = 0; i < rank; ++i) back[static_cast<int>(order[i])] = i;
  c.set_grad(0, cast(transpose(reshape(others, in_order.shape()), back), x.dtype()));
}

// The gradient is x / norm, and 0 where the norm is 0.
void norm_gradient(GradContext& c) {
  const Tensor y = with_reduced_axes(c, c.output(0));
  const Tensor divisor = where(equal(y, 0.0), ones_like(y), y);
  const Tensor factor = with_reduced_axes(c, c.grad()) / divisor;
  c.set_grad(0, scaled(c.input(0), factor));
}

template <class Op, DTypeSet kDTypes>
constexpr OpDef reduction(std::string_view name, GradFn gradient = nullptr,
                          std::uint32_t saved_inputs = 0, std::uint32_t saved_outputs = 0) {
  return {.name = name,
          .attrs = attrs_type<ReduceAttrs>,
          .infer = infer_reduce<Op, kDTypes>,
          .gradient = gradient,
          .cpu_kernel = reduce_kernel<Op, kDTypes>,
          .saved_inputs = saved_inputs,
          .saved_outputs = saved_outputs};
}

// --- SumToShape: the sum over axes that were broadcast ---

void infer_sum_to_shape(InferContext& c) {
  check_dtype(c.op().name, kNumeric, c.dtype(0));
  const Shape &from = c.shape(0), &to = c.attrs<SumToShapeAttrs>().shape;
  const int leading = from.rank() - to.rank();
  bool valid = dim::are_sizes(to) && leading >= 0;
  for (int axis = 0; valid && axis < to.rank(); ++axis)
    valid = dim::may_equal(to.word(axis), 1) ||
            dim::may_equal(to.word(axis), from.word(leading + axis));
  if (!valid)
    fail<ShapeError>("[SumToShape] expected a shape that broadcasts to {}, got {}",
                     from.to_string(), to.to_string());
  c.add_output(c.dtype(0), to);
}

void sum_to_shape_kernel(KernelContext& c) {
  const std::uint32_t mask = repeated_axes(c.inputs[0].shape, c.outputs[0].shape);
  const InFloat32 in_float32(c);
  switch_numeric(c.inputs[0].dtype, [&]<class T>(TypeTag<T>) {
    run_reduce(c, mask, kLoops<cpu::Sum, T>, c.outputs[0].data);
  });
}

void sum_to_shape_gradient(GradContext& c) {
  c.set_grad(0, broadcast_to(c.grad(), c.input_spec(0).shape));
}

constexpr DTypeSet kBool = set_of(bool_);
const OpDef kSum =
    with_autocast(kAutocastFloat32OnGpus, reduction<cpu::Sum, kNumeric>("Sum", sum_gradient));
const OpDef kMean = reduction<cpu::Mean, kFloating>("Mean", mean_gradient);
const OpDef kProd =
    with_autocast(kAutocastFloat32, reduction<cpu::Prod, kNumeric>("Prod", prod_gradient, 0b1));
const OpDef kMax = reduction<cpu::Max, kNumeric>("Max", extremum_gradient, 0b1, 0b1);
const OpDef kMin = reduction<cpu::Min, kNumeric>("Min", extremum_gradient, 0b1, 0b1);
const OpDef kAny = reduction<cpu::Any, kBool>("Any");
const OpDef kAll = reduction<cpu::All, kBool>("All");

}  // namespace

const OpDef kEuclideanNorm =
    reduction<cpu::EuclideanNorm, kFloating>("EuclideanNorm", norm_gradient, 0b1, 0b1);

const OpDef kSumToShape = {.name = "SumToShape",
                           .attrs = attrs_type<SumToShapeAttrs>,
                           .infer = infer_sum_to_shape,
                           .gradient = sum_to_shape_gradient,
                           .cpu_kernel = sum_to_shape_kernel,
                           .traits = kIdentityIfSame};

Tensor reduce_sum(const Tensor& x, const ReduceOptions& options) {
  if (x.dtype() == bool_) return reduce_sum(cast(x, int64), options);
  return named(run(kSum, {&x}, ReduceAttrs::of(options)), options.name);
}
Tensor reduce_mean(const Tensor& x, const ReduceOptions& options) {
  if (x.dtype() == bool_) return reduce_mean(cast(x, float32), options);
  return named(run(kMean, {&x}, ReduceAttrs::of(options)), options.name);
}
Tensor reduce_prod(const Tensor& x, const ReduceOptions& options) {
  return named(run(kProd, {&x}, ReduceAttrs::of(options)), options.name);
}
Tensor reduce_max(const Tensor& x, const ReduceOptions& options) {
  return named(run(kMax, {&x}, ReduceAttrs::of(options)), options.name);
}
Tensor reduce_min(const Tensor& x, const ReduceOptions& options) {
  return named(run(kMin, {&x}, ReduceAttrs::of(options)), options.name);
}
Tensor reduce_any(const Tensor& x, const ReduceOptions& options) {
  return named(run(kAny, {&x}, ReduceAttrs::of(options)), options.name);
}
Tensor reduce_all(const Tensor& x, const ReduceOptions& options) {
  return named(run(kAll, {&x}, ReduceAttrs::of(options)), options.name);
}
Tensor norm(const Tensor& values, const ReduceOptions& options) {
  const Tensor x = autocast_float32_on_gpus(values);
  return named(cast(run(kEuclideanNorm, {&x}, ReduceAttrs::of(options)), x.dtype()), options.name);
}

OpList reduce_ops() {
  return list_of<kSum, kMean, kProd, kMax, kMin, kAny, kAll, kEuclideanNorm, kSumToShape, kArgMax,
                 kArgMin, kArgsort, kCumsum, kVariance, kScaledDistance>();
}

}  // namespace tandem
