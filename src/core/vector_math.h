// Elementary functions that vectorise in loops over float: no branches, tables or calls. Errors are
// within 2 ulp (sigmoid: 3). Infinities, NaN, signed zeros and subnormals are handled as in
// <cmath>. The double versions call <cmath>.
//
// The approximations are those of Cephes (S. L. Moshier), and for erf N. Juffa's minimax
// polynomials.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace tandem::vec {

namespace detail {

// exp(x) = scale_low * scale_high * (1 + tail): 1 + tail is exp of the remainder in [-0.35, 0.35],
// and the power of two comes in two factors so that neither leaves the normal range.
struct ExpParts {
  float tail;
  std::int32_t exponent;
};

// REQUIRES: |x| < 2^20, or NaN (which ends up in `tail`).
inline ExpParts exp_parts(float x) {
  constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
  const float shifted = x * 1.44269504088896341f + kRound;
  const float n = shifted - kRound;
  const float r = (x - n * 0.693359375f) - n * -2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  return {p * (r * r) + r,
          std::bit_cast<std::int32_t>(shifted) - std::bit_cast<std::int32_t>(kRound)};
}

inline float power_of_two(std::int32_t exponent) {
  return std::bit_cast<float>((exponent + 127) << 23);
}

}  // namespace detail

inline float exp(float x) {
  // Beyond these the result is infinity, or zero.
  const float low = x < -104.0f ? -104.0f : x;
  const detail::ExpParts parts = detail::exp_parts(low > 89.0f ? 89.0f : low);
  const std::int32_t half = parts.exponent >> 1;
  return (1.0f + parts.tail) * detail::power_of_two(half) *
         detail::power_of_two(parts.exponent - half);
}

inline float expm1(float x) {
  const float low = x < -18.0f ? -18.0f : x;  // -1 to the last bit from there on
  const detail::ExpParts parts = detail::exp_parts(low > 89.0f ? 89.0f : low);
  // 2^n (1 + tail) - 1, with half of 2^n so that it does not overflow before the result does.
  const float half = detail::power_of_two(parts.exponent - 1);
  const float result = (half * parts.tail + (half - 0.5f)) * 2.0f;
  return x == 0.0f ? x : result;
}

inline float log(float x) {
  const bool subnormal = x < std::numeric_limits<float>::min();
  const float scaled = subnormal ? x * 8388608.0f : x;
  // The mantissa in [sqrt(1/2), sqrt(2)) and its exponent.
  const std::uint32_t shifted = std::bit_cast<std::uint32_t>(scaled) - 0x3f3504f3u;
  const std::int32_t exponent = (static_cast<std::int32_t>(shifted) >> 23) - (subnormal ? 23 : 0);
  const float m = std::bit_cast<float>((shifted & 0x007fffffu) + 0x3f3504f3u) - 1.0f;
  const float e = static_cast<float>(exponent);
  const float z = m * m;
  float p = 7.0376836292e-2f;
  p = p * m - 1.1514610310e-1f;
  p = p * m + 1.1676998740e-1f;
  p = p * m - 1.2420140846e-1f;
  p = p * m + 1.4249322787e-1f;
  p = p * m - 1.6668057665e-1f;
  p = p * m + 2.0000714765e-1f;
  p = p * m - 2.4999993993e-1f;
  p = p * m + 3.3333331174e-1f;
  const float tail = p * m * z + e * -2.12194440e-4f - 0.5f * z;
  const float finite = (m + tail) + e * 0.693359375f;
  const float special = x == 0.0f  ? -std::numeric_limits<float>::infinity()
                        : x > 0.0f ? x  // infinity
                                   : std::numeric_limits<float>::quiet_NaN();
  return x > 0.0f && x <= std::numeric_limits<float>::max() ? finite : special;
}

inline float log1p(float x) {
  const float u = 1.0f + x;
  // First-order correction for the rounding of 1 + x.
  const float corrected = log(u) + (x - (u - 1.0f)) / u;
  const bool regular = u > 0.0f && u <= std::numeric_limits<float>::max();
  const float special = log(u);
  const float result = regular ? corrected : special;
  return u == 1.0f ? x : result;
}

inline float tanh(float x) {
  const float a = std::fabs(x);
  const float z = x * x;
  float p = -5.70498872745e-3f;
  p = p * z + 2.06390887954e-2f;
  p = p * z - 5.37397155531e-2f;
  p = p * z + 1.33314422036e-1f;
  p = p * z - 3.33332819422e-1f;
  const float small = p * z * x + x;
  const float large = 1.0f - 2.0f / (exp(2.0f * a) + 1.0f);
  return std::copysign(a < 0.625f ? small : large, x);
}

inline float sigmoid(float x) {
  const float e = exp(-std::fabs(x));
  const float positive = 1.0f / (1.0f + e);
  const float negative = e / (1.0f + e);
  return x < 0.0f ? negative : positive;
}

inline float erf(float x) {
  const float a = std::fabs(x);
  const float s = x * x;
  float near = -5.96761703e-4f;
  near = near * s + 4.99119423e-3f;
  near = near * s - 2.67681349e-2f;
  near = near * s + 1.12819925e-1f;
  near = near * s - 3.76125336e-1f;
  near = near * s + 1.28379166e-1f;
  near = near * x + x;
  const float t = a > 4.0f ? 4.0f : a;  // 1 to the last bit from there on
  const float t2 = t * t;
  float far = -1.72853470e-5f * t + 3.83197126e-4f;
  far = far * t2 + (-3.88396438e-3f * t + 2.42546219e-2f);
  far = far * t - 1.06777877e-1f;
  far = far * t - 6.34846687e-1f;
  far = far * t - 1.28717512e-1f;
  far = far * t - t;
  const float large = std::copysign(1.0f - exp(far), x);
  return a > 0.927734375f ? large : near;
}

inline double exp(double x) { return std::exp(x); }
inline double expm1(double x) { return std::expm1(x); }
inline double log(double x) { return std::log(x); }
inline double log1p(double x) { return std::log1p(x); }
inline double tanh(double x) { return std::tanh(x); }
inline double erf(double x) { return std::erf(x); }
inline double sigmoid(double x) {
  const double e = std::exp(-std::fabs(x));
  return x < 0.0 ? e / (1.0 + e) : 1.0 / (1.0 + e);
}

}  // namespace tandem::vec
