#include <gtest/gtest.h>

#include "support/gradient_check.h"
#include "tandem/math.h"

namespace tandem::compare_test {
namespace {

using namespace testing;

constexpr DType kNumbers[] = {float32, float64, float16, bfloat16, int32, int64, uint8};

TEST(Compare, EveryDtype) {
  for (DType dtype : kNumbers) {
    SCOPED_TRACE(::testing::Message() << dtype);
    const Tensor a = constant({1, 2, 3}, {.dtype = dtype}),
                 b = constant({3, 2, 1}, {.dtype = dtype});
    const Shape shape = {3};
    expect_tensor(equal(a, b), bool_, shape, {0, 1, 0});
    expect_tensor(not_equal(a, b), bool_, shape, {1, 0, 1});
    expect_tensor(less(a, b), bool_, shape, {1, 0, 0});
    expect_tensor(less_equal(a, b), bool_, shape, {1, 1, 0});
    expect_tensor(greater(a, b), bool_, shape, {0, 0, 1});
    expect_tensor(greater_equal(a, b), bool_, shape, {0, 1, 1});
    expect_tensor(equal(a, 2), bool_, shape, {0, 1, 0});
    expect_tensor(less(a, 2), bool_, shape, {1, 0, 0});
    expect_tensor(less_equal(a, 2), bool_, shape, {1, 1, 0});
    expect_tensor(greater(a, 2), bool_, shape, {0, 0, 1});
    expect_tensor(greater_equal(a, 2), bool_, shape, {0, 1, 1});
  }
  expect_tensor(equal(constant({true, false}), constant({true, true})), bool_, Shape({2}), {1, 0});
}

TEST(Compare, Broadcasts) {
  const Tensor row = constant({1, 2, 3}), column = constant({{2}, {3}});
  expect_tensor(less(row, column), bool_, Shape({2, 3}), {1, 0, 0, 1, 1, 0});
  expect_tensor(equal(row, zeros(Shape({0, 1}), {.dtype = int32})), bool_, Shape({0, 3}), {});
}

TEST(Compare, NanEqualsNothing) {
  const Tensor nan = constant({std::numeric_limits<float>::quiet_NaN()});
  expect_tensor(equal(nan, nan), bool_, Shape({1}), {0});
  expect_tensor(not_equal(nan, nan), bool_, Shape({1}), {1});
  expect_tensor(less_equal(nan, nan), bool_, Shape({1}), {0});
}

TEST(Compare, LogicalOperationsAreElementwise) {
  const Tensor a = constant({true, true, false, false}), b = constant({true, false, true, false});
  expect_tensor(logical_and(a, b), bool_, Shape({4}), {1, 0, 0, 0});
  expect_tensor(logical_or(a, b), bool_, Shape({4}), {1, 1, 1, 0});
  expect_tensor(logical_not(a), bool_, Shape({4}), {0, 0, 1, 1});
  expect_tensor(logical_and(a, constant(false)), bool_, Shape({4}), {0, 0, 0, 0});
}

TEST(Compare, InvalidArgumentsAreRefused) {
  expect_error<InvalidArgumentError>([] { less(constant({true}), constant({true})); },
                                     "[Less] expected a floating or integer dtype, got bool");
  expect_error<InvalidArgumentError>([] { logical_not(constant({1})); },
                                     "[LogicalNot] expected dtype bool, got int32");
  expect_error<InvalidArgumentError>([] { less(constant({1}), 2.5); },
                                     "[LessScalar] expected a number that int32");
  expect_error<InvalidArgumentError>(
      [] {
        equal(constant({1, 2}), constant({1, 2, 3}));
      },
      "[Equal] expected shapes that broadcast together, got (2,) and (3,)");
}

TEST(Where, EveryDtypeAndSize) {
  const Tensor condition = constant({true, false, true});
  for (DType dtype : kNumbers)
    expect_tensor(where(condition, constant({1, 2, 3}, {.dtype = dtype}),
                        constant({4, 5, 6}, {.dtype = dtype})),
                  dtype, Shape({3}), {1, 5, 3});
  expect_tensor(where(condition, constant({true, true, true}), constant({false, false, false})),
                bool_, Shape({3}), {1, 0, 1});
}

TEST(Where, BroadcastsAllThree) {
  const Tensor a = constant({{1, 2, 3}}), b = constant({{10}, {20}});
  const Tensor column = constant({{true}, {false}});
  expect_tensor(where(column, a, b), int32, Shape({2, 3}), {1, 2, 3, 20, 20, 20});
  const Tensor row = constant({true, false, true});
  expect_tensor(where(row, a, b), int32, Shape({2, 3}), {1, 10, 3, 1, 20, 3});
  expect_tensor(where(row, constant(7), b), int32, Shape({2, 3}), {7, 10, 7, 7, 20, 7});
  expect_tensor(where(row, a, constant(9)), int32, Shape({1, 3}), {1, 9, 3});
  expect_tensor(where(row, constant(7), constant(9)), int32, Shape({3}), {7, 9, 7});
  expect_tensor(where(constant(true), a, b), int32, Shape({2, 3}), {1, 2, 3, 1, 2, 3});
  expect_tensor(where(constant(false), constant(1), constant(2)), int32, Shape::scalar(), {2});
  expect_tensor(where(constant(true), zeros(Shape({0, 3})), ones(Shape({3}))), float32,
                Shape({0, 3}), {});
}

TEST(Where, GradientsMatchDifferences) {
  const Tensor condition = constant({{true, false, true}, {false, false, true}});
  const auto f = [](const std::vector<Tensor>& x) { return where(x[0], square(x[1]), exp(x[2])); };
  expect_gradients(f,
                   {condition, random_tensor(Shape({2, 3}), 1), random_tensor(Shape({2, 3}), 2)});
  expect_gradients(f, {condition, random_tensor(Shape({3}), 3), random_tensor(Shape({2, 1}), 4)});
  expect_gradients(
      f, {condition, random_tensor(Shape::scalar(), 5), random_tensor(Shape({4, 1, 1}), 6)});
  testing::expect_second_order(
      f, {condition, random_tensor(Shape({3}), 7), random_tensor(Shape({2, 1}), 8)});
}

TEST(Where, InvalidArgumentsAreRefused) {
  const Tensor x = constant({1.0, 2.0});
  expect_error<InvalidArgumentError>([&] { where(x, x, x); },
                                     "[SelectV2] expected a condition of dtype bool, got float32");
  expect_error<InvalidArgumentError>(
      [&] {
        where(constant(true), x, constant({1, 2}));
      },
      "[SelectV2] expected tensors of one dtype, got float32 and int32");
  expect_error<InvalidArgumentError>(
      [&] {
        where(constant({true, true, false}), x, x);
      },
      "[SelectV2] expected shapes that broadcast together, got (3,) and (2,)");
}

TEST(Cast, ConvertsEveryPairOfDtypes) {
  constexpr DType kAll[] = {float32, float64, float16, bfloat16, int32, int64, uint8, bool_};
  for (DType from : kAll)
    for (DType to : kAll) {
      SCOPED_TRACE(::testing::Message() << from << " to " << to);
      std::vector<double> expected = {0, 1, 1};
      Tensor x = constant({0, 1, 1}, {.dtype = from});
      if (from != bool_) {
        x = constant({0, 1, 7}, {.dtype = from});
        expected = {0, 1, to == bool_ ? 1.0 : 7.0};
      }
      expect_tensor(cast(x, to), to, Shape({3}), expected);
    }
}

TEST(Cast, TruncatesAndRounds) {
  expect_tensor(cast(constant({1.9, -1.9, 0.5}), int32), int32, Shape({3}), {1, -1, 0});
  expect_tensor(cast(constant({1.9, -1.9, 0.0}), bool_), bool_, Shape({3}), {1, 1, 0});
  expect_tensor(cast(constant({300, -1}), uint8), uint8, Shape({2}), {44, 255});
  expect_tensor(cast(constant({1.00390625, 1.01171875}), bfloat16), bfloat16, Shape({2}),
                {1.0, 1.015625});
  expect_tensor(cast(constant({65519.0, 65520.0}), float16), float16, Shape({2}),
                {65504.0, std::numeric_limits<double>::infinity()});
  expect_tensor(cast(zeros(Shape({0, 2})), int64), int64, Shape({0, 2}), {});
}

TEST(Cast, LargeTensorsInThirtyTwoAndSixteenBits) {
  const Tensor x = random_tensor(Shape({100003}), 1, -4, 4, float32);
  const auto values = x.to_vector<float>();
  const auto half = cast(x, float16).to_vector<Half>();
  const auto brain = cast(x, bfloat16).to_vector<BFloat16>();
  for (std::size_t i = 0; i < values.size(); ++i) {
    ASSERT_EQ(half[i].bits, Half(values[i]).bits);
    ASSERT_EQ(brain[i].bits, BFloat16(values[i]).bits);
  }
}

TEST(Cast, GradientComesBackInTheSourceDtype) {
  const Tensor x = constant({1.5, 2.5}, {.dtype = float32});
  GradientTape tape({.persistent = true});
  tape.watch(x);
  const Tensor y = square(cast(x, float64));
  expect_tensor(tape.gradient(y, x), float32, Shape({2}), {3.0, 5.0});
  EXPECT_FALSE(tape.gradient(cast(cast(x, int32), float32), x).defined());
}

}  // namespace
}  // namespace tandem::compare_test
