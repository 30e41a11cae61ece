// The largest elements along an axis with their positions, from argmax().
#include <limits>

#include "core/status.h"
#include "op/dtype_switch.h"
#include "tandem/array.h"
#include "tandem/creation.h"
#include "tandem/math.h"

namespace tandem {
namespace {

// x with `axis` last.
Tensor axis_last(const Tensor& x, std::int64_t axis) {
  const int rank = x.rank();
  const auto moved = static_cast<int>(axis < 0 ? axis + rank : axis);
  if (moved == rank - 1) return x;
  Dims order;
  for (int i = 0; i < rank; ++i)
    if (i != moved) order.push_back(i);
  order.push_back(moved);
  return transpose(x, order);
}

// The elements of x at `positions` of `axis`, which is removed. Differentiable with respect to x.
Tensor at_positions(const Tensor& x, const Tensor& positions, std::int64_t axis) {
  const Tensor last = axis_last(x, axis);
  const std::int64_t size = last.dim(-1);
  const Tensor chosen = one_hot(positions, size, {.dtype = bool_});
  // where(), not a product: what is not chosen may be infinite.
  return reduce_sum(where(chosen, last, zeros_like(last)), -1);
}

ValuesAndIndices extremes(const Tensor& x, const Tensor& positions, std::int64_t axis,
                          bool keepdims) {
  const Tensor values = at_positions(x, positions, axis);
  if (!keepdims) return {values, positions};
  const std::int64_t at = axis < 0 ? axis + x.rank() : axis;
  return {expand_dims(values, at), expand_dims(positions, at)};
}

double lowest(DType dtype) {
  if (is_floating(dtype)) return -std::numeric_limits<double>::infinity();
  return switch_dtype(dtype, []<class T>(TypeTag<T>) {
    return static_cast<double>(std::numeric_limits<T>::lowest());
  });
}

}  // namespace

ValuesAndIndices max(const Tensor& x, std::int64_t axis, bool keepdims) {
  return extremes(x, argmax(x, axis), axis, keepdims);
}

ValuesAndIndices min(const Tensor& x, std::int64_t axis, bool keepdims) {
  return extremes(x, argmin(x, axis), axis, keepdims);
}

ValuesAndIndices top_k(const Tensor& x, std::int64_t k) {
  if (x.rank() == 0 || k < 0 || (x.dim(-1) >= 0 && k > x.dim(-1)))
    fail<InvalidArgumentError>(
        "[top_k] expected k of at most the size of the last axis, got {} for shape {}", k,
        x.shape().to_string());
  const Tensor low = full(x.shape(), lowest(x.dtype()), {.dtype = x.dtype()});
  Tensor left = stop_gradient(x);
  Tensor taken;
  std::vector<Tensor> values, indices;
  for (std::int64_t i = 0; i < k; ++i) {
    Tensor position = argmax(left, -1);
    if (taken.defined()) {
      // Where only the lowest value is left, argmax() cannot tell it from what was taken.
      const Tensor exhausted = equal(reduce_max(left, -1), lowest(x.dtype()));
      position = where(exhausted, argmin(cast(taken, int32), -1), position);
    }
    const Tensor chosen = one_hot(position, x.dim(-1), {.dtype = bool_});
    taken = taken.defined() ? logical_or(taken, chosen) : chosen;
    left = where(chosen, low, left);
    values.push_back(at_positions(x, position, -1));
    indices.push_back(cast(position, int32));
  }
  if (k == 0) {
    Dims shape = x.shape().dims();
    shape[x.rank() - 1] = 0;
    return {full(Shape(shape), 0.0, {.dtype = x.dtype()}),
            full(Shape(shape), 0.0, {.dtype = int32})};
  }
  return {stack(values, -1), stack(indices, -1)};
}

}  // namespace tandem
