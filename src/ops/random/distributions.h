// Converts blocks of random words to numbers of a distribution.
//
// A distribution is a type with
//   static constexpr int kElements;             // elements per block
//   void operator()(const Words&, C* elements)  // C: float or double, or the integer type
#pragma once

#include <cmath>
#include <numbers>

#include "core/vector_math.h"
#include "ops/random/units.h"
#include "ops/random/words.h"

namespace tandem {

inline float erf_inverse(float y) {
  return erf_inverse(y, [](float x) { return vec::log(x); });
}
inline double erf_inverse(double y) {
  return erf_inverse(
      y, [](float x) { return vec::log(x); }, [](double x) { return std::exp(x); },
      [](double x) { return std::erf(x); });
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

// The Box-Muller method: two random words give two independent numbers.
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
          const UnitVector direction = random_unit_vector(words[row + 1][j]);
          out[row * kColumns + j] = mean + radius * direction.cosine;
          out[(row + 1) * kColumns + j] = mean + radius * direction.sine;
        }
    }
  }
};

// By inversion. It is the same distribution as rejecting samples beyond two standard deviations.
template <class C>
struct TruncatedNormal {
  C mean, stddev;
  static constexpr int kElements = Uniform<C>::kElements;

  void operator()(const Words& words, C* out) const {
    Uniform<C>{C(-kTwoDeviations), C(2.0 * kTwoDeviations), C(kTwoDeviations)}(words, out);
    for (int i = 0; i < kElements; ++i) out[i] = mean + stddev * truncated(erf_inverse(out[i]));
  }
};

struct Bernoulli {
  Ones ones;
  static constexpr int kElements = 4 * kColumns;

  void operator()(const Words& words, float* out) const {
    for (int row = 0; row < 4; ++row)
      for (int j = 0; j < kColumns; ++j) out[row * kColumns + j] = ones.number_of(words[row][j]);
  }
};

struct UniformInt {
  std::uint64_t low;
  std::uint64_t count;
  static constexpr int kElements = 2 * kColumns;

  void operator()(const Words& words, std::int64_t* out) const {
    for (int row = 0; row < 2; ++row)
      for (int j = 0; j < kColumns; ++j) {
        const std::uint64_t bits = std::uint64_t{words[2 * row][j]} << 32 | words[2 * row + 1][j];
        out[row * kColumns + j] = static_cast<std::int64_t>(low + random_below(count, bits));
      }
  }
};

}  // namespace tandem
