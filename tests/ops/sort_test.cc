// Sorting, diagonals, and what else PyTorch's tensors have as methods.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "support/gradient_check.h"
#include "support/tensors.h"
#include "tandem/tandem.h"

namespace tandem::sort_test {
namespace {

using namespace testing;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

TEST(Sort, AlongAnyAxisInBothDirections) {
  const Tensor x = constant({{3.0, 1.0, 2.0}, {0.0, 5.0, 4.0}}, float64);
  const auto [rows, in_rows] = sort(x);
  expect_tensor(rows, float64, {2, 3}, {1, 2, 3, 0, 4, 5});
  expect_tensor(in_rows, int64, {2, 3}, {1, 2, 0, 0, 2, 1});
  const auto [columns, in_columns] = x.sort(0, true);
  expect_tensor(columns, float64, {2, 3}, {3, 5, 4, 0, 1, 2});
  expect_tensor(in_columns, int64, {2, 3}, {0, 1, 1, 1, 0, 0});
  expect_tensor(x.argsort(1, true), int64, {2, 3}, {0, 2, 1, 1, 2, 0});
  const Tensor values = sort(x);  // as tf.sort
  expect_tensor(values, float64, {2, 3}, {1, 2, 3, 0, 4, 5});
}

TEST(Sort, MovesAnAxisInTheMiddleThereAndBack) {
  const Tensor x = random_tensor({2, 3, 4});
  const Tensor sorted = sort(x, 1).values;
  const Tensor expected = sort(transpose(x, {0, 2, 1})).values;
  EXPECT_EQ(values_of(sorted), values_of(transpose(expected, {0, 2, 1})));
  EXPECT_EQ(values_of(sort(x, 0).values), values_of(x.T().sort(-1).values.T()));
}

TEST(Sort, EqualElementsKeepTheirOrderAndNanIsLargest) {
  const Tensor x = constant({2.0, kNan, 1.0, 2.0, 1.0}, float64);
  expect_tensor(argsort(x), int64, {5}, {2, 4, 0, 3, 1});
  expect_tensor(argsort(x, 0, true), int64, {5}, {1, 0, 3, 2, 4});
  EXPECT_TRUE(std::isnan(sort(x).values[4].item<double>()));
}

TEST(Sort, KeepsLargeIntegersAndBools) {
  const std::int64_t large = (std::int64_t{1} << 60) + 1;
  const Tensor x = constant(std::vector<std::int64_t>{large, large - 1, 3});
  EXPECT_EQ(sort(x).values.to_vector<std::int64_t>(),
            (std::vector<std::int64_t>{3, large - 1, large}));
  EXPECT_EQ(argsort(constant({true, false})).to_vector<std::int64_t>(),
            (std::vector<std::int64_t>{1, 0}));
  EXPECT_EQ(sort(zeros({2, 0})).values.shape(), Shape({2, 0}));
}

TEST(Sort, IsDifferentiable) {
  expect_gradients([](const std::vector<Tensor>& in) { return square(sort(in[0], 0).values); },
                   {random_tensor({3, 4})});
}

TEST(Sort, RunsInFunctionsWithUnknownSizes) {
  const auto traced = function([](const Tensor& x) { return sort(x, 0, true).values; },
                               {.input_signature = {{.shape = {-1, -1}, .dtype = float64}}});
  for (const Shape& shape : {Shape{4, 3}, Shape{1, 5}, Shape{0, 2}}) {
    const Tensor x = random_tensor(shape);
    EXPECT_EQ(values_of(traced(x)), values_of(sort(x, 0, true).values));
  }
}

TEST(Sort, EqualsAStableSortOfEveryDtype) {
  const Tensor x = round(random_tensor({3, 700}, 1, -30.0, 30.0));
  for (const DType dtype : {float32, float64, float16, bfloat16, int32, int64}) {
    const Tensor numbers = cast(x, dtype);
    const auto values = values_of(cast(numbers, float64));
    std::vector<double> expected;
    for (std::size_t row = 0; row < 3; ++row) {
      std::vector<std::size_t> order(700);
      std::iota(order.begin(), order.end(), std::size_t{0});
      std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
        return values[row * 700 + a] < values[row * 700 + b];
      });
      expected.insert(expected.end(), order.begin(), order.end());
    }
    EXPECT_EQ(values_of(cast(argsort(numbers), float64)), expected) << name_of(dtype);
  }
  expect_tensor(argsort(constant({0.0, -0.0, -kNan, -1.0, 1e-45})), int64, {5}, {3, 0, 1, 4, 2});
}

TEST(Sort, RefusesScalars) {
  expect_error<ShapeError>([] { static_cast<void>(sort(constant(1.0))); },
                           "[sort] expected a tensor with an axis, got a scalar");
  expect_error<ShapeError>([] { static_cast<void>(argsort(zeros({2}), 1)); }, "expected an axis");
}

TEST(TopK, AlongAnyAxisOfTheLargestAndTheSmallest) {
  const Tensor x = constant({{3.0, 1.0, 2.0}, {0.0, 5.0, 4.0}}, float64);
  const auto [largest, at] = topk(x, 2, 1);
  expect_tensor(largest, float64, {2, 2}, {3, 2, 5, 4});
  expect_tensor(at, int64, {2, 2}, {0, 2, 1, 2});
  const auto [first, row] = x.topk(1, 0);
  expect_tensor(first, float64, {1, 3}, {3, 5, 4});
  expect_tensor(row, int64, {1, 3}, {0, 1, 1});
  const auto [smallest, where] = topk(x, 2, 1, false);
  expect_tensor(smallest, float64, {2, 2}, {1, 2, 0, 4});
  expect_tensor(where, int64, {2, 2}, {1, 2, 0, 2});
  expect_error<InvalidArgumentError>([&] { static_cast<void>(topk(x, 3, 0)); },
                                     "[topk] expected k of at most the size of axis 0");
}

TEST(Diagonal, OfTwoAxesWithAnOffset) {
  const Tensor x = range(0.0, 24.0, 1.0, {.dtype = float64}).reshape({2, 3, 4});
  expect_tensor(x.diagonal(0, 1, 2), float64, {2, 3}, {0, 5, 10, 12, 17, 22});
  expect_tensor(diagonal(x, 2, 1, 2), float64, {2, 2}, {2, 7, 14, 19});
  expect_tensor(x.diagonal(-1, -2, -1), float64, {2, 2}, {4, 9, 16, 21});
  expect_tensor(x.diagonal(), float64, {4, 2}, {0, 16, 1, 17, 2, 18, 3, 19});
  EXPECT_EQ(x.diagonal(7, 1, 2).shape(), Shape({2, 0}));
  EXPECT_EQ(eye(2, 2, {.dtype = bool_}).diagonal().dtype(), bool_);
  expect_error<InvalidArgumentError>([&] { static_cast<void>(x.diagonal(0, 1, -2)); },
                                     "[diagonal] expected two different axes");
}

TEST(Methods, EqualTheFunctions) {
  const Tensor x = constant({{0.5, 2.0}, {4.0, 0.25}}, float64);
  EXPECT_EQ(values_of(x.argmax(1, true)), values_of(expand_dims(argmax(x, 1), 1)));
  EXPECT_EQ(values_of(x.amax(0)), values_of(reduce_max(x, 0)));
  EXPECT_EQ(values_of(x.amin(0)), values_of(reduce_min(x, 0)));
  EXPECT_EQ(values_of(x.prod(1)), values_of(reduce_prod(x, 1)));
  EXPECT_EQ(values_of(x.log1p()), values_of(log1p(x)));
  EXPECT_EQ(values_of(x.expm1()), values_of(expm1(x)));
  EXPECT_EQ(values_of(x.erf()), values_of(erf(x)));
  EXPECT_EQ(values_of(x.reciprocal()), values_of(reciprocal(x)));
  EXPECT_EQ(values_of(x.maximum(x.T())), values_of(maximum(x, x.T())));
  EXPECT_EQ(values_of(x.minimum(x.T())), values_of(minimum(x, x.T())));
  EXPECT_EQ(values_of(x.mm(x)), values_of(matmul(x, x)));
  EXPECT_EQ(values_of(x.flip({0})), values_of(reverse(x, {0})));
  EXPECT_EQ(values_of(x.unbind(1)[1]), values_of(unstack(x, 1)[1]));
  EXPECT_EQ(values_of(x.tril()), values_of(tril(x)));
  EXPECT_EQ(values_of(x.triu(1)), values_of(triu(x, 1)));
  EXPECT_EQ(values_of(x.logsumexp(1)), values_of(reduce_logsumexp(x, 1)));
  const Tensor large = x > 1.0;
  EXPECT_EQ(values_of(large.any(0)), values_of(reduce_any(large, 0)));
  EXPECT_EQ(values_of(large.all(1)), values_of(reduce_all(large, 1)));
  EXPECT_EQ(values_of(large.logical_not()), values_of(logical_not(large)));
  EXPECT_EQ(values_of(large.logical_and(large.T())), values_of(logical_and(large, large.T())));
  EXPECT_EQ(values_of(large.logical_or(large.T())), values_of(logical_or(large, large.T())));
  EXPECT_EQ(values_of(x.isnan()), values_of(is_nan(x)));
  EXPECT_EQ(values_of(x.isfinite()), values_of(is_finite(x)));
}

TEST(Max, OfANumberWithAPointIsNoAxis) {
  const Tensor x = constant({{1.0, 3.0}}, float64);
  expect_tensor(max(x, 2.0), float64, {1, 2}, {2, 3});
  expect_tensor(min(x, 2.0f), float64, {1, 2}, {1, 2});
  expect_tensor(max(x, 1), float64, {1}, {3});
}

TEST(Size, IsATensorAlsoOfSizesThatOnlyTheRunKnows) {
  expect_tensor(size(zeros({2, 3})), int32, Shape::scalar(), {6});
  const auto traced = function([](const Tensor& x) { return size(x, int64); },
                               {.input_signature = {TensorSpec({-1, 2})}});
  expect_tensor(traced(zeros({5, 2})), int64, Shape::scalar(), {10});
}

}  // namespace
}  // namespace tandem::sort_test
