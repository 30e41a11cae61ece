/// @file
/// More elementary functions, scans along an axis, products of tensors and searches, made of the
/// operations of tandem/math.h and tandem/array.h: they have gradients, and run on all devices and
/// in traced functions. As PyTorch and NumPy.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "tandem/array.h"
#include "tandem/math.h"
#include "tandem/tensor.h"

namespace tandem {

// --- element by element; floating-point ---
[[nodiscard]] Tensor sinh(const Tensor& x);   ///< hyperbolic sine
[[nodiscard]] Tensor cosh(const Tensor& x);   ///< hyperbolic cosine
[[nodiscard]] Tensor asinh(const Tensor& x);  ///< inverse of sinh()
[[nodiscard]] Tensor acosh(const Tensor& x);  ///< inverse of cosh(), 0 or more; NaN below 1
[[nodiscard]] Tensor atanh(const Tensor& x);  ///< inverse of tanh(); NaN outside [-1, 1]
[[nodiscard]] Tensor exp2(const Tensor& x);   ///< 2 to the power of x
[[nodiscard]] Tensor sinc(const Tensor& x);   ///< sin(pi x) / (pi x), and 1 at 0
/// Log(x / (1 - x)), the inverse of sigmoid(). With eps x is limited to [eps, 1 - eps] first. As
/// torch.logit.
[[nodiscard]] Tensor logit(const Tensor& x, std::optional<double> eps = std::nullopt);
/// Rounded toward 0. No gradient.
[[nodiscard]] Tensor trunc(const Tensor& x);
[[nodiscard]] Tensor frac(const Tensor& x);  ///< x - trunc(x)
/// sqrt(a^2 + b^2) without overflow.
[[nodiscard]] Tensor hypot(const Tensor& a, const Tensor& b);
/// @{
/// log(exp(a) + exp(b)) without overflow, and the same of base 2.
[[nodiscard]] Tensor logaddexp(const Tensor& a, const Tensor& b);
[[nodiscard]] Tensor logaddexp2(const Tensor& a, const Tensor& b);
/// @}
/// a * log(b), and 0 where a is 0 and b is no NaN. As torch.xlogy.
[[nodiscard]] Tensor xlogy(const Tensor& a, const Tensor& b);
/// The remainder of a / b with the sign of a; floor_mod() has that of b. As torch.fmod.
[[nodiscard]] Tensor fmod(const Tensor& a, const Tensor& b);
/// x with `nan` for NaN, and the largest and the lowest number of the dtype, or these, for
/// infinities. As torch.nan_to_num.
[[nodiscard]] Tensor nan_to_num(const Tensor& x, double nan = 0.0,
                                std::optional<double> posinf = std::nullopt,
                                std::optional<double> neginf = std::nullopt);
/// @{
/// The larger and the smaller one, or the one that is no NaN. As torch.fmax and fmin.
[[nodiscard]] Tensor fmax(const Tensor& a, const Tensor& b);
[[nodiscard]] Tensor fmin(const Tensor& a, const Tensor& b);
/// @}
[[nodiscard]] Tensor signbit(const Tensor& x);  ///< whether x is below 0, or -0; bool
/// |a| with the sign of b, also of -0. No gradient with respect to b. As torch.copysign.
[[nodiscard]] Tensor copysign(const Tensor& a, const Tensor& b);
/// 0 below 0 and for NaN, `values` at 0, and 1 above. As torch.heaviside.
[[nodiscard]] Tensor heaviside(const Tensor& x, const Tensor& values);
[[nodiscard]] Tensor deg2rad(const Tensor& x);   ///< x * pi / 180
[[nodiscard]] Tensor rad2deg(const Tensor& x);   ///< x * 180 / pi
[[nodiscard]] Tensor isposinf(const Tensor& x);  ///< whether x is infinity; bool
[[nodiscard]] Tensor isneginf(const Tensor& x);  ///< whether x is -infinity; bool
/// x * 2^exponent. As torch.ldexp.
[[nodiscard]] Tensor ldexp(const Tensor& x, const Tensor& exponent);
/// a to the power of b in float64, of any dtypes. As torch.float_power.
[[nodiscard]] Tensor float_power(const Tensor& a, const Tensor& b);
/// a * log(1 + b), and 0 where a is 0 and b is no NaN. As torch.special.xlog1py.
[[nodiscard]] Tensor xlog1py(const Tensor& a, const Tensor& b);
/// -x * log(x), 0 at 0 and -infinity below. As torch.special.entr.
[[nodiscard]] Tensor entr(const Tensor& x);
/// Rounded to this many decimals, or with a negative number to tens, hundreds, ... No gradient. As
/// torch.round.
[[nodiscard]] Tensor round(const Tensor& x, std::int64_t decimals);
/// a + (b - a) * weight. As torch.lerp.
[[nodiscard]] Tensor lerp(const Tensor& a, const Tensor& b, const Tensor& weight);
/// x + value * a * b. As torch.addcmul.
[[nodiscard]] Tensor addcmul(const Tensor& x, const Tensor& a, const Tensor& b, double value = 1.0);
/// x + value * a / b. As torch.addcdiv.
[[nodiscard]] Tensor addcdiv(const Tensor& x, const Tensor& a, const Tensor& b, double value = 1.0);
/// Exclusive or of bool tensors.
[[nodiscard]] Tensor logical_xor(const Tensor& a, const Tensor& b);
/// Whether |a - b| <= atol + rtol * |b|, element by element; equal infinities are close, NaN is
/// not. As torch.isclose.
[[nodiscard]] Tensor isclose(const Tensor& a, const Tensor& b, double rtol = 1e-5,
                             double atol = 1e-8);

// --- scans: the size of the axis must be known, ShapeError otherwise ---
/// Cumulative product along `axis`. Its gradient holds for zeros, too. As torch.cumprod.
[[nodiscard]] Tensor cumprod(const Tensor& x, std::int64_t axis);
/// @{
/// The largest or smallest element so far along `axis`, and its position (int64): the last one of
/// equals, and the first NaN. As torch.cummax and cummin.
[[nodiscard]] ValuesAndIndices cummax(const Tensor& x, std::int64_t axis);
[[nodiscard]] ValuesAndIndices cummin(const Tensor& x, std::int64_t axis);
/// @}
/// The logarithm of the cumulative sum of exp(x), without overflow. As torch.logcumsumexp.
[[nodiscard]] Tensor logcumsumexp(const Tensor& x, std::int64_t axis);
/// Differences of neighbours along `axis`, `n` times. Throws InvalidArgumentError for a negative n.
/// As torch.diff.
[[nodiscard]] Tensor diff(const Tensor& x, std::int64_t n = 1, std::int64_t axis = -1);

// --- products ---
/// The sum of products over `axes_a` of a and `axes_b` of b, as many and of the same sizes: the
/// other axes of a, then those of b. Floating-point. As torch.tensordot.
[[nodiscard]] Tensor tensordot(const Tensor& a, const Tensor& b,
                               const std::vector<std::int64_t>& axes_a,
                               const std::vector<std::int64_t>& axes_b);
/// The same over the last `axes` of a and the first of b.
[[nodiscard]] Tensor tensordot(const Tensor& a, const Tensor& b, std::int64_t axes = 2);
/// @{
/// beta * x + alpha * the product: of two matrices, of matrix and vector, of two vectors as column
/// and row, of batches of matrices, and the sum of these. x broadcasts to the result; with a beta
/// of 0 it is not read. As torch.addmm, addmv, addr, baddbmm and addbmm.
[[nodiscard]] Tensor addmm(const Tensor& x, const Tensor& a, const Tensor& b, double beta,
                           double alpha = 1.0);
[[nodiscard]] Tensor addmv(const Tensor& x, const Tensor& a, const Tensor& b, double beta = 1.0,
                           double alpha = 1.0);
[[nodiscard]] Tensor addr(const Tensor& x, const Tensor& a, const Tensor& b, double beta = 1.0,
                          double alpha = 1.0);
[[nodiscard]] Tensor baddbmm(const Tensor& x, const Tensor& a, const Tensor& b, double beta = 1.0,
                             double alpha = 1.0);
[[nodiscard]] Tensor addbmm(const Tensor& x, const Tensor& a, const Tensor& b, double beta = 1.0,
                            double alpha = 1.0);
/// @}
/// The sums of products over the last axes: [..., n] and [..., n], all axes but the last of a, then
/// those of b. A scalar is a factor. As torch.inner.
[[nodiscard]] Tensor inner(const Tensor& a, const Tensor& b);
/// The Kronecker product: every element of a times b, in blocks. Missing leading axes have size 1.
/// As torch.kron.
[[nodiscard]] Tensor kron(const Tensor& a, const Tensor& b);
/// The cross product along an axis of size 3; other axes broadcast. Throws ShapeError for another
/// size. As torch.linalg.cross.
[[nodiscard]] Tensor cross(const Tensor& a, const Tensor& b, std::int64_t axis = -1);
/// The p-norms of all differences of rows: [..., m, d] and [..., n, d] give [..., m, n]. The
/// gradient of a distance of 0 is 0. Throws InvalidArgumentError for a p that is not positive. As
/// torch.cdist.
[[nodiscard]] Tensor cdist(const Tensor& a, const Tensor& b, double p = 2.0);
/// Matrices with the last axis of x on a diagonal, and zeros: 0 is the main one, positive ones are
/// above it. As torch.diag_embed.
[[nodiscard]] Tensor diag_embed(const Tensor& x, std::int64_t offset = 0);

// --- positions ---
/// Each element along `axis` `repeats` times. As torch.repeat_interleave.
[[nodiscard]] Tensor repeat_interleave(const Tensor& x, std::int64_t repeats, std::int64_t axis);
/// For each of `values` the position in `sorted`, an ascending vector, before which it keeps the
/// order: the first one whose element is not below it, or with `right` the first one whose element
/// is above it; its size for NaN. int64, of the shape of `values`. As
/// torch.searchsorted; torch.bucketize has the arguments in the other order.
[[nodiscard]] Tensor searchsorted(const Tensor& sorted, const Tensor& values, bool right = false);
/// x with the slices of `source` along `axis` added at the positions of `indices`, a vector with
/// one per slice: sums where they repeat. The sizes of x must be known. As torch.index_add.
[[nodiscard]] Tensor index_add(const Tensor& x, std::int64_t axis, const Tensor& indices,
                               const Tensor& source);

}  // namespace tandem
