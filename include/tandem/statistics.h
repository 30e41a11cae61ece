/// @file
/// Order statistics, sums that leave NaN out, and other descriptions of data, made of the
/// operations of tandem/math.h: they have gradients, and run in traced functions. As PyTorch and
/// NumPy.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include "tandem/math.h"
#include "tandem/tensor.h"

namespace tandem {

// --- order statistics: NaN counts as largest unless it says otherwise ---
/// @{
/// The median along `axis`, the lower one of two, and its position (int64); NaN, and the position
/// of the first one, if there is one. Throws InvalidArgumentError for an axis of size 0.
/// The second form: of all elements. As torch.median; numpy.median takes the mean of
/// the two.
[[nodiscard]] ValuesAndIndices median(const Tensor& x, std::int64_t axis, bool keepdims = false);
[[nodiscard]] Tensor median(const Tensor& x);
/// @}
/// @{
/// The same of the elements that are no NaN; NaN if all are. As torch.nanmedian.
[[nodiscard]] ValuesAndIndices nanmedian(const Tensor& x, std::int64_t axis, bool keepdims = false);
[[nodiscard]] Tensor nanmedian(const Tensor& x);
/// @}
/// The `k`-th smallest element along `axis`, from 1 on, and its position. Throws
/// InvalidArgumentError for another k. As torch.kthvalue.
[[nodiscard]] ValuesAndIndices kthvalue(const Tensor& x, std::int64_t k, std::int64_t axis = -1,
                                        bool keepdims = false);
/// The most frequent element along `axis`, the smallest of several, and the position of its last
/// occurrence. Throws InvalidArgumentError for an axis of size 0. As
/// torch.mode.
[[nodiscard]] ValuesAndIndices mode(const Tensor& x, std::int64_t axis = -1, bool keepdims = false);
/// Options of quantile() and nanquantile(). As the arguments of torch.quantile.
struct QuantileOptions {
  std::optional<std::int64_t> axis{};  ///< default: all elements
  bool keepdims = false;               ///< whether to keep reduced axes with size 1
  /// The result between two elements: "linear", "lower", "higher", "nearest" or "midpoint".
  std::string_view interpolation = "linear";
};
/// @{
/// The elements below which the fractions `q` of [0, 1] of the elements lie, a number or a vector
/// of x's dtype, whose axis comes first. NaN where there is one; nanquantile() leaves them out.
/// Throws InvalidArgumentError for an axis of size 0, for a number outside of [0, 1], and for
/// another name. Floating-point. As torch.quantile.
[[nodiscard]] Tensor quantile(const Tensor& x, const Tensor& q,
                              const QuantileOptions& options = {});
[[nodiscard]] Tensor quantile(const Tensor& x, double q, const QuantileOptions& options = {});
[[nodiscard]] Tensor nanquantile(const Tensor& x, const Tensor& q,
                                 const QuantileOptions& options = {});
[[nodiscard]] Tensor nanquantile(const Tensor& x, double q, const QuantileOptions& options = {});
/// @}

// --- reductions ---
/// @{
/// Sum and mean of the elements that are no NaN. As torch.nansum and nanmean.
[[nodiscard]] Tensor nansum(const Tensor& x, const ReduceOptions& options = {});
[[nodiscard]] Tensor nanmean(const Tensor& x, const ReduceOptions& options = {});
/// @}
/// The number of elements that are not 0 or false; int64. As torch.count_nonzero.
[[nodiscard]] Tensor count_nonzero(const Tensor& x, const ReduceOptions& options = {});
/// The norm of order p of a - b, which broadcast. As torch.dist.
[[nodiscard]] Tensor dist(const Tensor& a, const Tensor& b, double p = 2.0);
/// x with each slice along `axis` scaled down to a norm of order `p` of at most `max_norm`. As
/// torch.renorm.
[[nodiscard]] Tensor renorm(const Tensor& x, double p, std::int64_t axis, double max_norm);
/// @{
/// The covariance of the rows of a matrix, or of a vector, divided by n - correction, and their
/// correlation; a scalar of one row. Floating-point. As torch.cov and corrcoef.
[[nodiscard]] Tensor cov(const Tensor& x, std::int64_t correction = 1);
[[nodiscard]] Tensor corrcoef(const Tensor& x);
/// @}
/// @{
/// The integral of y along `axis` by the trapezoidal rule, with points `dx` apart, or at the points
/// `x`, a vector or of y's shape. As torch.trapezoid.
[[nodiscard]] Tensor trapezoid(const Tensor& y, double dx = 1.0, std::int64_t axis = -1);
[[nodiscard]] Tensor trapezoid(const Tensor& y, const Tensor& x, std::int64_t axis = -1);
/// @}
/// @{
/// The same up to each point after the first. As torch.cumulative_trapezoid.
[[nodiscard]] Tensor cumulative_trapezoid(const Tensor& y, double dx = 1.0, std::int64_t axis = -1);
[[nodiscard]] Tensor cumulative_trapezoid(const Tensor& y, const Tensor& x, std::int64_t axis = -1);
/// @}

// --- elements ---
/// Whether each element is among those of `among`; bool. As torch.isin.
[[nodiscard]] Tensor isin(const Tensor& elements, const Tensor& among);
/// How many elements of x lie in each of `bins` equal parts of [low, high], the last of which has
/// its end, too; others are left out. The dtype is that of x, which is floating-point. With low =
/// high the range is that of x. Throws InvalidArgumentError for less than 1 part and for a range
/// that ends before it begins. As torch.histc.
[[nodiscard]] Tensor histc(const Tensor& x, std::int64_t bins = 100, double low = 0.0,
                           double high = 0.0);
/// The powers of the elements of x, as columns: `columns` of them, from 0 on if `increasing`, else
/// down to 0. As numpy.vander; torch.linalg.vander is `increasing`.
[[nodiscard]] Tensor vander(const Tensor& x, std::optional<std::int64_t> columns = std::nullopt,
                            bool increasing = false);

}  // namespace tandem
