#include <gtest/gtest.h>

#include <cmath>

#include "support/gradient_check.h"
#include "tandem/math.h"

namespace tandem::unary_test {
namespace {

using namespace testing;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

struct Case {
  const char* name;
  Tensor (*op)(const Tensor&);
  double (*exact)(double);
  double low = -3.0, high = 3.0;
  bool smooth = true;
};

const Case kCases[] = {
    {"negative", negative, [](double x) { return -x; }},
    {"abs", abs, [](double x) { return std::fabs(x); }, 0.1},
    {"sign", sign, [](double x) { return x > 0   ? 1.0
                                         : x < 0 ? -1.0
                                                 : 0.0; }, -3, 3, false},
    {"square", square, [](double x) { return x * x; }},
    {"sqrt", sqrt, [](double x) { return std::sqrt(x); }, 0.2},
    {"rsqrt", rsqrt, [](double x) { return 1 / std::sqrt(x); }, 0.2},
    {"reciprocal", reciprocal, [](double x) { return 1 / x; }, 0.2},
    {"exp", exp, [](double x) { return std::exp(x); }},
    {"expm1", expm1, [](double x) { return std::expm1(x); }},
    {"log", log, [](double x) { return std::log(x); }, 0.2},
    {"log1p", log1p, [](double x) { return std::log1p(x); }, -0.5},
    {"sin", sin, [](double x) { return std::sin(x); }},
    {"cos", cos, [](double x) { return std::cos(x); }},
    {"tanh", tanh, [](double x) { return std::tanh(x); }},
    {"sigmoid", sigmoid, [](double x) { return 1 / (1 + std::exp(-x)); }},
    {"erf", erf, [](double x) { return std::erf(x); }},
    {"floor", floor, [](double x) { return std::floor(x); }, -3, 3, false},
    {"ceil", ceil, [](double x) { return std::ceil(x); }, -3, 3, false},
    {"round", round, [](double x) { return std::nearbyint(x); }, -3, 3, false},
};

TEST(Unary, EveryFloatingDtypeAgainstTheStandardLibrary) {
  for (const Case& test : kCases)
    for (DType dtype : testing::kFloatingTypes)
      for (const Shape& shape : {Shape({3, 67}), Shape({0, 4}), Shape::scalar()}) {
        SCOPED_TRACE(::testing::Message() << test.name << ' ' << dtype);
        const Tensor x = random_tensor(shape, 5, test.low, test.high, dtype);
        std::vector<double> expected;
        for (double value : values_of(x)) expected.push_back(test.exact(value));
        expect_tensor(test.op(x), dtype, shape, expected, 4 * epsilon_of(dtype));
      }
}

TEST(Unary, GradientsMatchDifferences) {
  for (const Case& test : kCases) {
    if (!test.smooth) continue;
    SCOPED_TRACE(test.name);
    const auto f = [&](const std::vector<Tensor>& x) { return test.op(x[0]); };
    const Tensor x = random_tensor(Shape({2, 4}), 6, test.low, test.high);
    expect_gradients(f, {x});
    expect_second_order([&](const std::vector<Tensor>& v) { return square(test.op(v[0])); }, {x},
                        {.tolerance = 1e-5});
  }
}

TEST(Unary, ThirdDerivativeEqualsItsFormula) {
  const Tensor x = constant({0.3, -1.2}, {.dtype = float64});
  GradientTape outer, middle, inner;
  outer.watch(x), middle.watch(x), inner.watch(x);
  const Tensor first = inner.gradient(tanh(x), x);
  const Tensor second = middle.gradient(first, x);
  const Tensor third = outer.gradient(second, x);
  std::vector<double> expected;
  for (double value : values_of(x)) {
    const double t = std::tanh(value), s = 1 - t * t;
    expected.push_back(-2 * s * (s - 2 * t * t));
  }
  expect_tensor(third, float64, x.shape(), expected, 1e-12);
}

TEST(Unary, NanInfinityAndZeroGiveTheLimits) {
  const Tensor x = constant({kInfinity, -kInfinity, kNan, 0.0, -1.0});
  const Shape shape = {5};
  expect_tensor(exp(x), float32, shape, {kInfinity, 0.0, kNan, 1.0, std::exp(-1.0)}, 1e-7);
  expect_tensor(log(x), float32, shape, {kInfinity, kNan, kNan, -kInfinity, kNan});
  expect_tensor(tanh(x), float32, shape, {1.0, -1.0, kNan, 0.0, std::tanh(-1.0)}, 1e-7);
  expect_tensor(sigmoid(x), float32, shape, {1.0, 0.0, kNan, 0.5, 1 / (1 + std::exp(1.0))}, 1e-7);
  expect_tensor(sign(x), float32, shape, {1.0, -1.0, kNan, 0.0, -1.0});
  expect_tensor(is_nan(x), bool_, shape, {0, 0, 1, 0, 0});
  expect_tensor(is_finite(x), bool_, shape, {0, 0, 0, 1, 1});
}

TEST(Unary, RoundsHalvesToEven) {
  expect_tensor(round(constant({0.5, 1.5, 2.5, -0.5, -1.5})), float32, Shape({5}),
                {0, 2, 2, 0, -2});
}

TEST(Unary, IntegersKeepTheirDtype) {
  for (DType dtype : {int32, int64}) {
    const Tensor x = constant({-3, 0, 5}, {.dtype = dtype});
    expect_tensor(-x, dtype, Shape({3}), {3, 0, -5});
    expect_tensor(abs(x), dtype, Shape({3}), {3, 0, 5});
    expect_tensor(sign(x), dtype, Shape({3}), {-1, 0, 1});
    expect_tensor(square(x), dtype, Shape({3}), {9, 0, 25});
  }
  expect_tensor(square(constant({3, 20}, {.dtype = uint8})), uint8, Shape({2}), {9, 144});
}

TEST(Unary, RejectsOtherDtypes) {
  expect_error<InvalidArgumentError>([] { exp(constant({1})); },
                                     "[Exp] expected a floating dtype, got int32");
  expect_error<InvalidArgumentError>([] { floor(constant({1})); },
                                     "[Floor] expected a floating dtype, got int32");
  expect_error<InvalidArgumentError>([] { negative(constant({true})); },
                                     "[Neg] expected a floating or signed integer dtype, got bool");
  expect_error<InvalidArgumentError>([] { is_nan(constant({1})); },
                                     "[IsNan] expected a floating dtype, got int32");
}

}  // namespace
}  // namespace tandem::unary_test
