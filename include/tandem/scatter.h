/// @file
/// Operations that gather and add slices at positions of several axes or by segment, and those that
/// find positions. As in TensorFlow.
#pragma once

#include <concepts>
#include <cstdint>
#include <ostream>
#include <string_view>
#include <vector>

#include "tandem/tensor.h"

namespace tandem {

/// The elements or slices of `params` at positions of its leading axes: `indices`, [..., k], has
/// int32 or int64 positions of the first k axes, of which the result has one slice each:
/// indices.shape[:-1] + params.shape[k:]. Sizes of these axes but the first must be known. Throws
/// ShapeError for indices that do not fit, and InvalidArgumentError for a position out of range.
/// Differentiable with respect to `params`. As tf.gather_nd.
[[nodiscard]] Tensor gather_nd(const Tensor& params, const Tensor& indices);
/// Zeros of `shape`, which must be known, to which the slices of `updates` are added at the
/// positions of `indices`, as gather_nd() takes them: the sum of all where positions repeat.
/// `updates`: indices.shape[:-1] + shape[k:], floating-point or int32 (DTypeError otherwise).
/// Throws as gather_nd(). Differentiable with respect to `updates`. As tf.scatter_nd.
[[nodiscard]] Tensor scatter_nd(const Tensor& indices, const Tensor& updates, const Shape& shape);
/// x plus scatter_nd(indices, updates, x.shape()). As tf.tensor_scatter_nd_add.
[[nodiscard]] Tensor tensor_scatter_nd_add(const Tensor& x, const Tensor& indices,
                                           const Tensor& updates);
/// x with the slices of `updates` at the positions of `indices`, each of which may occur once:
/// throws InvalidArgumentError for one that repeats, where TensorFlow takes any of its updates.
/// Reads the indices, so that it throws FailedPreconditionError while a function is traced.
/// Differentiable with respect to x and `updates`. As tf.tensor_scatter_nd_update.
[[nodiscard]] Tensor tensor_scatter_nd_update(const Tensor& x, const Tensor& indices,
                                              const Tensor& updates);

/// @{
/// x with the elements of `source`, or `value`, at positions along `axis`: element (i, j) of
/// `source` goes to (indices[i][j], j) for axis 0 of a matrix, to (i, indices[i][j]) for axis 1.
/// `indices` has int32 or int64 elements and the rank of x; along other axes it has at most the
/// sizes of x, along all at most those of `source`, of which the rest is not used. Where positions
/// repeat, the last element in row-major order stays. Sizes of x but the first must be known.
/// Throws ShapeError for other shapes and InvalidArgumentError for a position out of range.
/// Differentiable with respect to x and `source`. Runs on the host. As torch.scatter.
[[nodiscard]] Tensor scatter(const Tensor& x, std::int64_t axis, const Tensor& indices,
                             const Tensor& source);
[[nodiscard]] Tensor scatter(const Tensor& x, std::int64_t axis, const Tensor& indices,
                             double value);
/// @}
/// x plus the elements of `source` at positions along `axis`, as scatter() takes them: sums where
/// positions repeat. As torch.scatter_add.
[[nodiscard]] Tensor scatter_add(const Tensor& x, std::int64_t axis, const Tensor& indices,
                                 const Tensor& source);
/// The elements of x combined with those of `source` at positions along `axis`, as scatter() takes
/// them: their "sum", "prod", "mean", "amax" or "amin", with the element of x among them if
/// `include_self`. Equal extremes share the gradient. Throws InvalidArgumentError for another name.
/// As torch.scatter_reduce.
[[nodiscard]] Tensor scatter_reduce(const Tensor& x, std::int64_t axis, const Tensor& indices,
                                    const Tensor& source, std::string_view reduce,
                                    bool include_self = true);
/// x with the slices of `source` along `axis` at the positions of `indices`, a vector with one for
/// each: the last one of equal positions. As torch.index_copy.
[[nodiscard]] Tensor index_copy(const Tensor& x, std::int64_t axis, const Tensor& indices,
                                const Tensor& source);
/// x with `values` at positions along its first axes: one of `indices`, of int32 or int64, is for
/// each of these axes, they broadcast, and negative ones count from the end. `values` broadcast to
/// the shape of the indices and the further axes of x. Where positions repeat, the last element
/// stays, or with `accumulate` all are added to x. Throws ShapeError for other shapes and
/// InvalidArgumentError for a position out of range. Takes no masks: see where(). Runs on the host.
/// As torch.index_put.
[[nodiscard]] Tensor index_put(const Tensor& x, TensorList indices, const Tensor& values,
                               bool accumulate = false);
/// The slices of x combined with those of `source`, as scatter_reduce(). As torch.index_reduce.
[[nodiscard]] Tensor index_reduce(const Tensor& x, std::int64_t axis, const Tensor& indices,
                                  const Tensor& source, std::string_view reduce,
                                  bool include_self = true);

/// The sums of the slices of x along its first axis that have the same number in `segment_ids`, a
/// vector of int32 or int64 in any order: [num_segments] + x.shape[1:], with zeros for a segment
/// without slices. Slices with a negative number are left out. x is floating-point or int32
/// (DTypeError otherwise). Throws InvalidArgumentError for a number of num_segments or more.
/// Differentiable with respect to x. As tf.math.unsorted_segment_sum.
[[nodiscard]] Tensor unsorted_segment_sum(const Tensor& x, const Tensor& segment_ids,
                                          Dim num_segments);
/// The same sums divided by the number of slices; 0 for a segment without slices. x is
/// floating-point. As tf.math.unsorted_segment_mean.
[[nodiscard]] Tensor unsorted_segment_mean(const Tensor& x, const Tensor& segment_ids,
                                           Dim num_segments);
/// @{
/// The same for numbers that are sorted, with as many segments as the last number says, which is
/// read: throws FailedPreconditionError while a function is traced. Throws InvalidArgumentError for
/// numbers that are negative or not sorted. As tf.math.segment_sum and segment_mean.
[[nodiscard]] Tensor segment_sum(const Tensor& x, const Tensor& segment_ids);
[[nodiscard]] Tensor segment_mean(const Tensor& x, const Tensor& segment_ids);
/// @}
/// How often each number of [0, length) occurs in x, which is an integer vector without negative
/// numbers; `length` is at least `minlength`, and the largest number plus 1. An int32 vector. Reads
/// x, as do the functions below: they throw FailedPreconditionError while a function is traced. As
/// tf.math.bincount.
[[nodiscard]] Tensor bincount(const Tensor& x, std::int64_t minlength = 0);

/// The different elements of a vector, and where each element of it is among them. It is no tensor,
/// because the order of the values is TensorFlow's, not NumPy's.
struct UniqueElements {
  Tensor y{};    ///< the different elements, in the order in which they first occur
  Tensor idx{};  ///< x[i] is y[idx[i]]; int32
  /// Does not compile: the values are not sorted.
  template <class T>
  operator T() const {  // NOLINT: refused
    static_assert(
        detail::kNever<T>,
        "unique() gives the elements in their order, and positions: write auto [y, idx] = "
        "unique(x), and for NumPy's and PyTorch's sorted elements sort(unique(x).y).values");
  }
  /// Does not compile, likewise.
  template <class Unique>
  requires std::same_as<Unique, UniqueElements>
  friend std::ostream& operator<<(std::ostream& out, const Unique&) {
    static_assert(
        detail::kNever<Unique>,
        "unique() gives the elements in their order, and positions: write auto [y, idx] = "
        "unique(x), and for NumPy's and PyTorch's sorted elements sort(unique(x).y).values");
    return out;
  }
};
/// The different elements of a vector. Throws ShapeError for another rank. As tf.unique.
[[nodiscard]] UniqueElements unique(const Tensor& x);
/// The positions of the elements of x that are not 0 or false, [n, rank], in row-major order;
/// int64. As torch.nonzero and tf.where with one argument; NumPy returns a vector per axis.
[[nodiscard]] Tensor nonzero(const Tensor& x);
/// Options of meshgrid().
struct MeshgridOptions {
  /// "xy": the first vector runs along axis 1, as in TensorFlow and NumPy. "ij": along axis 0, as
  /// PyTorch's default.
  std::string_view indexing{};
};
/// For each vector a tensor of all combinations of their elements, in which it runs along an axis
/// of its own. `indexing` must be given, because the originals differ: InvalidArgumentError. As
/// tf.meshgrid and torch.meshgrid.
[[nodiscard]] std::vector<Tensor> meshgrid(TensorList vectors, const MeshgridOptions& options);
/// The same with `indexing` as an argument.
[[nodiscard]] inline std::vector<Tensor> meshgrid(TensorList vectors, std::string_view indexing) {
  return meshgrid(vectors, MeshgridOptions{.indexing = indexing});
}
/// Does not compile: the order of the axes must be given.
template <class Unused = void>
std::vector<Tensor> meshgrid(TensorList) {
  static_assert(detail::kNever<Unused>,
                "meshgrid() of TensorFlow and NumPy is \"xy\", that of PyTorch \"ij\": write "
                "meshgrid({x, y}, {.indexing = \"xy\"}) or \"ij\"");
  return {};
}

}  // namespace tandem
