// From blocks of random words to numbers of a distribution.
//
// A distribution is a type with
//   static constexpr int kElements;             // elements that a block gives
//   void operator()(const Words&, C* elements)  // C: float or double, or the integer type
#pragma once

#include <cmath>
#include <numbers>

#include "core/vector_math.h"
#include "ops/random/words.h"

namespace tandem {

// In [0, 1), on a grid of 2^-24.
inline float unit_float(std::uint32_t word) {
  return static_cast<float>(static_cast<std::int32_t>(word >> 8)) * 0x1p-24f;
}
// In (0, 1], down to 2^-31.
inline float positive_float(std::uint32_t word) {
  return (static_cast<float>(static_cast<std::int32_t>(word >> 1)) + 1.0f) * 0x1p-31f;
}
inline double unit_double(std::uint32_t high, std::uint32_t low) {
  return static_cast<double>((std::uint64_t{high} << 32 | low) >> 11) * 0x1p-53;
}

// The cosine and sine of a random angle.
struct Direction {
  float cosine, sine;
};
inline Direction random_direction(std::uint32_t word) {
  // The top bits choose a quarter turn, the others an angle in [-1/2, 1/2) quarter turns around it.
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

// The inverse of erf for |y| < 0.996: M. Giles, "Approximating the erfinv function" (2010).
inline float erf_inverse(float y) {
  const float w = -vec::log((1.0f - y) * (1.0f + y)) - 2.5f;
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
inline double erf_inverse(double y) {
  double x = erf_inverse(static_cast<float>(y));
  for (int step = 0; step < 2; ++step)  // Newton's
    x -= (std::erf(x) - y) * std::exp(x * x) / (2.0 * std::numbers::inv_sqrtpi);
  return x;
}

template <class C>
struct Uniform {
  C low, range, top;  // top: the largest element below the upper bound
  static constexpr int kElements = sizeof(C) == 8 ? 2 * kColumns : 4 * kColumns;

  void operator()(const Words& words, C* out) const {
    for (int row = 0; row < kElements / kColumns; ++row)
      for (int j = 0; j < kColumns; ++j) {
        C unit;
        if constexpr (sizeof(C) == 8)
          unit = unit_double(words[2 * row][j], words[2 * row + 1][j]);
        else
          unit = unit_float(words[row][j]);
        const C value = low + unit * range;
        out[row * kColumns + j] = value < top ? value : top;
      }
  }
};

// The method of Box and Muller: two words of the generator, two independent numbers.
template <class C>
struct Normal {
  C mean, stddev;
  static constexpr int kElements = sizeof(C) == 8 ? 2 * kColumns : 4 * kColumns;

  void operator()(const Words& words, C* out) const {
    if constexpr (sizeof(C) == 8) {
      for (int j = 0; j < kColumns; ++j) {
        const double u = 1.0 - unit_double(words[0][j], words[1][j]);
        const double angle = 2.0 * std::numbers::pi * unit_double(words[2][j], words[3][j]);
        const double radius = stddev * std::sqrt(-2.0 * std::log(u));
        out[j] = mean + radius * std::cos(angle);
        out[kColumns + j] = mean + radius * std::sin(angle);
      }
    } else {
      for (int row = 0; row < 4; row += 2)
        for (int j = 0; j < kColumns; ++j) {
          const float radius = stddev * std::sqrt(-2.0f * vec::log(positive_float(words[row][j])));
          const Direction direction = random_direction(words[row + 1][j]);
          out[row * kColumns + j] = mean + radius * direction.cosine;
          out[(row + 1) * kColumns + j] = mean + radius * direction.sine;
        }
    }
  }
};

// By inversion: the distribution that redrawing beyond two standard deviations gives.
template <class C>
struct TruncatedNormal {
  C mean, stddev;
  static constexpr int kElements = Uniform<C>::kElements;

  void operator()(const Words& words, C* out) const {
    constexpr double kErf = 0.95449973610364158560;  // erf(sqrt(2)): the mass within two deviations
    Uniform<C>{C(-kErf), C(2.0 * kErf), C(kErf)}(words, out);
    for (int i = 0; i < kElements; ++i) {
      const C z = C(std::numbers::sqrt2) * erf_inverse(out[i]);
      out[i] = mean + stddev * (z > C(2) ? C(2) : z < C(-2) ? C(-2) : z);
    }
  }
};

struct Bernoulli {
  float one;           // zero where no word gives a one
  std::uint32_t last;  // words up to this one give a one
  static constexpr int kElements = 4 * kColumns;

  void operator()(const Words& words, float* out) const {
    for (int row = 0; row < 4; ++row)
      for (int j = 0; j < kColumns; ++j)
        out[row * kColumns + j] = words[row][j] <= last ? one : 0.0f;
  }
};

struct UniformInt {
  std::int64_t low;
  std::uint64_t count;
  static constexpr int kElements = 2 * kColumns;

  void operator()(const Words& words, std::int64_t* out) const {
    for (int row = 0; row < 2; ++row)
      for (int j = 0; j < kColumns; ++j) {
        const std::uint64_t bits = std::uint64_t{words[2 * row][j]} << 32 | words[2 * row + 1][j];
        out[row * kColumns + j] =
            static_cast<std::int64_t>(static_cast<std::uint64_t>(low) + random_below(count, bits));
      }
  }
};

}  // namespace tandem
