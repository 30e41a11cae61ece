/// @file
/// More ways to join, cut, turn and overwrite tensors, made of the operations of tandem/array.h:
/// they have gradients, and run on all devices and in traced functions. As PyTorch and NumPy.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "tandem/array.h"
#include "tandem/tensor.h"

namespace tandem {

// --- joining ---
/// @{
/// x with axes of size 1 up to this rank: a vector becomes a row, and of a volume [1, n, 1]; a
/// matrix [m, n, 1]. As torch.atleast_1d.
[[nodiscard]] Tensor atleast_1d(const Tensor& x);
[[nodiscard]] Tensor atleast_2d(const Tensor& x);
[[nodiscard]] Tensor atleast_3d(const Tensor& x);
/// @}
/// @{
/// Joins the tensors, after atleast_1d(), atleast_2d() or atleast_3d(), along axis 1 (vectors: 0),
/// 0 and 2. As torch.hstack, vstack and dstack.
[[nodiscard]] Tensor hstack(TensorList tensors);
[[nodiscard]] Tensor vstack(TensorList tensors);
[[nodiscard]] Tensor dstack(TensorList tensors);
/// @}
/// Joins the tensors along axis 1, vectors as columns. As torch.column_stack.
[[nodiscard]] Tensor column_stack(TensorList tensors);
/// The matrices along the diagonal of one, with zeros around them; vectors are rows, scalars 1 x 1.
/// Throws ShapeError for more axes. As torch.block_diag.
[[nodiscard]] Tensor block_diag(TensorList matrices);

// --- cutting ---
/// @{
/// `parts` parts of `axis`, the first ones larger by 1 if the size does not divide; or the parts
/// between `positions`, which may lie outside and then leave nothing.
/// Throws InvalidArgumentError for less than 1 part. As torch.tensor_split.
[[nodiscard]] std::vector<Tensor> tensor_split(const Tensor& x, std::int64_t parts,
                                               std::int64_t axis = 0);
[[nodiscard]] std::vector<Tensor> tensor_split(const Tensor& x,
                                               const std::vector<std::int64_t>& positions,
                                               std::int64_t axis = 0);
/// @}
/// Axis `axis` as axes of these sizes, of which one may be -1. As torch.unflatten.
[[nodiscard]] Tensor unflatten(const Tensor& x, std::int64_t axis, const Dims& sizes);
/// Windows of `size` positions of `axis`, one every `step` positions, as a last axis; `axis` has
/// the number of windows. Throws InvalidArgumentError for a window that does not fit and for a
/// step below 1. As torch.Tensor.unfold.
[[nodiscard]] Tensor unfold(const Tensor& x, std::int64_t axis, std::int64_t size,
                            std::int64_t step);

// --- turning ---
/// Moves the axes `from` to the places `to`; the others keep their order. Throws
/// InvalidArgumentError for lists of different lengths or with an axis twice. As torch.movedim.
[[nodiscard]] Tensor movedim(const Tensor& x, const Dims& from, const Dims& to);
/// The same of one axis.
[[nodiscard]] inline Tensor movedim(const Tensor& x, std::int64_t from, std::int64_t to) {
  return movedim(x, Dims{from}, Dims{to});
}
/// Turns the matrices of axes `first` and `second` by `times` quarters, from the first toward the
/// second axis. Throws InvalidArgumentError for equal axes. As torch.rot90.
[[nodiscard]] Tensor rot90(const Tensor& x, std::int64_t times = 1, std::int64_t first = 0,
                           std::int64_t second = 1);

// --- positions ---
/// @{
/// The positions of the elements of a matrix on and below, or on and above, the diagonal `offset`:
/// a row of rows and one of columns, in row-major order; int64. As torch.tril_indices.
[[nodiscard]] Tensor tril_indices(std::int64_t rows, std::int64_t columns, std::int64_t offset = 0);
[[nodiscard]] Tensor triu_indices(std::int64_t rows, std::int64_t columns, std::int64_t offset = 0);
/// @}
/// All combinations of one element of each vector, a row each; of one vector that vector. As
/// torch.cartesian_prod.
[[nodiscard]] Tensor cartesian_prod(TensorList vectors);
/// All choices of `count` elements of a vector, in the order of their positions, or with
/// `repeated` elements. As torch.combinations.
[[nodiscard]] Tensor combinations(const Tensor& x, std::int64_t count = 2, bool repeated = false);
/// The elements of x, which is taken for a vector, at these positions; negative ones count from the
/// end. As torch.take.
[[nodiscard]] Tensor take(const Tensor& x, const Tensor& indices);

// --- overwriting ---
/// x with the slice at `index` of `axis` replaced by `source`, of the shape of x without that axis.
/// As torch.select_scatter.
[[nodiscard]] Tensor select_scatter(const Tensor& x, const Tensor& source, std::int64_t axis,
                                    std::int64_t index);
/// x with positions start, start + step, ... before `stop` of `axis` replaced by `source`. As
/// torch.slice_scatter.
[[nodiscard]] Tensor slice_scatter(const Tensor& x, const Tensor& source, std::int64_t axis,
                                   const Slice& range);
/// x, a matrix or a batch [..., m, n] of them, with `source`, [..., k], on the diagonal `offset`.
/// As torch.diagonal_scatter with dim1 = -2 and dim2 = -1.
[[nodiscard]] Tensor diagonal_scatter(const Tensor& x, const Tensor& source,
                                      std::int64_t offset = 0);
/// x with `value` at the positions of `axis` that the vector `indices` has. As torch.index_fill.
[[nodiscard]] Tensor index_fill(const Tensor& x, std::int64_t axis, const Tensor& indices,
                                double value);

}  // namespace tandem
