/// @file
/// Operations that rearrange, join and cut tensors. Named and defined as in TensorFlow.
#pragma once

#include <concepts>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tandem/tensor.h"

namespace tandem {

namespace detail {
void print_line(const std::string& line);  // to the standard output
}  // namespace detail

/// Returns the elements of x in another shape. One size may be -1 and is then inferred. Shares
/// storage. As tf.reshape.
[[nodiscard]] Tensor reshape(const Tensor& x, const Shape& shape);
/// Returns x and checks that it has this shape; sizes of -1 match any. Shares storage. Throws
/// InvalidArgumentError for another shape. As tf.ensure_shape.
///
/// Where a function is traced or a graph is built, unknown sizes are checked at each run, and the
/// result has the static shape. This can state that two unknown sizes are equal, which an
/// input_signature or a placeholder cannot:
/// @code
/// y = td::ensure_shape(y, {x.dim(0), 3});  // as many rows as x
/// @endcode
[[nodiscard]] Tensor ensure_shape(const Tensor& x, const Shape& shape);
/// Inserts an axis of size 1 before `axis`; a negative one counts from the end of the result.
/// Shares storage. As tf.expand_dims.
[[nodiscard]] Tensor expand_dims(const Tensor& x, std::int64_t axis);
/// Removes the given axes, which must have size 1, or all axes of size 1. Shares storage. As
/// tf.squeeze, but throws InvalidArgumentError without axes where sizes are not known.
[[nodiscard]] Tensor squeeze(const Tensor& x, const Dims& axes = {});
/// Permutes the axes: axis i of the result is axis permutation[i] of x. The default reverses the
/// axes. As tf.transpose.
[[nodiscard]] Tensor transpose(const Tensor& x, const Dims& permutation = {});
/// Repeats x along axes of size 1 and new leading axes to `shape`. As tf.broadcast_to.
[[nodiscard]] Tensor broadcast_to(const Tensor& x, const Shape& shape);
/// Options of identity().
struct IdentityOptions {
  std::string_view name{};  ///< name of the operation in a graph
};
/// Returns the tensor itself; in a graph, as an operation with a name of its own. As tf.identity.
[[nodiscard]] Tensor identity(const Tensor& x, const IdentityOptions& options = {});
/// The number of elements of x as a scalar; in a trace that of the run, if it is not known before.
/// As tf.size; Tensor::size() is a Dim.
[[nodiscard]] Tensor size(const Tensor& x, DType dtype = int32);
/// Returns the value of x and blocks gradients. As tf.stop_gradient.
[[nodiscard]] Tensor stop_gradient(const Tensor& x);

/// Joins tensors along an existing axis. As tf.concat.
[[nodiscard]] Tensor concat(TensorList tensors, std::int64_t axis);
/// The same, with the axis as an option.
[[nodiscard]] inline Tensor concat(TensorList tensors, const AxisOptions& options) {
  return concat(tensors, options.axis);
}
/// Joins tensors of one shape along a new axis. As tf.stack.
[[nodiscard]] Tensor stack(TensorList tensors, std::int64_t axis = 0);
/// The same, with the axis as an option.
[[nodiscard]] inline Tensor stack(TensorList tensors, const AxisOptions& options) {
  return stack(tensors, options.axis);
}
/// @{
/// The inverse of concat(): splits `axis` into `parts` equal parts, or into parts of the given
/// sizes. As tf.split.
[[nodiscard]] std::vector<Tensor> split(const Tensor& x, std::int64_t parts,
                                        const AxisOptions& options);
[[nodiscard]] std::vector<Tensor> split(const Tensor& x, const std::vector<Dim>& sizes,
                                        std::int64_t axis = 0);
template <detail::Integer Size>
[[nodiscard]] std::vector<Tensor> split(const Tensor& x, const std::vector<Size>& sizes,
                                        std::int64_t axis = 0) {
  return split(x, std::vector<Dim>(sizes.begin(), sizes.end()), axis);
}
[[nodiscard]] inline std::vector<Tensor> split(const Tensor& x, const std::vector<Dim>& sizes,
                                               const AxisOptions& options) {
  return split(x, sizes, options.axis);
}
/// @}
/// Equal parts, as tf.split and numpy.split. torch.split has the same arguments, and takes the size
/// of a part: the compiler warns.
template <detail::Integer Parts>
[[deprecated(
    "split(x, n, axis) makes n equal parts, as TensorFlow and NumPy; torch.split makes parts of n "
    "positions: write split(x, n, {.axis = axis}) for n parts, or x.split(n, axis) for parts of n "
    "positions")]] [[nodiscard]] std::vector<Tensor>
split(const Tensor& x, Parts parts, std::int64_t axis = 0) {
  return split(x, static_cast<std::int64_t>(parts), AxisOptions{.axis = axis});
}
/// The inverse of stack(): removes `axis` and returns one tensor per index of it. As tf.unstack.
[[nodiscard]] std::vector<Tensor> unstack(const Tensor& x, std::int64_t axis = 0);
/// The same, with the axis as an option.
[[nodiscard]] inline std::vector<Tensor> unstack(const Tensor& x, const AxisOptions& options) {
  return unstack(x, options.axis);
}

/// Returns the part that starts at `begin` and has `size` elements along each axis (-1: up to the
/// end). Shares storage if only the first axis is cut. As tf.slice.
[[nodiscard]] Tensor slice(const Tensor& x, const Sizes& begin, const Sizes& size);
/// Returns rows [begin, end) of the first axis. Shares storage.
[[nodiscard]] Tensor slice_rows(const Tensor& x, Dim begin, Dim end);

/// @{
/// Adds elements of `value` before and after each axis; `paddings` has one pair (before, after) per
/// axis. As tf.pad with mode CONSTANT.
[[nodiscard]] Tensor pad(const Tensor& x, const std::vector<std::pair<Dim, Dim>>& paddings,
                         double value = 0.0);
template <detail::Integer Size>
[[nodiscard]] Tensor pad(const Tensor& x, const std::vector<std::pair<Size, Size>>& paddings,
                         double value = 0.0) {
  return pad(x, std::vector<std::pair<Dim, Dim>>(paddings.begin(), paddings.end()), value);
}
/// @}
/// Repeats x `multiples[i]` times along axis i. As tf.tile.
[[nodiscard]] Tensor tile(const Tensor& x, const Sizes& multiples);
/// Reverses the order of the elements along the given axes. As tf.reverse.
[[nodiscard]] Tensor reverse(const Tensor& x, const Dims& axes);

/// Gathers slices of `params` along `axis` at `indices` (int32 or int64, any shape). The result's
/// shape is params.shape[:axis] + indices.shape + params.shape[axis+1:]. Throws
/// InvalidArgumentError for an index out of range and names it. As tf.gather.
[[nodiscard]] Tensor gather(const Tensor& params, const Tensor& indices, std::int64_t axis = 0);
/// The same, with the axis as an option.
[[nodiscard]] inline Tensor gather(const Tensor& params, const Tensor& indices,
                                   const AxisOptions& options) {
  return gather(params, indices, options.axis);
}
/// The parts of x for which the bool `mask` is true: the mask's shape is that of x's leading axes,
/// which become one axis. Reads the mask, so that it throws FailedPreconditionError while a
/// function is traced. As tf.boolean_mask.
[[nodiscard]] Tensor boolean_mask(const Tensor& x, const Tensor& mask);
/// One element per index: result[i][j] = x[indices[i][j]][j] for axis 0, x[i][indices[i][j]] for
/// axis 1 of a matrix. `indices` has int32 or int64 elements of [0, size of the axis), the rank of
/// x, and along other axes at most its sizes, the first of which may be unknown while a function is
/// traced. Throws ShapeError for other shapes, and InvalidArgumentError for an index out of range.
/// Differentiable with respect to x. As torch.gather.
[[nodiscard]] Tensor gather(const Tensor& x, std::int64_t axis, const Tensor& indices);
/// The same, with indices that are broadcast along the other axes. As numpy.take_along_axis.
[[nodiscard]] Tensor take_along_axis(const Tensor& x, const Tensor& indices, std::int64_t axis);
/// Moves the elements along `axis` by `shift` positions; those that leave at one end enter at the
/// other. Throws ShapeError for an axis of a size that is not known. As torch.roll and tf.roll.
[[nodiscard]] Tensor roll(const Tensor& x, std::int64_t shift, std::int64_t axis);
/// Options of one_hot().
struct OneHotOptions {
  double on = 1.0;        ///< value at the index
  double off = 0.0;       ///< value elsewhere
  DType dtype = float32;  ///< dtype of the result; must be able to hold both values
};
/// Returns indices.shape + [depth] with `on` at each index and `off` elsewhere; an index outside
/// [0, depth) gives a row of `off`. Throws InvalidArgumentError if the dtype cannot hold `on` or
/// `off`. As tf.one_hot.
[[nodiscard]] Tensor one_hot(const Tensor& indices, Dim depth, const OneHotOptions& options = {});

/// Writes a tensor and a newline to the standard output, as operator<< does. As tf.print.
void print(const Tensor& x);
/// Writes text, numbers and tensors with spaces between, and a newline. As tf.print.
template <class... Items>
requires(sizeof...(Items) > 1 || !(std::convertible_to<const Items&, const Tensor&> &&
                                   ...)) void print(const Items&... items) {
  std::ostringstream line;
  std::size_t written = 0;
  ((line << (written++ > 0 ? " " : "") << items), ...);
  detail::print_line(line.str());
}

}  // namespace tandem
