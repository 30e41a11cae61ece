// Elementary functions that vectorise in loops over float: no branches, tables or calls. Errors are
// within 2 ulp (pow: 1, sigmoid: 3, fmod: exact). Infinities, NaN, signed zeros and subnormals are
// handled as in <cmath>. The double versions call <cmath>.
//
// sin and cos use the polynomials of Cephes (S. L. Moshier), and erf those of N. Juffa. The
// others are minimax polynomials.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numbers>

#include "core/multiversion.h"

namespace tandem::vec {

inline constexpr float kInfinity = std::numeric_limits<float>::infinity();

namespace detail {

// exp(x) = 2^n (1 + tail): 1 + tail is exp of the remainder in [-0.35, 0.35], and n is the lowest
// bits of `bits`.
struct ExpParts {
  float tail;
  std::uint32_t bits;
};

// `kBias` is added to n. REQUIRES: |x| < 2^20, or NaN (which ends up in `tail`).
template <int kBias>
TANDEM_INLINED ExpParts exp_parts(float x) {
  // 1.5 * 2^23: adding it rounds to an integer, which is in the lowest bits.
  constexpr float kRound = 12582912.0f + kBias;
  const float shifted = x * 1.44269504088896341f + kRound;
  const float n = shifted - kRound;
  const float r = (x - n * 0.693359375f) - n * -2.12194440e-4f;
  float p = 1.39462236422e-3f;
  p = p * r + 8.3664736435e-3f;
  p = p * r + 4.16662874725e-2f;
  p = p * r + 1.66665445192e-1f;
  p = p * r + 0.5f;
  return {p * (r * r) + r, std::bit_cast<std::uint32_t>(shifted)};
}

// The number whose biased exponent is in the lowest bits.
TANDEM_INLINED float power_of_two(std::uint32_t bits) { return std::bit_cast<float>(bits << 23); }

// exp(x) for x in [-87, 88], or NaN.
TANDEM_INLINED float exp_in_range(float x) {
  const ExpParts parts = exp_parts<127>(x);
  const float scale = power_of_two(parts.bits);
  return scale * parts.tail + scale;
}

// A positive normal number as (1 + m) 2^e, with 1 + m in [sqrt(1/2), sqrt(2)).
struct LogParts {
  float m;
  std::int32_t e;
};
TANDEM_INLINED LogParts log_parts(float x) {
  const std::uint32_t shifted = std::bit_cast<std::uint32_t>(x) - 0x3f3504f3u;
  return {std::bit_cast<float>((shifted & 0x007fffffu) + 0x3f3504f3u) - 1.0f,
          static_cast<std::int32_t>(shifted) >> 23};
}

// log(1 + m) + e log(2) for 1 + m in [sqrt(1/2), sqrt(2)).
TANDEM_INLINED float log_sum(float m, float e) {
  const float z = m * m;
  float p = -7.84110491994e-2f;
  p = p * m + 1.29894625756e-1f;
  p = p * m - 1.31933307336e-1f;
  p = p * m + 1.41654495343e-1f;
  p = p * m - 1.66134897846e-1f;
  p = p * m + 2.00029488449e-1f;
  p = p * m - 2.50014040403e-1f;
  p = p * m + 3.33333088632e-1f;
  p = p * m - 0.499999908564f;
  return (p * z + m) + e * 0.693147182f;
}

// The summand that turns a finite number into a logarithm's limit: 0 for x in (0, infinity), else
// infinity or NaN. Written without comparisons that depend on each other, of which GCC makes more.
TANDEM_INLINED float log_limit(float x, float scaled) {
  constexpr float kMax = std::numeric_limits<float>::max();
  const float over = (x < kMax ? kMax : x) - kMax;  // infinity or NaN
  // All bits are set if x is negative, which is NaN.
  const float negative = std::bit_cast<float>(std::bit_cast<std::int32_t>(x + 0.0f) >> 31);
  const float zero = scaled < std::numeric_limits<float>::min() ? -kInfinity : over;
  return zero + negative;
}

// An angle in quarter turns: x = r + n pi/2, with r in [-pi/4, pi/4] and the lowest bits of n.
struct Angle {
  float r;
  std::uint32_t n;
};
TANDEM_INLINED Angle angle_of(float x) {
  constexpr float kRound = 12582912.0f;
  const float shifted = x * 0.636619772367581343f + kRound;
  const float n = shifted - kRound;
  // pi/2 in three parts. The products must not be rounded. The first difference is exact.
  float r = std::fma(n, -1.57079637050628662109375f, x);
  r = std::fma(n, 4.37113900018624283e-8f, r);
  r = std::fma(n, 1.71512451306361046e-15f, r);
  return {r, std::bit_cast<std::uint32_t>(shifted)};
}

// The sine of the angle; its cosine if kQuarters is 1.
template <unsigned kQuarters>
TANDEM_INLINED float sine_of(Angle angle) {
  const float r = angle.r, z = r * r;
  const std::uint32_t n = angle.n + kQuarters;
  float s = -1.9515295891e-4f * z + 8.3321608736e-3f;
  s = s * z - 1.6666654611e-1f;
  s = s * (z * r) + r;
  float c = 2.443315711809948e-5f * z - 1.388731625493765e-3f;
  c = c * z + 4.166664568298827e-2f;
  c = c * (z * z) + (1.0f - 0.5f * z);
  const float value = (n & 1u) != 0 ? c : s;
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(value) ^ (n & 2u) << 30);
}

}  // namespace detail

TANDEM_INLINED float exp(float x) {
  const detail::ExpParts parts = detail::exp_parts<2 * 127>(x);
  // The power of two is two factors, so that neither leaves the normal range.
  const std::uint32_t half = parts.bits >> 1;
  const float scale = detail::power_of_two(half);
  const float result = (scale * parts.tail + scale) * detail::power_of_two(parts.bits - half);
  const float high = x > 89.0f ? kInfinity : result;
  return x < -104.0f ? 0.0f : high;
}

TANDEM_INLINED float expm1(float x) {
  const float low = x < -18.0f ? -18.0f : x;  // -1 to the last bit from there on
  const detail::ExpParts parts = detail::exp_parts<126>(low > 89.0f ? 89.0f : low);
  // 2^n (1 + tail) - 1, with half of 2^n so that it does not overflow before the result does.
  const float half = detail::power_of_two(parts.bits);
  const float result = (half * parts.tail + (half - 0.5f)) * 2.0f;
  return x == 0.0f ? x : result;
}

TANDEM_INLINED float log(float x) {
  const float normal = x < std::numeric_limits<float>::min() ? x * 8388608.0f : x;
  const detail::LogParts parts = detail::log_parts(normal);
  const auto e = static_cast<float>(parts.e) - (normal != x ? 23.0f : 0.0f);
  return detail::log_sum(parts.m, e) + detail::log_limit(x, normal);
}

TANDEM_INLINED float log1p(float x) {
  const float u = 1.0f + x;
  const std::int32_t e = detail::log_parts(u).e;
  // (1 + x) 2^-e - 1, of which 1 + x is not rounded. Four times 2^-e is normal for all e.
  const float scale = std::bit_cast<float>((129 - e) << 23);
  const float reduced = 0.25f * x * scale + (0.25f * scale - 1.0f);
  const float m = reduced < 1.0f ? reduced : 1.0f;  // also for infinity and NaN
  const float result = detail::log_sum(m, static_cast<float>(e)) + detail::log_limit(u, u);
  return u == 1.0f ? x : result;
}

TANDEM_INLINED float tanh(float x) {
  // (exp(2a) - 1) / (exp(2a) + 1), which is 1 to the last bit from 10 on. The order of the bits of
  // positive numbers is that of the numbers.
  const float a = std::fabs(x);
  const auto bits = std::bit_cast<std::int32_t>(a), ten = std::bit_cast<std::int32_t>(10.0f);
  const float b = std::bit_cast<float>(bits < ten ? bits : ten);
  constexpr float kRound = 12582912.0f + 127.0f;
  const float shifted = b * 2.88539008177792681f + kRound;
  const float n = shifted - kRound;
  const float r = b - n * 0.346573591f;
  float e = 0.0446279156552f;
  e = e * r + 0.133863578296f;
  e = e * r + 0.33333029978f;
  e = e * r + 0.666661780769f;
  e = e * r + 1.0f;
  e = e * (r * r) + r;
  // Half of exp(2a) - 1
  const float scale = detail::power_of_two(std::bit_cast<std::uint32_t>(shifted));
  const float half = scale * e + (0.5f * scale - 0.5f);
  const float large = half / (half + 1.0f);
  const float z = x * x;
  float p = -0.0503700253306f * z + 0.133148844438f;
  p = p * z - 0.333330624078f;
  const float small = p * (z * a) + a;  // also for NaN
  return std::copysign(a >= 0.3f ? large : small, x);
}

TANDEM_INLINED float sigmoid(float x) {
  const float e = exp(-std::fabs(x));
  return (x < 0.0f ? e : 1.0f) / (1.0f + e);
}

TANDEM_INLINED float erf(float x) {
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
  const float large = std::copysign(1.0f - detail::exp_in_range(far), x);
  return a > 0.927734375f ? large : near;
}

// The probability that a standard normal variable is above u, for u >= 0: erfc(u / sqrt(2)) / 2.
// The absolute error is within 2^-23; 0 beyond 6.
TANDEM_INLINED float normal_tail(float u) {
  // The binary logarithm of the result
  float p = -2.772049071e-6f;
  p = p * u + 3.86207461e-5f;
  p = p * u - 1.825475957e-4f;
  p = p * u - 1.458701527e-4f;
  p = p * u + 7.075471803e-3f;
  p = p * u - 5.250502872e-2f;
  p = p * u - 4.592049072e-1f;
  p = p * u - 1.151105724f;
  p = p * u - 0.9999999783f;
  constexpr float kRound = 12582912.0f + 127.0f;
  const float shifted = p + kRound;
  const float r = p - (shifted - kRound);
  float q = 1.5345788953e-4f;
  q = q * r + 1.3399957628e-3f;
  q = q * r + 9.6184892445e-3f;
  q = q * r + 5.5503287118e-2f;
  q = q * r + 2.4022646886e-1f;
  q = q * r + 6.9314720577e-1f;
  q = q * r + 1.0f;
  const float power = q * detail::power_of_two(std::bit_cast<std::uint32_t>(shifted));
  return u > 6.0f ? 0.0f : power;
}

// The largest |x| of which sin() and cos() are accurate.
inline constexpr float kLargestAngle = 131072.0f;

// REQUIRES: |x| <= kLargestAngle, or infinity or NaN.
TANDEM_INLINED float sin(float x) {
  const float result = detail::sine_of<0>(detail::angle_of(x));
  return x == 0.0f ? x : result;
}
// REQUIRES: |x| <= kLargestAngle, or infinity or NaN.
TANDEM_INLINED float cos(float x) { return detail::sine_of<1>(detail::angle_of(x)); }

// Computed in double: the error of log2(x) is multiplied by y, up to 150.
TANDEM_INLINED float pow(float x, float y) {
  const float a = std::fabs(x);
  const float normal = a < std::numeric_limits<float>::min() ? a * 8388608.0f : a;
  const detail::LogParts parts = detail::log_parts(normal);
  const auto m = static_cast<double>(parts.m);
  // log2((1 + s) / (1 - s)), a minimax polynomial with a relative error of 2^-37
  const double s = m / (m + 2.0), z = s * s;
  double p = 0.3407404562495454704;
  p = p * z + 0.4116721093344582516;
  p = p * z + 0.5770835961899966171;
  p = p * z + 0.9617966732756438836;
  p = p * z + 2.885390081790147114;
  const auto e = static_cast<float>(parts.e) - (normal != a ? 23.0f : 0.0f);
  const double finite = s * p + static_cast<double>(e);
  const double positive = a <= std::numeric_limits<float>::max() ? finite : static_cast<double>(a);
  const double log2 = a == 0.0f ? -std::numeric_limits<double>::infinity() : positive;
  // Infinity is replaced because infinity * log2(1) would be NaN. Beyond 2^-160 and 2^160, the
  // result is zero or infinity.
  const float low = y < -1e30f ? -1e30f : y;
  const double product = static_cast<double>(low > 1e30f ? 1e30f : low) * log2;
  const double above = product < -160.0 ? -160.0 : product, t = above > 160.0 ? 160.0 : above;
  constexpr double kRound = 6755399441055744.0 + 1023.0;  // 1.5 * 2^52
  const double shifted = t + kRound;
  const double r = t - (shifted - kRound);
  // 2^r, a minimax polynomial with a relative error of 2^-29
  double q = 0.0001534578895298851565;
  q = q * r + 0.00133999576283416621;
  q = q * r + 0.009618489244476682394;
  q = q * r + 0.0555032871180166274;
  q = q * r + 0.240226468860791277;
  q = q * r + 0.6931472057671422013;
  q = q * r + 1.000000000555049587;
  const double power = q * std::bit_cast<double>(std::bit_cast<std::uint64_t>(shifted) << 52);
  const float magnitude = y == 0.0f || x == 1.0f ? 1.0f : static_cast<float>(power);
  const float half = 0.5f * y;
  const bool whole = std::floor(y) == y, odd = whole && std::floor(half) != half;
  const bool undefined = x < 0.0f && a <= std::numeric_limits<float>::max() && !whole;
  const float sign = odd ? x : 1.0f;
  return undefined ? std::numeric_limits<float>::quiet_NaN() : std::copysign(magnitude, sign);
}

// The largest quotient of which fmod() is exact.
inline constexpr float kLargestQuotient = 268435456.0f;

// REQUIRES: |a| <= kLargestQuotient * |b|.
TANDEM_INLINED float fmod(float a, float b) {
  // In double, the quotient is never rounded up to the next integer, and the rest is exact.
  const auto x = static_cast<double>(a), y = static_cast<double>(b);
  const auto rest = static_cast<float>(x - std::trunc(x / y) * y);
  return std::fabs(a) < std::fabs(b) ? a : std::copysign(rest, a);
}

inline double exp(double x) { return std::exp(x); }
inline double expm1(double x) { return std::expm1(x); }
inline double log(double x) { return std::log(x); }
inline double log1p(double x) { return std::log1p(x); }
inline double tanh(double x) { return std::tanh(x); }
inline double erf(double x) { return std::erf(x); }
inline double normal_tail(double u) { return 0.5 * std::erfc(u * (1.0 / std::numbers::sqrt2)); }
inline double sin(double x) { return std::sin(x); }
inline double cos(double x) { return std::cos(x); }
inline double pow(double x, double y) { return std::pow(x, y); }
inline double fmod(double x, double y) { return std::fmod(x, y); }
inline double sigmoid(double x) {
  const double e = std::exp(-std::fabs(x));
  return (x < 0.0 ? e : 1.0) / (1.0 + e);
}

}  // namespace tandem::vec
