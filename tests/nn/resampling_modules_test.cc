// Resizing, windows as columns, further pooling and products of two inputs, against plain loops.
#include "tandem/resampling_modules.h"

#include <gtest/gtest.h>

#include <cmath>

#include "support/gradient_check.h"
#include "support/tensors.h"
#include "tandem/array.h"
#include "tandem/creation.h"
#include "tandem/function.h"
#include "tandem/math.h"

namespace tandem::resampling_modules_test {
namespace {

using namespace testing;
namespace F = nn::functional;
using Values = std::vector<double>;

Tensor counting(const Shape& shape) {
  return reshape(range(Dim(shape.num_elements()), {.dtype = float64}), shape);
}

TEST(Interpolate, OfSequencesInEachMode) {
  const Tensor x = reshape(constant({1.0, 3.0, 2.0}, {.dtype = float64}), {1, 1, 3});
  const auto resized = [&](const nn::InterpolateOptions& options) {
    return values_of(F::interpolate(x, options));
  };
  EXPECT_EQ(resized({.scale_factor = {2.0}}), (Values{1, 1, 3, 3, 2, 2}));
  EXPECT_EQ(resized({.size = {2}}), (Values{1, 3}));
  EXPECT_EQ(resized({.size = {2}, .mode = "nearest-exact"}), (Values{1, 2}));
  EXPECT_EQ(resized({.size = {6}, .mode = "linear"}), (Values{1, 1.5, 2.5, 2.75, 2.25, 2}));
  EXPECT_EQ(resized({.size = {5}, .mode = "linear", .align_corners = true}),
            (Values{1, 2, 3, 2.5, 2}));
  EXPECT_EQ(resized({.size = {1}, .mode = "area"}), (Values{2}));
  // 3 * 1.5 is 4; the factor or the sizes give the distance of the positions.
  const Values by_factor = resized({.scale_factor = {1.5}, .mode = "linear"}),
               by_size = resized(
                   {.scale_factor = {1.5}, .mode = "linear", .recompute_scale_factor = true});
  EXPECT_NEAR(by_factor[1], 1.0 + 2.0 * 0.5, 1e-15);
  EXPECT_NEAR(by_size[1], 1.0 + 2.0 * 0.625, 1e-15);
}

// A cubic polynomial of rows and columns is resized to itself where all taps are inside; constants
// everywhere.
TEST(Interpolate, OfImagesAndVolumes) {
  const Tensor image = counting({1, 2, 3, 4});
  const Tensor larger =
      F::interpolate(image, {.size = {5, 7}, .mode = "bilinear", .align_corners = true});
  for (std::int64_t i = 0; i < 5; ++i)
    for (std::int64_t j = 0; j < 7; ++j)
      EXPECT_NEAR(larger(0, 1, i, j).item<double>(),
                  12.0 + 4.0 * 0.5 * static_cast<double>(i) + 0.5 * static_cast<double>(j), 1e-12);
  const Values flat =
      values_of(F::interpolate(ones({1, 1, 4, 4}, float64), {.size = {9}, .mode = "bicubic"}));
  for (const double value : flat) EXPECT_NEAR(value, 1.0, 1e-14);
  // The middle of two elements: (-3 a + 19 b + 19 c - 3 d) / 32 with a = -0.75.
  const Tensor row = F::interpolate(counting({1, 1, 1, 4}) * counting({1, 1, 1, 4}),
                                    {.size = {1, 7}, .mode = "bicubic", .align_corners = true});
  EXPECT_NEAR(row(0, 0, 0, 3).item<double>(), (-3.0 * 0 + 19.0 * 1 + 19.0 * 4 - 3.0 * 9) / 32.0,
              1e-14);
  const Tensor volume = F::interpolate(counting({1, 1, 2, 2, 2}),
                                       {.size = {3}, .mode = "trilinear", .align_corners = true});
  EXPECT_NEAR(volume(0, 0, 1, 1, 1).item<double>(), 3.5, 1e-14);
  for (const char* mode : {"bilinear", "bicubic", "nearest", "area"})
    expect_gradients(
        [&](const std::vector<Tensor>& in) {
          return square(F::interpolate(in[0], {.size = {5, 2}, .mode = mode}));
        },
        {random_tensor({1, 2, 3, 4})});
  const auto traced = function(
      [](const Tensor& x) {
        return F::interpolate(x, {.scale_factor = {2.0}, .mode = "bilinear"});
      },
      {.input_signature = {{Shape{-1, 2, 3, 4}, float64}}});
  EXPECT_EQ(values_of(traced(image)),
            values_of(F::interpolate(image, {.scale_factor = {2.0}, .mode = "bilinear"})));
  EXPECT_EQ(values_of(nn::Upsample({.scale_factor = {2.0}})(image)),
            values_of(F::interpolate(image, {.size = {6, 8}})));
}

TEST(Interpolate, RefusesWhatDoesNotFit) {
  const Tensor image = zeros({1, 1, 3, 3});
  expect_error<InvalidArgumentError>([&] { static_cast<void>(F::interpolate(image, {})); },
                                     "[interpolate] expected either sizes or factors");
  expect_error<InvalidArgumentError>(
      [&] { static_cast<void>(F::interpolate(image, {.size = {2}, .mode = "linear"})); },
      "or \"bilinear\" or \"bicubic\" for 2 axes after the channels, got \"linear\"");
  expect_error<InvalidArgumentError>(
      [&] { static_cast<void>(F::interpolate(image, {.size = {2}, .align_corners = true})); },
      "[interpolate] expected no align_corners for mode \"nearest\"");
  expect_error<InvalidArgumentError>(
      [&] {
        static_cast<void>(F::interpolate(image, {.size = {2, 2, 2}}));
      },
      "[interpolate] expected one size or 2, got 3");
}

TEST(Unfold, HasWindowsAsColumns) {
  const Tensor x = random_tensor({2, 3, 5, 4});
  const nn::FoldOptions options{.dilation = {2, 1}, .padding = {1, 0}, .stride = {2, 1}};
  const Tensor columns = F::unfold(x, {2, 3}, options);
  ASSERT_EQ(columns.shape(), Shape({2, 18, 6}));
  Values expected;
  for (std::int64_t n = 0; n < 2; ++n)
    for (std::int64_t c = 0; c < 3; ++c)
      for (std::int64_t p = 0; p < 2; ++p)
        for (std::int64_t q = 0; q < 3; ++q)
          for (std::int64_t i = 0; i < 3; ++i)
            for (std::int64_t j = 0; j < 2; ++j) {
              const std::int64_t row = i * 2 - 1 + p * 2, column = j + q;
              expected.push_back(row < 0 || row >= 5 ? 0.0 : x(n, c, row, column).item<double>());
            }
  EXPECT_EQ(values_of(columns), expected);
  expect_gradients(
      [&](const std::vector<Tensor>& in) {
        return square(F::unfold(in[0], {2, 3}, options));
      },
      {x});
  EXPECT_EQ(values_of(nn::Unfold({2, 3}, options)(x)), expected);
  expect_error<InvalidArgumentError>(
      [&] { static_cast<void>(F::unfold(x, 6)); },
      "[unfold] expected positive sizes of windows that fit into 5 elements");
}

TEST(Fold, AddsOverlappingWindows) {
  // The transpose of unfold(): their products with anything agree.
  const nn::FoldOptions options{.dilation = 1, .padding = {1, 2}, .stride = {1, 2}};
  const Tensor x = random_tensor({2, 3, 4, 5}, 1);
  const Tensor columns = F::unfold(x, {3, 2}, options), other = random_tensor(columns.shape(), 2);
  const Tensor folded = F::fold(other, {4, 5}, {3, 2}, options);
  ASSERT_EQ(folded.shape(), x.shape());
  EXPECT_NEAR(reduce_sum(columns * other).item<double>(), reduce_sum(x * folded).item<double>(),
              1e-10);
  EXPECT_EQ(values_of(nn::Fold({4, 5}, {3, 2}, options)(other)), values_of(folded));
  expect_gradients(
      [&](const std::vector<Tensor>& in) {
        return square(F::fold(in[0], {4, 5}, {3, 2}, options));
      },
      {random_tensor({1, 6, columns.dim(2)})});
  expect_error<ShapeError>(
      [&] {
        static_cast<void>(F::fold(other, {4, 5}, 2));
      },
      "[fold] expected columns (batch, channels * 4, 12), got shape");
}

TEST(LpPool, IsTheRootOfSumsOfPowers) {
  const Tensor x = abs(random_tensor({1, 2, 6})) + 0.5;
  const Tensor y = F::lp_pool1d(x, 3.0, 2);
  for (std::int64_t i = 0; i < 3; ++i)
    EXPECT_NEAR(y(0, 1, i).item<double>(),
                std::cbrt(std::pow(x(0, 1, 2 * i).item<double>(), 3.0) +
                          std::pow(x(0, 1, 2 * i + 1).item<double>(), 3.0)),
                1e-12);
  const Tensor image = abs(random_tensor({1, 1, 4, 4})) + 0.5;
  EXPECT_EQ(F::lp_pool2d(image, 2.0, 3, {.stride = 1}).shape(), Shape({1, 1, 2, 2}));
  EXPECT_NEAR(F::lp_pool2d(image, 2.0, 4).item<double>(), norm(image).item<double>(), 1e-12);
  EXPECT_NEAR(F::lp_pool3d(expand_dims(image, 2), 2.0, {1, 4, 4}).item<double>(),
              norm(image).item<double>(), 1e-12);
  EXPECT_EQ(values_of(nn::LPPool2d(2.0, 2)(image)), values_of(F::lp_pool2d(image, 2.0, 2)));
  expect_gradients([](const std::vector<Tensor>& in) { return F::lp_pool1d(in[0], 3.0, 2); }, {x});
}

TEST(Bilinear, IsAFormForEachOutput) {
  const Tensor a = random_tensor({4, 2}, 1), b = random_tensor({4, 3}, 2),
               w = random_tensor({5, 2, 3}, 3), bias = random_tensor({5}, 4);
  const Tensor y = F::bilinear(a, b, w, bias);
  ASSERT_EQ(y.shape(), Shape({4, 5}));
  const Tensor form = matmul(matmul(reshape(a[2], {1, 2}), w[3]), reshape(b[2], {3, 1}));
  EXPECT_NEAR(y(2, 3).item<double>(), form.item<double>() + bias[3].item<double>(), 1e-12);
  expect_gradients([](const std::vector<Tensor>& in) { return F::bilinear(in[0], in[1], in[2]); },
                   {a, b, w});
  nn::Bilinear module(2, 3, 5);
  EXPECT_EQ(module->parameters().size(), 2u);
  EXPECT_EQ(module->forward(cast(a, float32), cast(b, float32)).shape(), Shape({4, 5}));
}

TEST(Pdist, HasAllPairs) {
  const Tensor x = random_tensor({4, 3});
  const Tensor distances = F::pdist(x);
  ASSERT_EQ(distances.shape(), Shape({6}));
  EXPECT_NEAR(distances[4].item<double>(), norm(x[1] - x[3]).item<double>(), 1e-14);
  expect_gradients([](const std::vector<Tensor>& in) { return F::pdist(in[0], 3.0); }, {x});
}

}  // namespace
}  // namespace tandem::resampling_modules_test
