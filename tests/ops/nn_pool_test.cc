#include <gtest/gtest.h>

#include <limits>

#include "ops/nn_reference.h"
#include "tandem/array.h"
#include "tandem/function.h"
#include "tandem/math.h"
#include "tandem/nn.h"

namespace tandem::nn_pool_test {
namespace {

using nn::Padding;
using nn::Pool2DOptions;
using namespace testing;

struct Case {
  Shape x;
  Pool2DOptions options;
  Shape result;
};

const std::vector<Case>& cases() {
  constexpr Padding kSame = Padding::kSame;
  static const std::vector<Case> all = {
      {{2, 4, 6, 3}, {}, {2, 2, 3, 3}},
      {{2, 5, 7, 3}, {}, {2, 2, 3, 3}},  // a row and a column left over
      {{2, 5, 7, 3}, {.padding = kSame}, {2, 3, 4, 3}},
      {{1, 6, 6, 20}, {.window = 3, .strides = 2}, {1, 2, 2, 20}},
      {{1, 6, 6, 20}, {.window = 3, .strides = 2, .padding = kSame}, {1, 3, 3, 20}},
      {{2, 5, 5, 1}, {.window = 3, .strides = 1, .padding = kSame}, {2, 5, 5, 1}},
      {{1, 6, 7, 2}, {.window = {2, 3}, .strides = nn::Pair(1, 2)}, {1, 5, 3, 2}},
      {{1, 7, 7, 2}, {.window = 2, .strides = 3}, {1, 2, 2, 2}},  // gaps between windows
      {{1, 4, 7, 3}, {.window = {2, 7}, .strides = nn::Pair(1, 1)}, {1, 3, 1, 3}},
      {{1, 7, 9, 35}, {.window = 5, .strides = 2, .padding = kSame}, {1, 4, 5, 35}},
      {{1, 4, 4, 300}, {}, {1, 2, 2, 300}},
      {{2, 7, 8, 3}, {.window = 3, .strides = 2, .padding = 1}, {2, 4, 4, 3}},
      {{1, 5, 6, 2}, {.window = {2, 3}, .strides = 2, .padding = {{1, 0}, {0, 2}}}, {1, 3, 3, 2}},
      {{1, 6, 8, 2}, {.window = 3, .strides = 2, .ceil_mode = true}, {1, 3, 4, 2}},
      {{1, 5, 4, 2}, {.window = 2, .strides = 3, .padding = 1, .ceil_mode = true}, {1, 2, 2, 2}},
      {{1, 6, 4, 1}, {.window = 4, .strides = 5, .padding = 2, .ceil_mode = true}, {1, 2, 2, 1}},
      {{1, 2, 2, 1}, {.window = 3, .strides = 2, .ceil_mode = true}, {1, 1, 1, 1}}};
  return all;
}

// The pooling by definition: the maximum, or the mean over the pixels that are not padding.
std::vector<double> pooled(const Tensor& x, const Case& c, bool average) {
  const std::vector<double> in = values_of(x);
  const nn::Pair window = c.options.window, stride = c.options.strides.value_or(window);
  const std::int64_t h = c.x[1], w = c.x[2], channels = c.x[3];
  const bool same = c.options.padding == Padding::kSame;
  const std::int64_t top =
      same ? std::max<std::int64_t>(0, (c.result[1] - 1) * stride.height + window.height - h) / 2
           : c.options.padding.rows().first;
  const std::int64_t left =
      same ? std::max<std::int64_t>(0, (c.result[2] - 1) * stride.width + window.width - w) / 2
           : c.options.padding.columns().first;
  std::vector<double> result;
  for (std::int64_t n = 0; n < c.x[0]; ++n)
    for (std::int64_t y = 0; y < c.result[1]; ++y)
      for (std::int64_t z = 0; z < c.result[2]; ++z)
        for (std::int64_t channel = 0; channel < channels; ++channel) {
          double best = -1e300, sum = 0, count = 0;
          for (std::int64_t i = 0; i < window.height; ++i)
            for (std::int64_t j = 0; j < window.width; ++j) {
              const std::int64_t row = y * stride.height - top + i,
                                 column = z * stride.width - left + j;
              if (row < 0 || row >= h || column < 0 || column >= w) continue;
              const double value =
                  in[static_cast<std::size_t>(((n * h + row) * w + column) * channels + channel)];
              best = std::max(best, value);
              sum += value;
              count += 1;
            }
          result.push_back(average ? sum / count : best);
        }
  return result;
}

TEST(Pool, AgreesWithTheDefinition) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(c.x.to_string());
    const Tensor x = random_tensor(c.x, 1);
    expect_tensor(nn::max_pool2d(x, c.options), float64, c.result, pooled(x, c, false));
    expect_tensor(nn::avg_pool2d(x, c.options), float64, c.result, pooled(x, c, true), 1e-14);
  }
}

TEST(Pool, HasRightGradients) {
  for (const Case& c : cases()) {
    if (c.x[3] > 20) continue;
    SCOPED_TRACE(c.x.to_string());
    const Tensor x = random_tensor(c.x, 2);
    const auto max = [&](const std::vector<Tensor>& in) {
      return nn::max_pool2d(in[0], c.options);
    };
    const auto average = [&](const std::vector<Tensor>& in) {
      return nn::avg_pool2d(in[0], c.options);
    };
    expect_gradients(max, {x});
    expect_gradients(average, {x});
    const auto max_of_squares = [&](const std::vector<Tensor>& in) { return max({square(in[0])}); };
    const auto average_of_squares = [&](const std::vector<Tensor>& in) {
      return average({square(in[0])});
    };
    expect_second_order(max_of_squares, {x});
    expect_second_order(average_of_squares, {x});
  }
}

TEST(Pool, OtherDtypesAgreeWithFloat64) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(c.x.to_string());
    // The values differ enough to stay distinct after rounding.
    std::vector<double> values;
    for (std::int64_t i = 0; i < c.x.num_elements(); ++i)
      values.push_back(static_cast<double>(i * 37 % 251) / 16.0);
    const Tensor x = constant(values, {.shape = c.x});
    expect_other_dtypes_like_float64(
        [&](const std::vector<Tensor>& in) { return nn::max_pool2d(in[0], c.options); }, {x});
    expect_other_dtypes_like_float64(
        [&](const std::vector<Tensor>& in) { return nn::avg_pool2d(in[0], c.options); }, {x});
  }
}

TEST(MaxPool, GivesTheGradientToTheFirstOfEqualPixels) {
  for (const Pool2DOptions& options : {Pool2DOptions{}, Pool2DOptions{.window = 2, .strides = 1}}) {
    GradientTape tape;
    const Tensor x = constant({1.0, 3.0, 3.0, 3.0}, {.shape = {1, 2, 2, 1}});
    tape.watch(x);
    expect_tensor(tape.gradient(nn::max_pool2d(x, options), x), float32, {1, 2, 2, 1},
                  {0, 1, 0, 0});
  }
}

TEST(MaxPool, PropagatesNaN) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (std::size_t place = 0; place < 4; ++place) {
    std::vector<double> values = {1, 5, 3, 2}, expected(4, 0.0);
    values[place] = nan;
    GradientTape tape;
    const Tensor x = constant(values, {.dtype = float32, .shape = {1, 2, 2, 1}});
    tape.watch(x);
    const Tensor y = nn::max_pool2d(x);
    EXPECT_TRUE(std::isnan(y.item<float>()));
    EXPECT_EQ(reduce_sum(tape.gradient(y, x)).item<float>(), 1.0f);
  }
}

TEST(Pool, TakesPaddingsOfUnknownSizes) {
  const Tensor x = random_tensor({2, 7, 9, 3}, 4);
  for (const Pool2DOptions& options :
       {Pool2DOptions{.window = 3, .strides = 2, .padding = {{1, 0}, {2, 1}}},
        Pool2DOptions{.window = 2, .strides = 3, .padding = 1, .ceil_mode = true}}) {
    const auto both = [&](const Tensor& in) {
      return concat({nn::max_pool2d(in, options), nn::avg_pool2d(in, options)}, 0);
    };
    const auto traced = function(both, {.input_signature = {{Shape{-1, -1, -1, 3}, float64}}});
    const Tensor expected = both(x);
    expect_tensor(traced(x), float64, expected.shape(), values_of(expected));
  }
}

TEST(Pool, RefusesWindowsWithoutPixels) {
  const Tensor x = ones({1, 4, 4, 2});
  expect_error<InvalidArgumentError>(
      [&] { nn::max_pool2d(x, {.window = 2, .padding = 2}); },
      "[MaxPool] expected paddings of 0 or more and below the 2x2 window, got 2, 2, 2 and 2");
  expect_error<ShapeError>([&] { nn::avg_pool2d(x, {.window = 7, .padding = 1}); },
                           "[AvgPool] expected images with their padding as large as the 7x7");
  expect_error<ShapeError>(
      [] {
        nn::max_pool2d(ones({1, 0, 4, 2}), {.window = 2, .padding = 1});
      },
      "as large as");
}

TEST(GlobalPool, ReducesHeightAndWidth) {
  const Tensor x = random_tensor({2, 3, 5, 4}, 3);
  expect_tensor(nn::global_avg_pool2d(x), float64, {2, 4},
                values_of(reduce_mean(x, {.axis = Dims{1, 2}})), 1e-14);
  expect_tensor(nn::global_max_pool2d(x), float64, {2, 4},
                values_of(reduce_max(x, {.axis = Dims{1, 2}})));
  EXPECT_EQ(nn::global_avg_pool2d(x, true).shape(), (Shape{2, 1, 1, 4}));
  expect_gradients([](const std::vector<Tensor>& in) { return nn::global_avg_pool2d(in[0]); }, {x});
  expect_gradients([](const std::vector<Tensor>& in) { return nn::global_max_pool2d(in[0], true); },
                   {x});
}

TEST(Pool, HandlesEmptyBatches) {
  GradientTape tape;
  const Tensor x = ones({0, 4, 4, 2});
  tape.watch(x);
  const Tensor y = nn::max_pool2d(x) + nn::avg_pool2d(x);
  expect_tensor(y, float32, {0, 2, 2, 2}, {});
  expect_tensor(tape.gradient(y, x), float32, {0, 4, 4, 2}, {});
}

TEST(Pool, ExplainsBadInput) {
  expect_error<InvalidArgumentError>(
      [] {
        nn::max_pool2d(ones({4, 4, 2}));
      },
      "[MaxPool] expected images [n, h, w, c], got shape (4, 4, 2)");
  expect_error<InvalidArgumentError>(
      [] {
        nn::avg_pool2d(ones({1, 4, 4, 2}), {.window = 5});
      },
      "[AvgPool] expected images as large as the 5x5 window, got shape (1, 4, 4, 2)");
  expect_error<InvalidArgumentError>(
      [] {
        nn::max_pool2d(ones({1, 4, 4, 2}), {.window = 0});
      },
      "expected a window and strides of 1 or more, got 0x0 and 0x0");
  expect_error<InvalidArgumentError>(
      [] {
        nn::max_pool2d(ones({1, 4, 4, 2}, {.dtype = int32}));
      },
      "[MaxPool] expected a floating dtype, got int32");
  expect_error<InvalidArgumentError>(
      [] {
        nn::global_avg_pool2d(ones({4, 4}));
      },
      "[global_avg_pool2d] expected images");
}

}  // namespace
}  // namespace tandem::nn_pool_test
