// Inverse trigonometric functions, the gamma function and its relatives, and windows, against the C
// library and known values.
#include "tandem/special.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "ops/expect_values.h"
#include "support/gradient_check.h"
#include "support/tensors.h"
#include "tandem/array.h"
#include "tandem/function.h"
#include "tandem/math.h"

namespace tandem::special_test {
namespace {

using namespace testing;
using Values = std::vector<double>;
constexpr double kInfinity = std::numeric_limits<double>::infinity();
const double kNan = std::numeric_limits<double>::quiet_NaN();

struct Case {
  const char* name;
  std::function<Tensor(const Tensor&)> function;
  double (*formula)(double);
  Values points, inner;  // those that have a derivative
};

const std::vector<Case>& cases() {
  static const std::vector<Case> all = {
      {"asin",
       asin,
       [](double x) { return std::asin(x); },
       {-1.0, -0.9999, -0.3, -0.0, 1e-12, 0.4, 0.41421, 0.7, 1.0, 1.5, kNan},
       {-0.9, 0.0, 0.6}},
      {"acos",
       acos,
       [](double x) { return std::acos(x); },
       {-1.0, -0.9999, -0.3, 0.0, 1e-12, 0.4, 0.7, 0.9999, 1.0, -2.0, kNan},
       {-0.9, 0.0, 0.6}},
      {"atan",
       atan,
       [](double x) { return std::atan(x); },
       {-1e30, -3.0, -1.0, -0.0, 1e-20, 0.41421, 0.5, 1.0, 40.0, kInfinity, -kInfinity, kNan},
       {-2.0, 0.0, 0.6}},
      {"lgamma",
       lgamma,
       [](double x) { return std::lgamma(x); },
       {1e-10, 0.3,   0.5,  1.0,  1.0001, 1.5, 2.0,  3.7,  9.99,      10.0, 25.5,
        1e5,   1e200, -0.5, -1.2, -7.7,   0.0, -1.0, -4.0, kInfinity, kNan},
       {0.4, 1.0, 3.3, 12.0, -0.4, -2.3}},
      {"erfinv of erf",
       [](const Tensor& x) { return erfinv(erf(x)); },
       [](double x) { return x; },
       {-2.5, -1.0, -1e-9, 0.0, 0.3, 1.2, 3.0},
       {-1.1, 0.0, 0.4}},
  };
  return all;
}

TEST(Special, EqualsTheCLibrary) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(c.name);
    Values expected, rounded;
    for (const double point : c.points) expected.push_back(c.formula(point));
    const Tensor x = constant(c.points, {.dtype = float64});
    expect_values(c.function(x), expected, c.name[0] == 'e' ? 1e-11 : 4e-15);
    const Tensor single = cast(constant(c.inner, {.dtype = float64}), float32);
    for (const double point : values_of(cast(single, float64))) rounded.push_back(c.formula(point));
    expect_values(c.function(single), rounded, 1e-6);
    const auto traced = function(c.function, {.input_signature = {{Shape{-1}, float64}}});
    expect_values(traced(x), values_of(c.function(x)), 0.0);
    const auto f = [&](const std::vector<Tensor>& in) { return c.function(in[0]); };
    expect_gradients(f, {constant(c.inner, {.dtype = float64})});
    expect_second_order(f, {constant(c.inner, {.dtype = float64})});
    expect_error<DTypeError>(
        [&] {
          static_cast<void>(c.function(constant({1, 2})));
        },
        "floating dtype");
  }
}

TEST(Atan2, HasAllQuadrantsAndSigns) {
  const Values points = {-kInfinity, -2.0, -1.0, -0.0, 0.0, 1e-30, 1.0, 3.0, kInfinity};
  Values expected;
  for (const double y : points)
    for (const double x : points) expected.push_back(std::atan2(y, x));
  const Tensor column = reshape(constant(points, {.dtype = float64}), {9, 1}),
               row = constant(points, {.dtype = float64});
  const Tensor angles = atan2(column, row);
  expect_values(angles, expected, 4e-15);
  for (std::size_t i = 0; i < expected.size(); ++i)
    EXPECT_EQ(std::signbit(values_of(angles)[i]), std::signbit(expected[i])) << i;
  expect_gradients(
      [](const std::vector<Tensor>& in) { return atan2(in[0], in[1]); },
      {constant({{0.3}, {-2.0}}, {.dtype = float64}), constant({1.0, -0.7}, {.dtype = float64})});
  expect_error<InvalidArgumentError>(
      [&] { static_cast<void>(atan2(column, ones({2}))); },
      "[atan2] expected tensors of one dtype, got float64 and float32");
  expect_error<ShapeError>([&] { static_cast<void>(atan2(ones({2}), ones({3}))); },
                           "[atan2] expected shapes that broadcast together, got (2,) and (3,)");
}

TEST(Atan2, HasNoGradientAtTheOrigin) {
  GradientTape tape;
  const Tensor zero = zeros({1}, float64);
  tape.watch(zero);
  expect_tensor(tape.gradient(atan2(zero, zero), zero), float64, {1}, {0.0});
}

TEST(Polygamma, HasKnownValuesAndDerivatives) {
  const double euler = 0.57721566490153286061, pi = std::acos(-1.0), zeta3 = 1.2020569031595942854;
  const Tensor x = constant({1.0, 0.5, 2.0, -0.5, 30.0}, {.dtype = float64});
  expect_values(digamma(x),
                {-euler, -euler - 2.0 * std::log(2.0), 1.0 - euler,
                 2.0 - euler - 2.0 * std::log(2.0), 3.38443813268552488},
                1e-14);
  expect_values(
      polygamma(1, x),
      {pi * pi / 6, pi * pi / 2, pi * pi / 6 - 1.0, pi * pi / 2 + 4.0, 0.0338950603577399442},
      1e-13);
  expect_values(polygamma(2, x),
                {-2.0 * zeta3, -14.0 * zeta3, -2.0 * zeta3 + 2.0, -14.0 * zeta3 + 16.0,
                 -0.00114876520372859984},
                1e-13);
  expect_values(digamma(constant({0.0, -0.0, -3.0}, {.dtype = float64})),
                {-kInfinity, kInfinity, kNan}, 0.0);
  const Tensor inner = constant({0.7, 3.2, 14.0}, {.dtype = float64});
  for (int n = 0; n < 4; ++n)
    expect_gradients([n](const std::vector<Tensor>& in) { return polygamma(n, in[0]); }, {inner});
  expect_values(mvlgamma(constant({2.5}, {.dtype = float64}), 2),
                {0.5 * std::log(pi) + std::lgamma(2.5) + std::lgamma(2.0)}, 3e-15);
  expect_error<InvalidArgumentError>([&] { static_cast<void>(polygamma(-1, x)); },
                                     "[polygamma] expected an order of 0 or more, got -1");
}

TEST(Erfinv, IsInfiniteAtTheEnds) {
  expect_values(erfinv(constant({-1.0, 1.0, 1.5, kNan}, {.dtype = float64})),
                {-kInfinity, kInfinity, kNan, kNan}, 0.0);
}

TEST(Windows, AreSymmetricOrPeriodic) {
  expect_values(windows::hann(5), {0, 0.5, 1, 0.5, 0}, 1e-7);
  expect_values(windows::hann(4, {.sym = false, .dtype = float64}), {0, 0.5, 1, 0.5}, 1e-15);
  expect_values(windows::hamming(3, {.dtype = float64}), {0.08, 1, 0.08}, 1e-15);
  expect_values(windows::blackman(3, {.dtype = float64}), {0, 1, 0}, 1e-15);
  expect_values(windows::nuttall(3, {.dtype = float64}), {0.0003628, 1, 0.0003628}, 1e-15);
  expect_values(windows::bartlett(5, {.dtype = float64}), {0, 0.5, 1, 0.5, 0}, 1e-15);
  expect_values(windows::cosine(2, {.dtype = float64}), {std::sqrt(0.5), std::sqrt(0.5)}, 1e-15);
  expect_values(windows::exponential(3, 2.0, {.dtype = float64}),
                {std::exp(-0.5), 1, std::exp(-0.5)}, 1e-15);
  expect_values(windows::gaussian(3, 2.0, {.dtype = float64}),
                {std::exp(-0.125), 1, std::exp(-0.125)}, 1e-15);
  expect_values(windows::kaiser(3, 1.0, {.dtype = float64}),
                {1.0 / 1.2660658777520083, 1, 1.0 / 1.2660658777520083}, 1e-14);
  expect_values(windows::kaiser(1), {1}, 0.0);
  EXPECT_EQ(windows::hann(0).shape(), Shape({0}));
  expect_error<InvalidArgumentError>([] { static_cast<void>(windows::hann(-1)); },
                                     "expected a size of 0 or more, got -1");
}

}  // namespace
}  // namespace tandem::special_test
