// Order statistics and other descriptions of data, against loops and known results.
#include "tandem/statistics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "support/gradient_check.h"
#include "support/tensors.h"
#include "tandem/creation.h"
#include "tandem/function.h"

namespace tandem::statistics_test {
namespace {

using namespace testing;
const double kNan = std::numeric_limits<double>::quiet_NaN();

TEST(Median, IsTheLowerOfTwoAndNanIfThereIsOne) {
  const Tensor x = constant({{4.0, 1.0, 3.0, 2.0}, {5.0, kNan, 6.0, 7.0}}, {.dtype = float64});
  const auto [values, at] = median(x, 1);
  EXPECT_EQ(values[0].item<double>(), 2.0);
  EXPECT_TRUE(std::isnan(values[1].item<double>()));
  expect_tensor(at, int64, {2}, {3, 1});
  const auto [numbers, places] = nanmedian(x, 1, true);
  expect_tensor(numbers, float64, {2, 1}, {2, 6});
  expect_tensor(places, int64, {2, 1}, {3, 2});
  EXPECT_EQ(nanmedian(x).item<double>(), 4.0);
  EXPECT_TRUE(std::isnan(median(x).item<double>()));
  expect_tensor(median(constant({{3, 1, 2}}), 1).values, int32, {1}, {2});
  EXPECT_TRUE(std::isnan(nanmedian(constant({kNan, kNan}, {.dtype = float64})).item<double>()));
  expect_gradients([](const std::vector<Tensor>& in) { return square(median(in[0], 0).values); },
                   {random_tensor({5, 3})});
  const auto traced = function([](const Tensor& in) { return median(in, 1).values; },
                               {.input_signature = {{Shape{-1, 4}, float64}}});
  const Tensor data = random_tensor({6, 4});
  EXPECT_EQ(values_of(traced(data)), values_of(median(data, 1).values));
  expect_error<InvalidArgumentError>(
      [] {
        static_cast<void>(median(zeros({2, 0}), 1));
      },
      "[median] expected at least one element along axis 1, got "
      "shape (2, 0)");
}

TEST(Kthvalue, CountsFromOne) {
  const Tensor x = constant({{4.0, 1.0, 3.0}, {5.0, 9.0, 6.0}}, {.dtype = float64});
  const auto [values, at] = kthvalue(x, 2);
  expect_tensor(values, float64, {2}, {3, 6});
  expect_tensor(at, int64, {2}, {2, 2});
  expect_error<InvalidArgumentError>([&] { static_cast<void>(kthvalue(x, 4)); },
                                     "[kthvalue] expected k of 1 to the size of axis -1, got 4");
}

TEST(Mode, IsTheSmallestOfTheMostFrequent) {
  const Tensor x = constant({{2, 1, 2, 1, 3}, {7, 7, 0, 7, 0}});
  const auto [values, at] = mode(x, 1);
  expect_tensor(values, int32, {2}, {1, 7});
  expect_tensor(at, int64, {2}, {3, 3});
  expect_tensor(mode(x, 0).values, int32, {5}, {2, 1, 0, 1, 0});
}

TEST(Quantile, InterpolatesAsAsked) {
  const Tensor x = constant({4.0, 1.0, 3.0, 2.0}, {.dtype = float64});
  const struct {
    const char* how;
    double expected;
  } cases[] = {
      {"linear", 1.9}, {"lower", 1.0}, {"higher", 2.0}, {"nearest", 2.0}, {"midpoint", 1.5}};
  for (const auto& c : cases)
    EXPECT_NEAR(quantile(x, 0.3, {.interpolation = c.how}).item<double>(), c.expected, 1e-15)
        << c.how;
  const Tensor q = constant({0.0, 0.5, 1.0}, {.dtype = float64});
  const Tensor rows = random_tensor({2, 5});
  EXPECT_EQ(quantile(rows, q, {.axis = 1}).shape(), Shape({3, 2}));
  EXPECT_EQ(quantile(rows, q, {.axis = 0, .keepdims = true}).shape(), Shape({3, 1, 5}));
  EXPECT_EQ(values_of(quantile(rows, 1.0, {.axis = 1})), values_of(reduce_max(rows, 1)));
  EXPECT_EQ(values_of(quantile(rows, 0.5, {.axis = 1})), values_of(median(rows, 1).values));
  const Tensor with_nan = constant({4.0, kNan, 1.0}, {.dtype = float64});
  EXPECT_TRUE(std::isnan(quantile(with_nan, 0.5).item<double>()));
  EXPECT_EQ(nanquantile(with_nan, 0.5).item<double>(), 2.5);
  expect_gradients(
      [](const std::vector<Tensor>& in) { return square(quantile(in[0], 0.3, {.axis = 1})); },
      {rows});
  expect_error<InvalidArgumentError>([&] { static_cast<void>(quantile(x, 1.5)); },
                                     "[quantile] expected a fraction of [0, 1], got 1.5");
  expect_error<InvalidArgumentError>(
      [&] { static_cast<void>(quantile(x, 0.5, {.interpolation = "cubic"})); }, "got \"cubic\"");
  expect_error<DTypeError>([] { static_cast<void>(quantile(constant({1, 2}), 0.5)); }, "floating");
}

TEST(NanReductions, LeaveNanOut) {
  const Tensor x = constant({{1.0, kNan, 3.0}, {kNan, kNan, kNan}}, {.dtype = float64});
  expect_tensor(nansum(x, {.axis = 1}), float64, {2}, {4, 0});
  EXPECT_EQ(nanmean(x).item<double>(), 2.0);
  EXPECT_TRUE(std::isnan(nanmean(x, {.axis = 1})[1].item<double>()));
  expect_tensor(count_nonzero(constant({{0, 2}, {3, 4}}), {.axis = 0}), int64, {2}, {1, 2});
}

TEST(Distances, OfTensorsAndSlices) {
  const Tensor a = constant({3.0, 0.0}, {.dtype = float64}),
               b = constant({0.0, 4.0}, {.dtype = float64});
  EXPECT_EQ(dist(a, b).item<double>(), 5.0);
  EXPECT_EQ(dist(a, b, 1.0).item<double>(), 7.0);
  const Tensor x = constant({{3.0, 4.0}, {0.3, 0.4}}, {.dtype = float64});
  expect_tensor(renorm(x, 2.0, 0, 1.0), float64, {2, 2}, {0.6, 0.8, 0.3, 0.4}, 1e-6);
  expect_gradients([](const std::vector<Tensor>& in) { return renorm(in[0], 1.0, 1, 0.9); },
                   {random_tensor({3, 2}) + 2.0});
}

TEST(Covariance, OfRows) {
  const Tensor x = constant({{1.0, 2.0, 3.0}, {6.0, 4.0, 2.0}}, {.dtype = float64});
  expect_tensor(cov(x), float64, {2, 2}, {1, -2, -2, 4}, 1e-14);
  expect_tensor(cov(x, 0), float64, {2, 2}, {2.0 / 3, -4.0 / 3, -4.0 / 3, 8.0 / 3}, 1e-14);
  expect_tensor(corrcoef(x), float64, {2, 2}, {1, -1, -1, 1}, 1e-14);
  expect_gradients([](const std::vector<Tensor>& in) { return cov(in[0]); },
                   {random_tensor({2, 4})});
}

TEST(Trapezoid, OfEvenAndUnevenPoints) {
  const Tensor y = constant({{1.0, 2.0, 4.0}, {0.0, 1.0, 0.0}}, {.dtype = float64});
  expect_tensor(trapezoid(y, 2.0), float64, {2}, {9, 2});
  const Tensor x = constant({0.0, 1.0, 3.0}, {.dtype = float64});
  expect_tensor(trapezoid(y, x), float64, {2}, {7.5, 1.5});
  expect_tensor(cumulative_trapezoid(y, x), float64, {2, 2}, {1.5, 7.5, 0.5, 1.5});
  expect_tensor(trapezoid(y, 1.0, 0), float64, {3}, {0.5, 1.5, 2.0});
  expect_gradients([](const std::vector<Tensor>& in) { return trapezoid(in[0], in[1]); }, {y, x});
}

TEST(Isin, FindsElements) {
  const Tensor found = isin(constant({{1, 5}, {3, 2}}), constant({3, 1, 9}));
  EXPECT_EQ(found.to_vector<bool>(), (std::vector<bool>{true, false, true, false}));
  EXPECT_EQ(reduce_any(isin(constant({1.0, kNan}), constant({kNan}))).item<bool>(), false);
  EXPECT_EQ(isin(constant({1}), zeros({0}, int32)).to_vector<bool>(), (std::vector<bool>{false}));
}

TEST(Histc, CountsPartsWithBothEnds) {
  const Tensor x = constant({0.0, 0.4, 1.0, 2.0, 2.5, -1.0, kNan}, {.dtype = float64});
  expect_tensor(histc(x, 4, 0.0, 2.0), float64, {4}, {2, 0, 1, 1});
  expect_tensor(histc(constant({1.0, 2.0, 5.0}), 2), float32, {2}, {2, 1});
  expect_tensor(histc(constant({3.0, 3.0}), 2), float32, {2}, {0, 2});
  expect_error<InvalidArgumentError>([&] { static_cast<void>(histc(x, 0)); },
                                     "[histc] expected at least 1 part");
}

TEST(Vander, HasPowersAsColumns) {
  const Tensor x = constant({2.0, 3.0}, {.dtype = float64});
  expect_tensor(vander(x, 3), float64, {2, 3}, {4, 2, 1, 9, 3, 1});
  expect_tensor(vander(x, std::nullopt, true), float64, {2, 2}, {1, 2, 1, 3});
}

}  // namespace
}  // namespace tandem::statistics_test
