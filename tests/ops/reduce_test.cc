#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "support/gradient_check.h"
#include "support/thread_counts.h"
#include "tandem/math.h"

namespace tandem::reduce_test {
namespace {

using namespace testing;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

struct Case {
  const char* name;
  Tensor (*op)(const Tensor&, const ReduceOptions&);
  std::function<double(const std::vector<double>&)> exact;
};

double sum_of(const std::vector<double>& x) {
  double sum = 0;
  for (double value : x) sum += value;
  return sum;
}
double variance_of(const std::vector<double>& x) {
  const double mean = sum_of(x) / static_cast<double>(x.size());
  double sum = 0;
  for (double value : x) sum += (value - mean) * (value - mean);
  return sum / static_cast<double>(x.size());
}

const std::vector<Case>& cases() {
  static const std::vector<Case> all = {
      {"sum", reduce_sum, sum_of},
      {"mean", reduce_mean,
       [](const auto& x) { return sum_of(x) / static_cast<double>(x.size()); }},
      {"prod", reduce_prod,
       [](const auto& x) {
         double product = 1;
         for (double value : x) product *= value;
         return product;
       }},
      {"max", reduce_max, [](const auto& x) { return *std::max_element(x.begin(), x.end()); }},
      {"min", reduce_min, [](const auto& x) { return *std::min_element(x.begin(), x.end()); }},
      {"variance", reduce_variance, variance_of},
      {"std", reduce_std, [](const auto& x) { return std::sqrt(variance_of(x)); }},
      {"logsumexp", reduce_logsumexp,
       [](const auto& x) {
         double sum = 0;
         for (double value : x) sum += std::exp(value);
         return std::log(sum);
       }},
      {"norm", norm,
       [](const auto& x) {
         double sum = 0;
         for (double value : x) sum += value * value;
         return std::sqrt(sum);
       }},
  };
  return all;
}

// The input elements that are reduced to each output.
std::vector<std::vector<double>> groups_of(const Tensor& x, const std::vector<bool>& reduced) {
  const Shape& shape = x.shape();
  const auto values = values_of(x);
  std::int64_t outputs = 1;
  for (int axis = 0; axis < shape.rank(); ++axis)
    if (!reduced[static_cast<std::size_t>(axis)]) outputs *= shape[axis];
  std::vector<std::vector<double>> groups(static_cast<std::size_t>(outputs));
  for (std::int64_t i = 0; i < x.size(); ++i) {
    std::int64_t rest = i, output = 0, stride = 1;
    for (int axis = shape.rank() - 1; axis >= 0; --axis) {
      const std::int64_t index = rest % shape[axis];
      rest /= shape[axis];
      if (reduced[static_cast<std::size_t>(axis)]) continue;
      output += index * stride;
      stride *= shape[axis];
    }
    groups[static_cast<std::size_t>(output)].push_back(values[static_cast<std::size_t>(i)]);
  }
  return groups;
}

void check(const Case& test, const Tensor& x, const std::optional<Dims>& axes, double tolerance) {
  SCOPED_TRACE(::testing::Message() << test.name << ' ' << x.shape() << ' ' << x.dtype());
  std::vector<bool> reduced(static_cast<std::size_t>(x.rank()), !axes.has_value());
  if (axes)
    for (std::int64_t axis : *axes)
      reduced[static_cast<std::size_t>(axis < 0 ? axis + x.rank() : axis)] = true;
  Dims kept, removed;
  for (int axis = 0; axis < x.rank(); ++axis) {
    kept.push_back(reduced[static_cast<std::size_t>(axis)] ? 1 : x.shape().word(axis));
    if (!reduced[static_cast<std::size_t>(axis)]) removed.push_back(x.shape()[axis]);
  }
  std::vector<double> expected;
  for (const auto& group : groups_of(x, reduced)) expected.push_back(test.exact(group));
  expect_tensor(test.op(x, {.axis = axes}), x.dtype(), Shape(removed), expected, tolerance);
  expect_tensor(test.op(x, {.axis = axes, .keepdims = true}), x.dtype(), Shape(kept), expected,
                tolerance);
}

const std::optional<Dims> kAxesOfRank3[] = {
    std::nullopt, Dims(),       Dims({0}),    Dims({1}),       Dims({2}),
    Dims({0, 1}), Dims({0, 2}), Dims({1, 2}), Dims({0, 1, 2}), Dims({-1, 0})};

TEST(Reduce, EveryCombinationOfAxes) {
  for (const Case& test : cases())
    for (const auto& axes : kAxesOfRank3)
      check(test, random_tensor(Shape({3, 4, 5}), 1), axes, 1e-12);
}

TEST(Reduce, AxesOfSizeOneAndHighRanks) {
  for (const auto& axes : {Dims({1}), Dims({0, 2, 4}), Dims({1, 3}), Dims({0, 3, 4})})
    check(cases()[0], random_tensor(Shape({2, 3, 1, 4, 5}), 2), axes, 1e-12);
  check(cases()[0], random_tensor(Shape::scalar(), 2), std::nullopt, 1e-12);
  check(cases()[3], random_tensor(Shape({1, 1}), 2), Dims({0}), 1e-12);
}

TEST(Reduce, EveryFloatingDtype) {
  for (const Case& test : cases())
    for (DType dtype : testing::kFloatingTypes)
      for (const auto& axes : {Dims({0}), Dims({1})}) {
        const double low = std::string(test.name) == "prod" ? 0.9 : -2.0;
        check(test, random_tensor(Shape({17, 19}), 3, low, 1.1, dtype), axes,
              8 * epsilon_of(dtype));
      }
}

// Sizes around and beyond the blocks: runs, rows, columns, and pieces of runs.
TEST(Reduce, LargeSizes) {
  const struct {
    Shape shape;
    std::optional<Dims> axes;
  } shapes[] = {
      {Shape({100003}), std::nullopt},       {Shape({3, 10007}), Dims({1})},
      {Shape({1000, 70}), Dims({1})},        {Shape({1000, 70}), Dims({0})},
      {Shape({130, 700}), Dims({0})},        {Shape({63, 3}), Dims({0})},
      {Shape({65, 1}), Dims({0})},           {Shape({40, 30, 70}), Dims({1})},
      {Shape({40, 30, 70}), Dims({0, 2})},   {Shape({3, 5, 5000}), Dims({0, 2})},
      {Shape({9, 8, 7, 600}), Dims({0, 2})},
  };
  for (const auto& test : shapes) {
    check(cases()[0], random_tensor(test.shape, 4), test.axes, 1e-11);
    check(cases()[3], random_tensor(test.shape, 5, -2, 2, float32), test.axes, 0.0);
  }
}

TEST(Reduce, TheSameBitsForAnyNumberOfThreads) {
  testing::expect_same_bits_with_any_team([] {
    std::vector<double> sums;
    const Tensor x = random_tensor(Shape({300, 40, 33}), 6, -2, 2, float32);
    for (const auto& axes :
         {std::optional<Dims>(), std::optional(Dims({0})), std::optional(Dims({1})),
          std::optional(Dims({0, 2})), std::optional(Dims({2}))})
      for (const double sum : values_of(reduce_sum(x, {.axis = axes}))) sums.push_back(sum);
    return sums;
  });
}

TEST(Reduce, LongSumsStayAccurate) {
  // A single float32 accumulator would stop growing at 2^24.
  EXPECT_EQ(reduce_sum(ones(Shape({40000000}))).item<float>(), 40000000.0f);
  EXPECT_EQ(reduce_sum(ones(Shape({1 << 20, 3})), {.axis = Dims({0})}).to_vector<float>(),
            std::vector<float>(3, 1048576.0f));
  // Sums of float16 are kept in float32.
  EXPECT_EQ(
      static_cast<float>(reduce_mean(full(Shape({100000}), 2.0, {.dtype = float16})).item<Half>()),
      2.0f);
}

TEST(Reduce, IntegersKeepTheirDtype) {
  for (DType dtype : {int32, int64, uint8}) {
    const Tensor x = constant({{1, 5, 3}, {4, 2, 6}}, {.dtype = dtype});
    expect_tensor(reduce_sum(x, {.axis = Dims({0})}), dtype, Shape({3}), {5, 7, 9});
    expect_tensor(reduce_sum(x, {.axis = {0}}), dtype, Shape({3}), {5, 7, 9});
    expect_tensor(reduce_sum(x, {.axis = {0, -1}}), dtype, Shape::scalar(), {21});
    expect_tensor(reduce_sum(x, {.axis = {}}), dtype, Shape::scalar(), {21});
    expect_tensor(reduce_prod(x, {.axis = Dims({1})}), dtype, Shape({2}), {15, 48});
    expect_tensor(reduce_max(x), dtype, Shape::scalar(), {6});
    expect_tensor(reduce_min(x, {.axis = Dims({1})}), dtype, Shape({2}), {1, 2});
  }
}

TEST(Reduce, AnyAndAllReduceBooleans) {
  const Tensor x = constant({{true, false}, {true, true}});
  expect_tensor(reduce_any(x, {.axis = Dims({1})}), bool_, Shape({2}), {1, 1});
  expect_tensor(reduce_all(x, {.axis = Dims({1})}), bool_, Shape({2}), {0, 1});
  expect_tensor(reduce_all(x), bool_, Shape::scalar(), {0});
  const Tensor many = less(range(100000), 99999);
  EXPECT_FALSE(reduce_all(many).item<bool>());
  EXPECT_TRUE(reduce_any(logical_not(many)).item<bool>());
}

TEST(Reduce, EmptyAxesGiveTheNeutralElement) {
  const Tensor empty = zeros(Shape({0, 2}));
  const ReduceOptions first = {.axis = Dims({0})};
  expect_tensor(reduce_sum(empty, first), float32, Shape({2}), {0, 0});
  expect_tensor(reduce_prod(empty, first), float32, Shape({2}), {1, 1});
  expect_tensor(reduce_max(empty, first), float32, Shape({2}), {-kInfinity, -kInfinity});
  expect_tensor(reduce_min(empty, first), float32, Shape({2}), {kInfinity, kInfinity});
  expect_tensor(reduce_mean(empty), float32, Shape::scalar(), {kNan});
  expect_tensor(reduce_sum(empty, {.axis = Dims({1})}), float32, Shape({0}), {});
  expect_tensor(reduce_any(zeros(Shape({0}), {.dtype = bool_})), bool_, Shape::scalar(), {0});
  expect_tensor(reduce_all(zeros(Shape({0}), {.dtype = bool_})), bool_, Shape::scalar(), {1});
}

TEST(Reduce, NanAndInfinityPropagate) {
  const Tensor x =
      constant({{1.0, kNan, 3.0}, {-kInfinity, -kInfinity, -kInfinity}, {1000.0, 1000.0, -1000.0}});
  const ReduceOptions last = {.axis = Dims({1})};
  expect_tensor(reduce_max(x, last), float32, Shape({3}), {kNan, -kInfinity, 1000.0});
  expect_tensor(reduce_min(x, last), float32, Shape({3}), {kNan, -kInfinity, -1000.0});
  expect_tensor(reduce_logsumexp(x, last), float32, Shape({3}),
                {kNan, -kInfinity, 1000.0 + std::log(2.0)}, 1e-6);
}

TEST(Reduce, GradientsMatchDifferences) {
  for (const Case& test : cases())
    for (const auto& axes : kAxesOfRank3) {
      SCOPED_TRACE(test.name);
      if (axes && axes->empty() &&
          (std::string(test.name) == "std" || std::string(test.name) == "norm"))
        continue;  // not differentiable: the root of the square of a single element
      for (bool keepdims : {false, true})
        expect_gradients(
            [&](const std::vector<Tensor>& x) {
              return test.op(x[0], {.axis = axes, .keepdims = keepdims});
            },
            {random_tensor(Shape({2, 3, 2}), 7)}, {.tolerance = 2e-6});
    }
}

TEST(Reduce, SecondDerivativesMatchDifferences) {
  for (const Case& test : cases())
    expect_second_order(
        [&](const std::vector<Tensor>& x) { return square(test.op(x[0], {.axis = Dims({1})})); },
        {random_tensor(Shape({2, 3}), 8)}, {.tolerance = 1e-5});
}

TEST(Reduce, GradientOfProductsWithZeros) {
  const Tensor x =
      constant({{0.0, 2.0, 3.0}, {0.0, 0.0, 3.0}, {1.0, 2.0, 3.0}}, {.dtype = float64});
  const auto product_of = [](const Dims& axes) {
    return [axes](const std::vector<Tensor>& v) { return reduce_prod(v[0], {.axis = axes}); };
  };
  for (const Dims& axes : {Dims({1}), Dims({0}), Dims({0, 1})}) {
    expect_gradients(product_of(axes), {x});
    expect_second_order(product_of(axes), {x});
  }
  // More than two elements, and axes apart from one another.
  const Tensor cube = random_tensor(Shape({3, 2, 3}), 9);
  for (const Dims& axes : {Dims({0, 2}), Dims({2, 0}), Dims({-1}), Dims({0, 1, 2})}) {
    expect_gradients(product_of(axes), {cube});
    expect_second_order(product_of(axes), {cube});
  }
  const Tensor none = zeros({0, 3});
  GradientTape tape;
  tape.watch(none);
  expect_tensor(tape.gradient(reduce_prod(none, {.axis = Dims({0})}), none), float32, {0, 3}, {});
}

TEST(Reduce, TiesShareTheGradientOfExtrema) {
  const Tensor x = constant({2.0, 1.0, 2.0});
  GradientTape tape;
  tape.watch(x);
  expect_tensor(tape.gradient(reduce_max(x), x), float32, Shape({3}), {0.5, 0.0, 0.5});
}

TEST(Reduce, NormOfZerosHasAZeroGradient) {
  const Tensor x = zeros(Shape({3}));
  GradientTape tape;
  tape.watch(x);
  expect_tensor(tape.gradient(norm(x), x), float32, Shape({3}), {0, 0, 0});
}

TEST(Reduce, InvalidArgumentsAreRefused) {
  const Tensor x = random_tensor(Shape({2, 3}));
  expect_error<InvalidArgumentError>([&] { reduce_sum(x, {.axis = Dims({2})}); },
                                     "[Sum] expected an axis in [-2, 2), got 2");
  expect_error<InvalidArgumentError>(
      [&] {
        reduce_max(x, {.axis = Dims({1, -1})});
      },
      "[Max] expected distinct axes, got -1 twice");
  expect_error<InvalidArgumentError>([] { reduce_mean(constant({1})); },
                                     "[Mean] expected a floating dtype, got int32");
  expect_error<InvalidArgumentError>([&] { reduce_any(x); },
                                     "[Any] expected dtype bool, got float64");
}

TEST(ArgReduce, FirstOfEqualsAlongEveryAxis) {
  const Tensor x = constant({{1, 5, 5}, {7, 2, 5}});
  expect_tensor(argmax(x, 0), int64, Shape({3}), {1, 0, 0});
  expect_tensor(argmax(x, 1), int64, Shape({2}), {1, 0});
  expect_tensor(argmax(x, -1), int64, Shape({2}), {1, 0});
  expect_tensor(argmin(x, 0), int64, Shape({3}), {0, 1, 0});
  expect_tensor(argmin(x, 1), int64, Shape({2}), {0, 1});
  for (DType dtype : {float32, float64, float16, bfloat16, int64, uint8})
    expect_tensor(argmax(cast(x, dtype), 1), int64, Shape({2}), {1, 0});
  expect_tensor(argmax(constant({1.0, kNan, 3.0, kNan})), int64, Shape::scalar(), {1});
}

TEST(ArgReduce, AgreesWithASearch) {
  const Tensor x = random_tensor(Shape({5, 201, 7}), 9, -1, 1, float32);
  const auto values = x.to_vector<float>();
  const auto found = argmax(x, 1).to_vector<std::int64_t>();
  for (std::size_t outer = 0; outer < 5; ++outer)
    for (std::size_t inner = 0; inner < 7; ++inner) {
      std::size_t best = 0;
      for (std::size_t k = 1; k < 201; ++k)
        if (values[(outer * 201 + k) * 7 + inner] > values[(outer * 201 + best) * 7 + inner])
          best = k;
      EXPECT_EQ(found[outer * 7 + inner], static_cast<std::int64_t>(best));
    }
}

// Values that repeat, so that there are several extrema, and NaN in every other run.
TEST(ArgReduce, LongRunsOfEqualsAndNaN) {
  for (const std::size_t length : {31, 64, 65, 100, 300})
    for (const std::size_t inner : {1, 300}) {
      std::vector<double> values = random_values(static_cast<std::int64_t>(4 * length * inner), 3);
      for (double& value : values) value = std::floor(value * 2);
      const auto at = [&](std::size_t run, std::size_t k) -> double& {
        return values[(run / inner * length + k) * inner + run % inner];
      };
      for (std::size_t run = 0; run < 4 * inner; run += 2)
        for (std::size_t k = run % length; k < length; k += 7) at(run, k) = kNan;
      const Tensor x = constant(values, {.dtype = float32,
                                         .shape = {4, static_cast<std::int64_t>(length),
                                                   static_cast<std::int64_t>(inner)}});
      const auto high = argmax(x, 1).to_vector<std::int64_t>();
      const auto low = argmin(x, 1).to_vector<std::int64_t>();
      for (std::size_t run = 0; run < 4 * inner; ++run) {
        std::size_t best = 0, least = 0;
        for (std::size_t k = length; k-- > 0;) {
          if (!(at(run, k) < at(run, best)) && !std::isnan(at(run, best))) best = k;
          if (!(at(run, k) > at(run, least)) && !std::isnan(at(run, least))) least = k;
          if (std::isnan(at(run, k))) best = least = k;
        }
        ASSERT_EQ(high[run], static_cast<std::int64_t>(best))
            << "length " << length << ", run " << run;
        ASSERT_EQ(low[run], static_cast<std::int64_t>(least))
            << "length " << length << ", run " << run;
      }
    }
}

TEST(ArgReduce, EmptyAxesAndErrors) {
  expect_tensor(argmax(zeros(Shape({0, 3})), 1), int64, Shape({0}), {});
  expect_error<InvalidArgumentError>(
      [] {
        argmax(zeros(Shape({3, 0})), 1);
      },
      "[ArgMax] expected at least one element along axis 1, got shape (3, 0)");
  expect_error<InvalidArgumentError>([] { argmin(zeros(Shape({3})), 1); },
                                     "[ArgMin] expected an axis in [-1, 1), got 1");
}

TEST(Cumsum, AlongEveryAxis) {
  const Tensor x = constant({{1, 2, 3}, {4, 5, 6}});
  expect_tensor(cumsum(x), int32, Shape({2, 3}), {1, 2, 3, 5, 7, 9});
  expect_tensor(cumsum(x, 1), int32, Shape({2, 3}), {1, 3, 6, 4, 9, 15});
  expect_tensor(cumsum(x, -1), int32, Shape({2, 3}), {1, 3, 6, 4, 9, 15});
  for (DType dtype : testing::kFloatingTypes)
    expect_tensor(cumsum(cast(x, dtype), 1), dtype, Shape({2, 3}), {1, 3, 6, 4, 9, 15});
  expect_tensor(cumsum(zeros(Shape({0, 2}))), float32, Shape({0, 2}), {});
  expect_error<InvalidArgumentError>([&] { cumsum(x, 2); },
                                     "[Cumsum] expected an axis in [-2, 2), got 2");
}

TEST(Cumsum, SumsLongRunsInBothDirections) {
  for (const DType dtype : {float32, float64, float16})  // bfloat16 does not hold the sums
    for (const std::int64_t axis : {0, 1}) {
      const Shape shape = axis == 0 ? Shape({1300, 700}) : Shape({3, 1300});
      const Tensor x = ones(shape, {.dtype = dtype});
      GradientTape tape;
      tape.watch(x);
      const Tensor sums = cumsum(x, axis);
      const std::vector<double> forward = values_of(sums),
                                backward = values_of(tape.gradient(sums, x));
      for (std::size_t i = 0; i < forward.size(); ++i) {
        const std::size_t columns = static_cast<std::size_t>(shape.dim(1));
        const auto at = static_cast<double>(axis == 0 ? i / columns : i % columns);
        ASSERT_EQ(forward[i], at + 1) << i;
        ASSERT_EQ(backward[i], 1300 - at) << i;
      }
    }
}

TEST(Cumsum, GradientsMatchDifferences) {
  for (std::int64_t axis : {0, 1, 2})
    expect_gradients([=](const std::vector<Tensor>& x) { return cumsum(square(x[0]), axis); },
                     {random_tensor(Shape({2, 3, 2}), 10)});
  expect_second_order([](const std::vector<Tensor>& x) { return square(cumsum(x[0], 1)); },
                      {random_tensor(Shape({2, 3}), 11)});
}

TEST(Reduce, TheGradientOfAStandardDeviationOfZeroIsZero) {
  const Tensor x = constant({2.0, 2.0, 2.0, 1.0, 2.0, 3.0}, {.dtype = float64, .shape = {2, 3}});
  GradientTape tape;
  tape.watch(x);
  const Tensor y = reduce_std(x, {.axis = {1}});
  const double slope = 1.0 / 3 / std::sqrt(2.0 / 3);
  expect_tensor(tape.gradient(y, x), float64, {2, 3}, {0, 0, 0, -slope, 0, slope}, 1e-12);
}

TEST(Reduce, SixteenBitMomentsAndSumsAreKeptInFloat32) {
  const Tensor x = constant({-400.0, 400.0}, {.dtype = float16});
  expect_tensor(reduce_std(x), float16, Shape::scalar(), {400.0});
  EXPECT_TRUE(std::isinf(values_of(reduce_variance(x))[0]));  // 160,000 is beyond float16
  expect_tensor(reduce_variance(x / 2.0), float16, Shape::scalar(), {40000.0});
  expect_tensor(reduce_logsumexp(zeros({70000}, {.dtype = float16})), float16, Shape::scalar(),
                {std::log(70000.0)}, epsilon_of(float16));
}

TEST(Reduce, MeansOfManySixteenBitElementsHaveGradients) {
  for (const auto& [dtype, count] : {std::pair{float16, 65536}, std::pair{bfloat16, 511}}) {
    const Tensor x = ones({count}, {.dtype = dtype});
    GradientTape tape;
    tape.watch(x);
    for (const double each : values_of(tape.gradient(reduce_mean(x), x)))
      ASSERT_NEAR(each * count, 1.0, testing::epsilon_of(dtype) / 2);
  }
}

// More equal elements than float16 can count.
TEST(Reduce, ManyExtremaShareTheGradientInFloat16) {
  const Tensor x = ones({70000}, {.dtype = float16});
  GradientTape tape;
  tape.watch(x);
  const Tensor y = reduce_max(x);
  const double share = values_of(tape.gradient(y, x))[69999];
  EXPECT_NEAR(share, 1.0 / 70000, 1e-7);
}

}  // namespace
}  // namespace tandem::reduce_test
