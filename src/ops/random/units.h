// Converts random words to numbers, for the distributions of all devices.
#pragma once

#include <cstdint>
#include <numbers>

namespace tandem {

// In [0, 1), on a grid of 2^-24.
constexpr float unit_float(std::uint32_t word) {
  return static_cast<float>(static_cast<std::int32_t>(word >> 8)) * 0x1p-24f;
}
// In (0, 1], down to 2^-31.
constexpr float positive_float(std::uint32_t word) {
  return (static_cast<float>(static_cast<std::int32_t>(word >> 1)) + 1.0f) * 0x1p-31f;
}
constexpr double unit_double(std::uint32_t high, std::uint32_t low) {
  return static_cast<double>((std::uint64_t{high} << 32 | low) >> 11) * 0x1p-53;
}

// The cosine and sine of a random angle.
struct UnitVector {
  float cosine, sine;
};
constexpr UnitVector random_unit_vector(std::uint32_t word) {
  // The top bits choose a quadrant, the others an angle of [-1/2, 1/2) quarter turns around its
  // axis.
  const float x =
      static_cast<float>(static_cast<std::int32_t>(word << 2)) * (0x1p-32f * 1.57079632679f);
  const float z = x * x;
  const float s = ((-1.9515295891e-4f * z + 8.3321608736e-3f) * z - 1.6666654611e-1f) * z * x + x;
  const float c =
      ((2.443315711809948e-5f * z - 1.388731625493765e-3f) * z + 4.166664568298827e-2f) * z * z -
      0.5f * z + 1.0f;
  const std::uint32_t quarter = word >> 30;
  const bool odd = (quarter & 1u) != 0;
  const float a = odd ? s : c, b = odd ? c : s;
  return {quarter == 1 || quarter == 2 ? -a : a, quarter >= 2 ? -b : b};
}

// The inverse of erf for |y| < 0.996: M. Giles, "Approximating the erfinv function" (2010). `Log`
// is the device's logarithm.
template <class Log>
constexpr float erf_inverse(float y, const Log& log) {
  const float w = -log((1.0f - y) * (1.0f + y)) - 2.5f;
  float p = 2.81022636e-08f;
  p = p * w + 3.43273939e-07f;
  p = p * w - 3.5233877e-06f;
  p = p * w - 4.39150654e-06f;
  p = p * w + 0.00021858087f;
  p = p * w - 0.00125372503f;
  p = p * w - 0.00417768164f;
  p = p * w + 0.246640727f;
  p = p * w + 1.50140941f;
  return p * y;
}
template <class Log, class Exp, class Erf>
constexpr double erf_inverse(double y, const Log& log, const Exp& exp, const Erf& erf) {
  double x = erf_inverse(static_cast<float>(y), log);
  for (int step = 0; step < 2; ++step)  // Newton's method
    x -= (erf(x) - y) * exp(x * x) / (2.0 * std::numbers::inv_sqrtpi);
  return x;
}

// erf(sqrt(2)), the probability of the normal distribution within two standard deviations.
inline constexpr double kTwoDeviations = 0.95449973610364158560;
// Converts a value of the inverse of erf to a number of the truncated normal distribution.
template <class C>
constexpr C truncated(C inverse) {
  const C z = C(std::numbers::sqrt2) * inverse;
  return z > C(2) ? C(2) : z < C(-2) ? C(-2) : z;
}

// Bernoulli samples: which random words give a one.
struct Ones {
  float one;           // 1, or 0 if no word gives a one
  std::uint32_t last;  // words up to this one give `one`

  // `count` is the number of the 2^32 words that give a one.
  constexpr explicit Ones(std::uint64_t count)
      : one(count > 0 ? 1.0f : 0.0f), last(static_cast<std::uint32_t>(count - 1u)) {}
  constexpr float number_of(std::uint32_t word) const { return word <= last ? one : 0.0f; }
};

}  // namespace tandem
