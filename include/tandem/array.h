// Operations that move elements without computing on them.
#pragma once

#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "tandem/tensor.h"

namespace tandem {

// The same elements in another shape, sharing storage; one size may be -1.
Tensor reshape(const Tensor& x, const Shape& shape);
/// x itself, checked to have the shape; sizes of -1 may be any. After TensorFlow's tf.ensure_shape.
/// Shares storage. A shape that cannot be x's is an InvalidArgumentError.
///
/// Where a function is traced or a graph is built, sizes that are not known yet are checked when it
/// runs, and the result has the shape from now on. So it says that two unknown sizes are one, which
/// an input_signature and placeholders cannot:
///   y = td::ensure_shape(y, {x.dim(0), 3});  // as many rows as x
Tensor ensure_shape(const Tensor& x, const Shape& shape);
// A new axis of size 1 before `axis` (negative: from the end of the result). Shares storage.
Tensor expand_dims(const Tensor& x, std::int64_t axis);
// Without the axes of size 1: those given, or all. Shares storage.
Tensor squeeze(const Tensor& x, const Dims& axes = {});
// Axes in another order; empty: reversed.
Tensor transpose(const Tensor& x, const Dims& permutation = {});
Tensor broadcast_to(const Tensor& x, const Shape& shape);
struct IdentityOptions {
  std::string_view name{};  // of the operation, in a graph
};
// The tensor itself; in a graph, under a name of its own.
Tensor identity(const Tensor& x, const IdentityOptions& options = {});
// The value of x; no gradient flows back through it.
Tensor stop_gradient(const Tensor& x);

// Tensors joined along an axis that they have / along a new axis.
Tensor concat(TensorList tensors, std::int64_t axis);
Tensor stack(TensorList tensors, std::int64_t axis = 0);
// The inverse of concat: `parts` equal parts, or parts of the sizes given.
std::vector<Tensor> split(const Tensor& x, std::int64_t parts, std::int64_t axis = 0);
std::vector<Tensor> split(const Tensor& x, const std::vector<std::int64_t>& sizes,
                          std::int64_t axis = 0);
// The inverse of stack: x without `axis`, one tensor an index.
std::vector<Tensor> unstack(const Tensor& x, std::int64_t axis = 0);

// The elements from `begin` on, `size` along each axis (-1: to the end). Shares storage where only
// the first axis is cut.
Tensor slice(const Tensor& x, const Dims& begin, const Dims& size);
// slice() of the first axis alone: rows [begin, end). Shares storage.
Tensor slice_rows(const Tensor& x, std::int64_t begin, std::int64_t end);

// `paddings`: elements before and after each axis; filled with `value`.
Tensor pad(const Tensor& x, const std::vector<std::pair<std::int64_t, std::int64_t>>& paddings,
           double value = 0.0);
// Repeated `multiples` times along each axis.
Tensor tile(const Tensor& x, const Dims& multiples);
Tensor reverse(const Tensor& x, const Dims& axes);

// Slices of `params` along `axis` at `indices` (int32 or int64, any shape): the result's shape is
// params.shape[:axis] + indices.shape + params.shape[axis+1:]. An index out of range is an
// InvalidArgumentError that names it.
Tensor gather(const Tensor& params, const Tensor& indices, std::int64_t axis = 0);
// A new last axis of size `depth`: `on` at the index, `off` elsewhere; indices outside give all
// off.
// The dtype must hold both numbers: InvalidArgumentError.
struct OneHotOptions {
  double on = 1.0;
  double off = 0.0;
  DType dtype = float32;
};
Tensor one_hot(const Tensor& indices, std::int64_t depth, const OneHotOptions& options = {});

}  // namespace tandem
