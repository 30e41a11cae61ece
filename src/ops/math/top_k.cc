// The largest elements along an axis with their positions, from argmax() and argsort().
#include <limits>

#include "core/dim.h"
#include "core/status.h"
#include "op/dtype_switch.h"
#include "op/record.h"
#include "ops/math/element_count.h"
#include "ops/math/of_size.h"
#include "ops/math/reduce.h"
#include "runtime/dispatch.h"
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

// The inverse of axis_last().
Tensor axis_back(const Tensor& last, std::int64_t axis) {
  const int rank = last.rank();
  const auto moved = static_cast<int>(axis < 0 ? axis + rank : axis);
  if (moved == rank - 1) return last;
  Dims order;
  for (int i = 0; i < rank - 1; ++i) {
    if (i == moved) order.push_back(rank - 1);
    order.push_back(i);
  }
  return transpose(last, order);
}

void expect_axis(const char* function, const Tensor& x, std::int64_t axis) {
  if (x.rank() == 0)
    fail<ShapeError>("[{}] expected a tensor with an axis, got a scalar", function);
  static_cast<void>(x.size_word(axis));  // throws for one that does not exist
}

// The elements of x at `positions` of `axis`, which is removed. Differentiable with respect to x.
Tensor at_positions(const Tensor& x, const Tensor& positions, std::int64_t axis) {
  const Tensor last = axis_last(x, axis);
  const std::int64_t size = last.size_word(-1);
  const Tensor chosen = one_hot(positions, size, {.dtype = bool_});
  // where(), not a product: what is not chosen may be infinite.
  return reduce_sum(where(chosen, last, zeros_like(last)), -1);
}

// A dtype of Argsort whose order is that of x's.
Tensor with_order(const Tensor& x) {
  return is_floating(x.dtype()) || x.dtype() == int32 ? x : cast(x, int64);
}

Tensor argsort_last(const Tensor& x, bool descending) {
  return run(kArgsort, {&x}, ArgsortAttrs{descending});
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

ValuesAndIndices top_k(const Tensor& input, std::int64_t k) {
  if (input.rank() == 0 || k < 0 || !dim::may_be_at_most(k, input.size_word(-1)))
    fail<InvalidArgumentError>(
        "[top_k] expected k of at most the size of the last axis, got {} for shape {}",
        dim::text(k), input.shape().to_string());
  const Tensor x = of_least_size("top_k", "at least k elements, a shape such as", input, -1, k);
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
    const Tensor chosen = one_hot(position, x.size_word(-1), {.dtype = bool_});
    taken = taken.defined() ? logical_or(taken, chosen) : chosen;
    left = where(chosen, low, left);
    values.push_back(at_positions(x, position, -1));
    indices.push_back(cast(position, int32));
  }
  if (k == 0) {
    Dims shape = x.shape().words();
    shape[x.rank() - 1] = 0;
    return {full(Shape(shape), 0.0, {.dtype = x.dtype()}),
            full(Shape(shape), 0.0, {.dtype = int32})};
  }
  return {stack(values, -1), stack(indices, -1)};
}

bool detail::is_descending(const SortOptions& options) {
  if (options.direction.empty()) return options.descending;
  if (options.direction != "ASCENDING" && options.direction != "DESCENDING")
    fail<InvalidArgumentError>(
        "[sort] expected the direction \"ASCENDING\" or \"DESCENDING\", got \"{}\"",
        options.direction);
  return options.direction == "DESCENDING";
}

Tensor argsort(const Tensor& x, std::int64_t axis, bool descending) {
  expect_axis("argsort", x, axis);
  return axis_back(argsort_last(with_order(axis_last(x, axis)), descending), axis);
}

ValuesAndIndices sort(const Tensor& x, std::int64_t axis, bool descending) {
  expect_axis("sort", x, axis);
  const Tensor last = axis_last(x, axis);
  const Tensor positions = argsort_last(with_order(last), descending);
  // Positions among all elements: rows begin at multiples of their size.
  Dims rows = last.shape().words();
  rows[last.rank() - 1] = 1;
  const Tensor row =
      reshape(range(Dim(dim::num_elements(Shape(rows))), {.dtype = int64}), Shape(rows));
  const Tensor in_all = row * element_count({last.size_word(-1)}, int64) + positions;
  const Tensor values = gather(reshape(last, {-1}), in_all);
  return {axis_back(values, axis), axis_back(positions, axis)};
}

ValuesAndIndices topk(const Tensor& x, std::int64_t k, std::int64_t axis, bool largest) {
  expect_axis("topk", x, axis);
  if (k < 0 || !dim::may_be_at_most(k, x.size_word(axis)))
    fail<InvalidArgumentError>(
        "[topk] expected k of at most the size of axis {}, got {} for shape {}", axis, dim::text(k),
        x.shape().to_string());
  if (!largest) {
    const ValuesAndIndices all = sort(x, axis);
    return {all.values.slice(axis, 0, k), all.indices.slice(axis, 0, k)};
  }
  const auto [values, indices] = top_k(axis_last(x, axis), k);
  return {axis_back(values, axis), axis_back(cast(indices, int64), axis)};
}

}  // namespace tandem
