/// @file
/// Inverse trigonometric functions, the gamma function and its relatives, and windows of signals,
/// made of the operations of tandem/math.h: they have gradients, also of higher orders, and run on
/// all devices and in traced functions. As PyTorch and SciPy.
#pragma once

#include <cstdint>
#include <vector>

#include "tandem/creation.h"
#include "tandem/tensor.h"

namespace tandem {

// --- element by element; floating-point ---
[[nodiscard]] Tensor asin(const Tensor& x);  ///< inverse of sin(), in [-pi/2, pi/2]
[[nodiscard]] Tensor acos(const Tensor& x);  ///< inverse of cos(), in [0, pi]
[[nodiscard]] Tensor atan(const Tensor& x);  ///< inverse of tan(), in [-pi/2, pi/2]
/// The angle of the vector (x, y) to the first axis, in [-pi, pi], whose sign is that of y. As
/// torch.atan2.
[[nodiscard]] Tensor atan2(const Tensor& y, const Tensor& x);
/// The inverse of erf(); infinite at -1 and 1. Computed in double precision, as are those below. As
/// torch.erfinv.
[[nodiscard]] Tensor erfinv(const Tensor& x);
/// The logarithm of the absolute value of the gamma function; infinite at 0, -1, -2, ... As
/// torch.lgamma.
[[nodiscard]] Tensor lgamma(const Tensor& x);
/// The derivative of lgamma(); infinite at 0, and NaN at -1, -2, ... As torch.digamma.
[[nodiscard]] Tensor digamma(const Tensor& x);
/// The n-th derivative of digamma(). Throws InvalidArgumentError for a negative n. As
/// torch.polygamma.
[[nodiscard]] Tensor polygamma(std::int64_t n, const Tensor& x);
/// The logarithm of the multivariate gamma function of dimension `p`, for x above (p - 1) / 2.
/// Throws InvalidArgumentError for a p below 1. As torch.mvlgamma.
[[nodiscard]] Tensor mvlgamma(const Tensor& x, std::int64_t p);

/// Windows of `size` points, symmetric, or with `sym` = false one period of a longer one. Throw
/// InvalidArgumentError for a negative size. As torch.signal.windows.
namespace windows {
/// Options of windows.
struct WindowOptions {
  bool sym = true;        ///< whether the last point equals the first one
  DType dtype = float32;  ///< floating-point
};
/// @{
/// Sums of cosines: sum of a[i] * (-1)^i * cos(2 pi i t) for t in [0, 1].
[[nodiscard]] Tensor general_cosine(std::int64_t size, const std::vector<double>& a,
                                    const WindowOptions& options = {});
[[nodiscard]] Tensor general_hamming(std::int64_t size, double alpha = 0.54,
                                     const WindowOptions& options = {});
[[nodiscard]] Tensor hamming(std::int64_t size, const WindowOptions& options = {});
[[nodiscard]] Tensor hann(std::int64_t size, const WindowOptions& options = {});
[[nodiscard]] Tensor blackman(std::int64_t size, const WindowOptions& options = {});
[[nodiscard]] Tensor nuttall(std::int64_t size, const WindowOptions& options = {});
/// @}
[[nodiscard]] Tensor bartlett(std::int64_t size,
                              const WindowOptions& options = {});                   ///< a triangle
[[nodiscard]] Tensor cosine(std::int64_t size, const WindowOptions& options = {});  ///< half a sine
/// exp(-|t - center| / tau), where the center is the middle.
[[nodiscard]] Tensor exponential(std::int64_t size, double tau = 1.0,
                                 const WindowOptions& options = {});
/// exp(-((t - middle) / deviation)^2 / 2).
[[nodiscard]] Tensor gaussian(std::int64_t size, double deviation = 1.0,
                              const WindowOptions& options = {});
/// I0(beta * sqrt(1 - u^2)) / I0(beta) for u in [-1, 1], where I0 is a Bessel function.
[[nodiscard]] Tensor kaiser(std::int64_t size, double beta = 12.0,
                            const WindowOptions& options = {});
}  // namespace windows

}  // namespace tandem
