#include "core/vector_math.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <random>
#include <span>
#include <vector>

namespace tandem::vector_math_test {
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

// The instruction set that the loop is compiled for decides about roundings.
template <class F>
TANDEM_MULTIVERSION void run_loop(const F& function, const float* x, const float* y, float* out,
                                  int count) {
  for (int i = 0; i < count; ++i) out[i] = function(x[i], y[i]);
}

constexpr int kCount = 1024;

// Both in a loop and alone, which is compiled for the baseline.
template <class F, class G>
void expect_close(const F& function, const G& exact, double limit, const float* x, const float* y,
                  int count) {
  std::array<float, kCount> loop;
  run_loop(function, x, y, loop.data(), count);
  for (int i = 0; i < count; ++i) {
    const double expected = exact(static_cast<double>(x[i]), static_cast<double>(y[i]));
    ASSERT_LE(ulps(loop[i], expected), limit) << "at " << x[i] << ", " << y[i] << " in a loop";
    ASSERT_LE(ulps(function(x[i], y[i]), expected), limit) << "at " << x[i] << ", " << y[i];
  }
}

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// Bit patterns spread evenly over all floats up to `largest`, including zeros, subnormals,
// infinities and NaN.
template <class F, class G>
void expect_close(const F& function, const G& exact, double limit, float largest = kInf) {
  const auto check = [&](std::span<const float> values) {
    expect_close(
        [&](float a, float) __attribute__((always_inline)) { return function(a); },
        [&](double a, double) { return exact(a); }, limit, values.data(), values.data(),
        static_cast<int>(values.size()));
  };
  std::vector<float> values = {
      0.0f,    -0.0f,          1.0f,
      -1.0f,   88.7228f,       88.73f,
      -87.4f,  -103.97f,       -104.5f,
      0.625f,  1e-45f,         0.3f,
      0.9277f, 1.1754944e-38f, kInf,
      -kInf,   kNan,           std::min(largest, std::numeric_limits<float>::max())};
  for (std::uint64_t bits = 0; bits < (1ull << 32); bits += 4093) {
    const float x = std::bit_cast<float>(static_cast<std::uint32_t>(bits));
    if (std::fabs(x) > largest && std::fabs(x) < kInf) continue;
    values.push_back(x);
    if (values.size() < kCount) continue;
    check(values);
    if (::testing::Test::HasFatalFailure()) return;
    values.clear();
  }
  check(values);
}

// A function of vec:: as a type, which a loop can inline.
#define TANDEM_FUNCTION(name) \
  [](auto... x) __attribute__((always_inline)) { return vec::name(x...); }

TEST(VectorMath, ExpIsWithinTwoUlp) {
  expect_close(
      TANDEM_FUNCTION(exp), [](double x) { return std::exp(x); }, 2.0);
}
TEST(VectorMath, Expm1IsWithinTwoUlp) {
  expect_close(
      TANDEM_FUNCTION(expm1), [](double x) { return std::expm1(x); }, 2.0);
}
TEST(VectorMath, LogIsWithinTwoUlp) {
  expect_close(
      TANDEM_FUNCTION(log), [](double x) { return std::log(x); }, 2.0);
}
TEST(VectorMath, Log1pIsWithinTwoUlp) {
  expect_close(
      TANDEM_FUNCTION(log1p), [](double x) { return std::log1p(x); }, 2.0);
}
TEST(VectorMath, TanhIsWithinTwoUlp) {
  expect_close(
      TANDEM_FUNCTION(tanh), [](double x) { return std::tanh(x); }, 2.0);
}
TEST(VectorMath, ErfIsWithinTwoUlp) {
  expect_close(
      TANDEM_FUNCTION(erf), [](double x) { return std::erf(x); }, 2.0);
}
TEST(VectorMath, SineAndCosineAreWithinTwoUlp) {
  expect_close(
      TANDEM_FUNCTION(sin), [](double x) { return std::sin(x); }, 2.0, vec::kLargestAngle);
  expect_close(
      TANDEM_FUNCTION(cos), [](double x) { return std::cos(x); }, 2.0, vec::kLargestAngle);
}
TEST(VectorMath, SineAndCosineAreWithinTwoUlpNearMultiplesOfAQuarterTurn) {
  std::vector<float> near;
  for (int n = 1; n < 83000; n += 7) {
    const auto x = static_cast<float>(n * (std::numbers::pi / 2));
    for (const float each : {x, std::nextafter(x, 0.0f), std::nextafter(x, kInf)})
      near.push_back(each);
  }
  for (std::size_t i = 0; i + kCount <= near.size(); i += kCount) {
    expect_close(
        [](float x, float) __attribute__((always_inline)) { return vec::sin(x); },
        [](double x, double) { return std::sin(x); }, 2.0, &near[i], &near[i], kCount);
    expect_close(
        [](float x, float) __attribute__((always_inline)) { return vec::cos(x); },
        [](double x, double) { return std::cos(x); }, 2.0, &near[i], &near[i], kCount);
  }
}
TEST(VectorMath, SigmoidIsWithinThreeUlp) {
  expect_close(
      TANDEM_FUNCTION(sigmoid),
      [](double x) { return x < 0 ? std::exp(x) / (1 + std::exp(x)) : 1 / (1 + std::exp(-x)); },
      3.0);
}

TEST(VectorMath, NormalTailHasASmallAbsoluteError) {
  std::array<float, kCount> x, tail;
  for (int i = 0; i < kCount; ++i) x[i] = static_cast<float>(i) * 0.01f;
  run_loop(
      [](float u, float) __attribute__((always_inline)) { return vec::normal_tail(u); }, x.data(),
      x.data(), tail.data(), kCount);
  for (int i = 0; i < kCount; ++i) {
    const double exact = vec::normal_tail(static_cast<double>(x[i]));
    EXPECT_NEAR(tail[i], exact, 0x1p-23) << x[i];
    EXPECT_NEAR(vec::normal_tail(x[i]), exact, 0x1p-23) << x[i];
  }
  EXPECT_EQ(vec::normal_tail(kInf), 0.0f);
  EXPECT_TRUE(std::isnan(vec::normal_tail(kNan)));
}

const float kSpecial[] = {
    0.0f,       -0.0f,      1.0f,       -1.0f,       2.0f,        -2.0f,       3.0f,
    -3.0f,      0.5f,       -0.5f,      1e-45f,      -1e-45f,     1e-40f,      kInf,
    -kInf,      kNan,       3.4e38f,    -3.4e38f,    16777216.0f, 16777215.0f, -16777215.0f,
    8388609.0f, 8388607.0f, 4194303.5f, 0.99999994f, 1.00000012f, 1e30f,       -1e31f};

TEST(VectorMath, PowIsWithinOneUlp) {
  const auto pow = [](float x, float y) __attribute__((always_inline)) { return vec::pow(x, y); };
  const auto exact = [](double x, double y) { return std::pow(x, y); };
  for (const float x : kSpecial)
    for (const float y : kSpecial) expect_close(pow, exact, 1.0, &x, &y, 1);
  std::mt19937 random(1);
  std::array<float, kCount> x, y;
  for (int round = 0; round < 500 && !HasFatalFailure(); ++round) {
    for (int i = 0; i < kCount; ++i) {
      x[i] = std::bit_cast<float>(static_cast<std::uint32_t>(random()));
      y[i] = std::bit_cast<float>(static_cast<std::uint32_t>(random()));
      if (round % 2 == 1) {  // results of all magnitudes
        x[i] = std::fabs(x[i]);
        y[i] = std::uniform_real_distribution<float>(-160.0f, 140.0f)(random) / std::log2(x[i]);
      }
    }
    expect_close(pow, exact, 1.0, x.data(), y.data(), kCount);
  }
}

TEST(VectorMath, FmodIsExactUpToTheLargestQuotient) {
  const auto fmod = [](float a, float b) __attribute__((always_inline)) { return vec::fmod(a, b); };
  const auto exact = [](double a, double b) { return std::fmod(a, b); };
  const auto in_range = [](float a, float b) {
    return std::fabs(a) <= vec::kLargestQuotient * std::fabs(b);
  };
  for (const float a : kSpecial)
    for (const float b : kSpecial)
      if (in_range(a, b)) expect_close(fmod, exact, 0.0, &a, &b, 1);
  std::mt19937 random(1);
  std::array<float, kCount> a, b;
  for (int round = 0; round < 300 && !HasFatalFailure(); ++round) {
    for (int i = 0; i < kCount; ++i) {
      do {
        b[i] = std::uniform_real_distribution<float>(1.0f, 2.0f)(random);
        a[i] = round % 3 == 0 ? std::bit_cast<float>(static_cast<std::uint32_t>(random()))
               : round % 3 == 1  // around multiples
                   ? std::nextafter(b[i] * static_cast<float>(random() % 100000), kInf)
                   : std::exp2(std::uniform_real_distribution<float>(-2.0f, 28.0f)(random));
      } while (!in_range(a[i], b[i]));
    }
    expect_close(fmod, exact, 0.0, a.data(), b.data(), kCount);
  }
}

}  // namespace
}  // namespace tandem::vector_math_test
