#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <span>

#include "support/tensors.h"

namespace tandem::creation_test {
namespace {

using testing::expect_error;
using testing::expect_tensor;

TEST(Constant, DtypeOfLiterals) {
  EXPECT_EQ(constant(1).dtype(), int32);
  EXPECT_EQ(constant(1.0).dtype(), float32);
  EXPECT_EQ(constant(1.0f).dtype(), float32);
  EXPECT_EQ(constant(true).dtype(), bool_);
  EXPECT_EQ(constant({1, 2.0}).dtype(), float32);
  EXPECT_EQ(constant({true, false}).dtype(), bool_);
  EXPECT_EQ(constant({1, true}).dtype(), float32);
  EXPECT_EQ(constant({1, 2}, {.dtype = uint8}).dtype(), uint8);
}

TEST(Constant, ShapeOfNestedLists) {
  expect_tensor(constant(5), int32, Shape::scalar(), {5});
  expect_tensor(constant({5}), int32, Shape({1}), {5});
  expect_tensor(constant({{1.0, 2.0, 3.0}, {4.0, 5.0, 6.0}}), float32, Shape({2, 3}),
                {1, 2, 3, 4, 5, 6});
  expect_tensor(constant({{{1}, {2}}, {{3}, {4}}, {{5}, {6}}}), int32, Shape({3, 2, 1}),
                {1, 2, 3, 4, 5, 6});
  expect_tensor(constant({}), float32, Shape({0}), {});
}

TEST(Constant, TakesTheShapeOfItsOptions) {
  expect_tensor(constant({1, 2, 3, 4}, {.shape = Shape({2, 2})}), int32, Shape({2, 2}),
                {1, 2, 3, 4});
  expect_tensor(constant(7, {.shape = Shape({2, 2})}), int32, Shape({2, 2}), {7, 7, 7, 7});
  expect_error<InvalidArgumentError>(
      [] {
        constant({1, 2, 3}, {.shape = Shape({2, 2})});
      },
      "[Const] expected 4 elements for shape (2, 2), got 3");
  expect_error<InvalidArgumentError>(
      [] {
        constant({1, 2}, {.shape = Shape({-1})});
      },
      "[Const] expected a fully defined shape");
}

TEST(Constant, RaggedListsAreRefused) {
  expect_error<InvalidArgumentError>(
      [] {
        constant({{1, 2}, {3}});
      },
      "[Const] expected lists of one length, 2 items at depth 1, got 1");
  expect_error<InvalidArgumentError>(
      [] {
        constant({Literal({1, 2}), Literal(3)});
      },
      "[Const] expected lists of one depth");
}

TEST(Constant, ValuesThatTheDtypeCannotHoldAreRefused) {
  expect_error<InvalidArgumentError>([] { constant({2.5}, {.dtype = int32}); },
                                     "[Const] expected a number that int32 holds, got 2.5");
  expect_error<InvalidArgumentError>([] { constant({3000000000}); }, "int32 holds");
  expect_error<InvalidArgumentError>([] { constant({-1}, {.dtype = uint8}); }, "uint8 holds");
  expect_error<InvalidArgumentError>([] { constant({70000.0}, {.dtype = float16}); },
                                     "float16 holds");
  expect_error<InvalidArgumentError>([] { constant({2}, {.dtype = bool_}); }, "bool holds");
  EXPECT_EQ(constant(9007199254740993, {.dtype = int64}).item<std::int64_t>(), 9007199254740993);
}

TEST(Constant, TakesVectorsOfEveryDtype) {
  expect_tensor(constant(std::vector<float>{1, 2}), float32, Shape({2}), {1, 2});
  expect_tensor(constant(std::vector<double>{1, 2}), float64, Shape({2}), {1, 2});
  expect_tensor(constant(std::vector<std::int32_t>{1, 2}, {.shape = Shape({2, 1})}), int32,
                Shape({2, 1}), {1, 2});
  expect_tensor(constant(std::vector<std::int64_t>{1, 2}, {.dtype = float16}), float16, Shape({2}),
                {1, 2});
  expect_tensor(constant(std::vector<std::uint8_t>{1, 255}), uint8, Shape({2}), {1, 255});
  expect_tensor(constant(std::vector<bool>{true, false}), bool_, Shape({2}), {1, 0});
  expect_tensor(constant(std::vector<float>{}), float32, Shape({0}), {});
  expect_error<InvalidArgumentError>(
      [] {
        constant(std::vector<float>{1, 2, 3}, {.shape = Shape({2})});
      },
      "[Const] expected 2 elements for shape (2,), got 3");
}

TEST(Creation, FillsEveryDtype) {
  for (DType dtype : {float32, float64, float16, bfloat16, int32, int64, uint8, bool_}) {
    expect_tensor(zeros(Shape({2, 3}), {.dtype = dtype}), dtype, Shape({2, 3}),
                  std::vector<double>(6, 0));
    expect_tensor(ones(Shape({2}), {.dtype = dtype}), dtype, Shape({2}), {1, 1});
  }
  expect_tensor(full(Shape({70000}), 2.5), float32, Shape({70000}),
                std::vector<double>(70000, 2.5));
  expect_tensor(zeros(Shape()), float32, Shape::scalar(), {0});
  expect_tensor(full(Shape({0, 3}), 1), float32, Shape({0, 3}), {});
  const Tensor x = constant({{1, 2}}, {.dtype = int64});
  expect_tensor(zeros_like(x), int64, Shape({1, 2}), {0, 0});
  expect_tensor(ones_like(x), int64, Shape({1, 2}), {1, 1});
  expect_error<InvalidArgumentError>([] { full(Shape({2}), 0.5, {.dtype = int32}); },
                                     "[Fill] expected a number that int32");
  expect_error<InvalidArgumentError>([] { zeros(Shape({-1})); },
                                     "[Fill] expected a shape of sizes of at least 0");
}

TEST(Creation, RangeExcludesItsLimit) {
  expect_tensor(range(4), int32, Shape({4}), {0, 1, 2, 3});
  expect_tensor(range(0), int32, Shape({0}), {});
  expect_tensor(range(3, {.dtype = float16}), float16, Shape({3}), {0, 1, 2});
  expect_tensor(range(1.0, 2.0, 0.25), float32, Shape({4}), {1, 1.25, 1.5, 1.75});
  expect_tensor(range(3.0, 0.0, -1.0), float32, Shape({3}), {3, 2, 1});
  expect_tensor(range(5.0, 0.0), float32, Shape({0}), {});
  expect_tensor(range(3.0), float32, Shape({3}), {0, 1, 2});
  expect_tensor(range(2.5F), float32, Shape({3}), {0, 1, 2});
  expect_tensor(range(2.0, {.dtype = int64}), int64, Shape({2}), {0, 1});
  expect_tensor(range(2, 5), int32, Shape({3}), {2, 3, 4});
  expect_tensor(range(std::int64_t{5}, 0, -2), int32, Shape({3}), {5, 3, 1});
  expect_tensor(range(0, 2, 1, {.dtype = float64}), float64, Shape({2}), {0, 1});
  expect_tensor(range(0, 1, 0.5), float32, Shape({2}), {0, 0.5});
  EXPECT_EQ(range(100000).to_vector<int>()[99999], 99999);
  expect_error<InvalidArgumentError>([] { range(0.0, std::nan("")); },
                                     "[Range] expected bounds that are numbers, got 0 and nan");
  expect_error<InvalidArgumentError>([] { range(0.0, 1.0, 0.0); },
                                     "[Range] expected a finite delta other than 0");
  expect_error<InvalidArgumentError>([] { range(300, {.dtype = uint8}); },
                                     "[Range] expected a number that uint8 holds");
}

TEST(Creation, LinspaceIncludesBothEnds) {
  expect_tensor(linspace(0.0, 1.0, 5), float32, Shape({5}), {0, 0.25, 0.5, 0.75, 1});
  expect_tensor(linspace(2.0, 3.0, 1), float32, Shape({1}), {2});
  expect_tensor(linspace(2.0, 3.0, 0), float32, Shape({0}), {});
  EXPECT_EQ(linspace(0.0, 0.3, 4, {.dtype = float64}).to_vector<double>().back(), 0.3);
  expect_error<InvalidArgumentError>([] { linspace(0, 1, -1); },
                                     "[LinSpace] expected a count of at least 0, got -1");
}

TEST(Creation, EyeHasOnesOnItsDiagonal) {
  expect_tensor(eye(2), float32, Shape({2, 2}), {1, 0, 0, 1});
  expect_error<InvalidArgumentError>([] { eye(3, -3); },
                                     "[Eye] expected columns of at least 0, or -1 for a square");
  expect_tensor(eye(2, 3, {.dtype = int32}), int32, Shape({2, 3}), {1, 0, 0, 0, 1, 0});
  expect_tensor(eye(3, 1), float32, Shape({3, 1}), {1, 0, 0});
  expect_tensor(eye(0), float32, Shape({0, 0}), {});
  expect_error<InvalidArgumentError>([] { eye(-2); },
                                     "[Eye] expected a shape of sizes of at least 0");
}

TEST(Constant, TakesSpansArraysAndRows) {
  const double numbers[] = {1, 2, 3, 4, 5, 6};
  expect_tensor(constant(std::span(numbers, 6), {.shape = {2, 3}}), float64, {2, 3},
                {1, 2, 3, 4, 5, 6});
  expect_tensor(constant(std::array<float, 2>{1, 2}), float32, {2}, {1, 2});
  expect_tensor(constant(std::vector<std::vector<float>>{{1, 2, 3}, {4, 5, 6}}), float32, {2, 3},
                {1, 2, 3, 4, 5, 6});
  expect_tensor(Tensor(std::vector<std::vector<int>>{{1}, {2}}), int32, {2, 1}, {1, 2});
  expect_tensor(Tensor(std::vector<bool>{true, false}), bool_, {2}, {1, 0});
  expect_error<ShapeError>(
      [] {
        static_cast<void>(constant(std::vector<std::vector<float>>{{1, 2}, {3}}));
      },
      "[Const] expected rows of one length, 2 numbers, got 1 in row 1");
}

TEST(Constant, TakesEveryArithmeticType) {
  expect_tensor(constant(std::vector<std::int8_t>{-1}), int32, {1}, {-1});
  expect_tensor(constant(std::vector<std::int16_t>{-300}), int32, {1}, {-300});
  expect_tensor(constant(std::vector<std::uint16_t>{65535}), int32, {1}, {65535});
  expect_tensor(constant(std::vector<std::uint32_t>{4294967295u}), int64, {1}, {4294967295.0});
  expect_tensor(constant(std::vector<long long>{-5}), int64, {1}, {-5});
  expect_tensor(constant(std::vector<unsigned long long>{5}), int64, {1}, {5});
  expect_tensor(constant(std::vector<char>{'a'}, {.dtype = uint8}), uint8, {1}, {97});
  expect_tensor(constant(std::vector<long double>{0.5L}), float64, {1}, {0.5});
  expect_error<InvalidArgumentError>(
      [] { static_cast<void>(constant(std::vector<std::uint64_t>{~std::uint64_t{0}})); },
      "[Const] expected a number that int64 holds");
}

TEST(Creation, HasTheDtypesOfPyTorchAndNumPy) {
  expect_tensor(arange(3), int64, {3}, {0, 1, 2});
  expect_tensor(arange(1, 7, 2), int64, {3}, {1, 3, 5});
  expect_tensor(arange(0.0, 1.0, 0.5), float32, {2}, {0, 0.5});
  expect_tensor(arange(2, {.dtype = float64}), float64, {2}, {0, 1});
  expect_tensor(tensor({1, 2}), int64, {2}, {1, 2});
  expect_tensor(tensor({1.0, 2.0}), float32, {2}, {1, 2});
  expect_tensor(tensor(std::vector<double>{1.0}), float64, {1}, {1});
}

TEST(Creation, TakesADtypeADeviceAndGradients) {
  expect_tensor(zeros({2}, int64), int64, {2}, {0, 0});
  expect_tensor(full({1}, 3, float64), float64, {1}, {3});
  EXPECT_TRUE(zeros({2}, {.requires_grad = true}).requires_grad());
  EXPECT_TRUE(constant({1.0}, {.requires_grad = true}).requires_grad());
  EXPECT_TRUE(tensor({1.0, 2.0}, {.dtype = float64, .requires_grad = true}).requires_grad());
  EXPECT_NE(ones({2}, {.device = "/cpu:0"}).device().find("CPU:0"), std::string::npos);
  expect_error<InvalidArgumentError>(
      [] { static_cast<void>(zeros({2}, {.dtype = int32, .requires_grad = true})); },
      "only floating tensors have gradients");
}

TEST(Constant, TakesAShapeOrADtypeAlone) {
  const std::vector<float> numbers = {1, 2, 3, 4};
  expect_tensor(constant(numbers, {2, 2}), float32, {2, 2}, {1, 2, 3, 4});
  expect_tensor(Tensor(numbers, {4, 1}), float32, {4, 1}, {1, 2, 3, 4});
  expect_tensor(constant(numbers, float64), float64, {4}, {1, 2, 3, 4});
  expect_tensor(constant({1, 2}, float64), float64, {2}, {1, 2});
  expect_tensor(constant(std::array<int, 2>{5, 6}, {1, 2}), int32, {1, 2}, {5, 6});
}

}  // namespace
}  // namespace tandem::creation_test
