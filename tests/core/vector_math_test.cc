#include "core/vector_math.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace tandem {
namespace {

// The distance from the correctly rounded result in units in the last place of that result.
double ulps(float value, double exact) {
  const float rounded = static_cast<float>(exact);
  if (std::isnan(rounded)) return std::isnan(value) ? 0.0 : 1e9;
  if (std::isinf(rounded)) {
    const bool largest = std::fabs(value) == std::numeric_limits<float>::max();
    return value == rounded ? 0.0 : largest ? 1.0 : 1e9;
  }
  const float magnitude = std::fabs(rounded);
  const float next = std::nextafter(magnitude, std::numeric_limits<float>::infinity());
  const double unit =
      std::isinf(next) ? magnitude - std::nextafter(magnitude, 0.0f) : next - magnitude;
  if (std::signbit(value) != std::signbit(rounded)) return 1e9;
  return std::fabs(static_cast<double>(value) - exact) / unit;
}

// Bit patterns spread evenly over all floats, including zeros, subnormals, infinities and NaN.
template <class F, class G>
void expect_close(F approximation, G exact, double limit) {
  for (std::uint64_t bits = 0; bits < (1ull << 32); bits += 4093) {
    const float x = std::bit_cast<float>(static_cast<std::uint32_t>(bits));
    ASSERT_LE(ulps(approximation(x), exact(static_cast<double>(x))), limit) << "at " << x;
  }
  for (float x :
       {0.0f, -0.0f, 1.0f, -1.0f, 88.7228f, 88.73f, -87.4f, -103.97f, -104.5f, 0.625f, 1e-45f,
        std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
        std::numeric_limits<float>::max(), std::numeric_limits<float>::quiet_NaN()})
    EXPECT_LE(ulps(approximation(x), exact(static_cast<double>(x))), limit) << "at " << x;
}

TEST(VectorMath, ExpIsWithinTwoUlp) {
  expect_close([](float x) { return vec::exp(x); }, [](double x) { return std::exp(x); }, 2.0);
}
TEST(VectorMath, Expm1IsWithinTwoUlp) {
  expect_close([](float x) { return vec::expm1(x); }, [](double x) { return std::expm1(x); }, 2.0);
}
TEST(VectorMath, LogIsWithinTwoUlp) {
  expect_close([](float x) { return vec::log(x); }, [](double x) { return std::log(x); }, 2.0);
}
TEST(VectorMath, Log1pIsWithinTwoUlp) {
  expect_close([](float x) { return vec::log1p(x); }, [](double x) { return std::log1p(x); }, 2.0);
}
TEST(VectorMath, TanhIsWithinTwoUlp) {
  expect_close([](float x) { return vec::tanh(x); }, [](double x) { return std::tanh(x); }, 2.0);
}
TEST(VectorMath, ErfIsWithinTwoUlp) {
  expect_close([](float x) { return vec::erf(x); }, [](double x) { return std::erf(x); }, 2.0);
}
TEST(VectorMath, SigmoidIsWithinThreeUlp) {
  expect_close(
      [](float x) { return vec::sigmoid(x); },
      [](double x) { return x < 0 ? std::exp(x) / (1 + std::exp(x)) : 1 / (1 + std::exp(-x)); },
      3.0);
}

}  // namespace
}  // namespace tandem
