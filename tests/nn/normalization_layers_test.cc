// Normalization per example, dropout of channels, and small layers.
#include "tandem/normalization_layers.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "nn/layer_support.h"
#include "support/gradient_check.h"
#include "support/tensors.h"
#include "tandem/tandem.h"

namespace tandem::normalization_layers_test {
namespace {

using testing::expect_error;
using testing::expect_tensor;
using testing::infer;
using testing::names_of;
using testing::random_tensor;
using testing::values_of;
using Values = std::vector<double>;

constexpr double kTolerance = 1e-9;

template <class Made>
Made built(Made layer, const Tensor& x) {
  layer(x);
  std::uint32_t seed = 40;
  for (Variable variable : layer.variables())
    variable.assign(random_tensor(variable.shape(), seed++));
  return layer;
}

// Groups of neighbouring channels of each example, element by element.
Values plain_group_norm(const Tensor& x, std::size_t groups, const Values& gamma,
                        const Values& beta, double epsilon) {
  Values values = values_of(x);
  const auto batch = static_cast<std::size_t>(x.dim(0)),
             channels = static_cast<std::size_t>(x.dim(-1));
  const std::size_t positions = values.size() / batch / channels, width = channels / groups;
  for (std::size_t b = 0; b < batch; ++b)
    for (std::size_t g = 0; g < groups; ++g) {
      const auto at = [&](std::size_t p, std::size_t c) -> double& {
        return values[(b * positions + p) * channels + g * width + c];
      };
      double mean = 0.0, variance = 0.0;
      const auto count = static_cast<double>(positions * width);
      for (std::size_t p = 0; p < positions; ++p)
        for (std::size_t c = 0; c < width; ++c) mean += at(p, c) / count;
      for (std::size_t p = 0; p < positions; ++p)
        for (std::size_t c = 0; c < width; ++c) variance += std::pow(at(p, c) - mean, 2) / count;
      for (std::size_t p = 0; p < positions; ++p)
        for (std::size_t c = 0; c < width; ++c)
          at(p, c) = (at(p, c) - mean) / std::sqrt(variance + epsilon) * gamma[g * width + c] +
                     beta[g * width + c];
    }
  return values;
}

TEST(NormalizationLayers, GroupsAreNormalizedByThemselves) {
  for (const Shape& shape : {Shape{2, 3, 2, 6}, Shape{3, 6}, Shape{2, 4, 6}})
    for (const std::int64_t groups : {1, 2, 3, -1}) {
      SCOPED_TRACE(shape.to_string() + " " + std::to_string(groups));
      if (shape.rank() == 2 && groups == -1) continue;  // one element has no variance
      const Tensor x = random_tensor(shape, 1);
      const auto layer =
          built(layers::GroupNormalization(groups, {.epsilon = 1e-2, .dtype = "float64"}), x);
      EXPECT_EQ(
          names_of(layer.variables()),
          (std::vector<std::string>{"group_normalization/gamma", "group_normalization/beta"}));
      expect_tensor(layer(x), float64, shape,
                    plain_group_norm(x, static_cast<std::size_t>(groups == -1 ? 6 : groups),
                                     values_of(layer.variables()[0].value()),
                                     values_of(layer.variables()[1].value()), 1e-2),
                    kTolerance);
      testing::expect_gradients([&](const std::vector<Tensor>& in) { return layer(in[0]); }, {x});
    }
}

TEST(NormalizationLayers, SquaresAndLengthsAreNormalized) {
  const Tensor x = random_tensor({2, 3, 4}, 1);
  const auto rms = built(layers::RMSNormalization({.epsilon = 1e-3, .dtype = "float64"}), x);
  const Values values = values_of(x), scale = values_of(rms.variables()[0].value());
  Values expected, unit;
  for (std::size_t row = 0; row < 6; ++row) {
    double squares = 0.0;
    for (std::size_t c = 0; c < 4; ++c) squares += values[row * 4 + c] * values[row * 4 + c];
    for (std::size_t c = 0; c < 4; ++c) {
      expected.push_back(values[row * 4 + c] / std::sqrt(squares / 4 + 1e-3) * scale[c]);
      unit.push_back(values[row * 4 + c] / std::sqrt(squares));
    }
  }
  expect_tensor(rms(x), float64, {2, 3, 4}, expected, kTolerance);
  expect_tensor(layers::UnitNormalization({.dtype = "float64"})(x), float64, {2, 3, 4}, unit,
                kTolerance);
  testing::expect_gradients([&](const std::vector<Tensor>& in) { return rms(in[0]); }, {x});
}

TEST(NormalizationLayers, SixteenBitsAreComputedInFloat32) {
  const Tensor x = cast(random::normal({2, 3, 8}), bfloat16);
  for (const Layer& layer : {Layer(layers::GroupNormalization(2, {.dtype = "mixed_bfloat16"})),
                             Layer(layers::RMSNormalization({.dtype = "mixed_bfloat16"}))}) {
    const Tensor y = layer(x);
    EXPECT_EQ(y.dtype(), bfloat16);
    EXPECT_EQ(layer.variables()[0].dtype(), float32);
  }
  const layers::RMSNormalization wide;
  const layers::RMSNormalization narrow({.dtype = "mixed_bfloat16"});
  expect_tensor(cast(narrow(x), float32), float32, {2, 3, 8},
                values_of(cast(cast(wide(cast(x, float32)), bfloat16), float32)), 0.0);
}

TEST(NormalizationLayers, WholeChannelsAreDropped) {
  random::set_seed(4);
  const Tensor x = ones({16, 5, 4});
  const Values y = values_of(layers::SpatialDropout1D(0.5)(x, {.training = true}));
  std::size_t dropped = 0;
  for (std::size_t b = 0; b < 16; ++b)
    for (std::size_t c = 0; c < 4; ++c) {
      const double first = y[b * 20 + c];
      EXPECT_TRUE(first == 0.0 || first == 2.0);
      dropped += first == 0.0 ? 1 : 0;
      for (std::size_t p = 1; p < 5; ++p) EXPECT_EQ(y[b * 20 + p * 4 + c], first);
    }
  EXPECT_GT(dropped, 16u);
  EXPECT_LT(dropped, 48u);
  const Tensor images = ones({2, 3, 3, 4});
  expect_tensor(layers::SpatialDropout2D(0.5)(images), float32, {2, 3, 3, 4}, Values(72, 1.0), 0.0);
  expect_error<InvalidArgumentError>([] { layers::SpatialDropout2D(1.0); },
                                     "[spatial_dropout2d] expected a rate in [0, 1), got 1");
  expect_error<InvalidArgumentError>(
      [&] { static_cast<void>(layers::SpatialDropout2D(0.1)(x)); },
      "[spatial_dropout2d] expected an input of shape (batch, height, width, channels)");
}

TEST(NormalizationLayers, SlopesArePerElementOrShared) {
  const Tensor x = random_tensor({2, 3, 2}, 1);
  const auto each = built(layers::PReLU({.dtype = "float64"}), x);
  EXPECT_EQ(each.variables()[0].shape(), (Shape{3, 2}));
  const auto shared = built(layers::PReLU({.shared_axes = {1}, .dtype = "float64"}), x);
  EXPECT_EQ(shared.variables()[0].shape(), (Shape{1, 2}));
  for (const auto& layer : {each, shared}) {
    const Tensor alpha = layer.variables()[0].value();
    expect_tensor(layer(x), float64, {2, 3, 2}, values_of(where(x > 0.0, x, alpha * x)),
                  kTolerance);
    testing::expect_gradients([&](const std::vector<Tensor>& in) { return layer(in[0]); }, {x});
  }
  expect_error<InvalidArgumentError>(
      [&] { static_cast<void>(layers::PReLU({.shared_axes = {3}})(x)); },
      "[prelu] expected an input with an axis 3 besides the batch, which is shared");
}

TEST(NormalizationLayers, AxesArePermutedAndRepeated) {
  const Tensor x = random_tensor({2, 3, 4}, 1, -1.0, 1.0, float32);
  EXPECT_EQ(layers::Permute({2, 1})(x).shape(), (Shape{2, 4, 3}));
  expect_tensor(layers::Permute({2, 1})(x), float32, {2, 4, 3}, values_of(transpose(x, {0, 2, 1})),
                0.0);
  EXPECT_EQ(infer(layers::Permute({3, 1, 2}), {-1, 2, 3, 4}), (Shape{-1, 4, 2, 3}));
  const Tensor rows = random_tensor({2, 3}, 1, -1.0, 1.0, float32);
  expect_tensor(layers::RepeatVector(4)(rows), float32, {2, 4, 3},
                values_of(tile(expand_dims(rows, 1), Dims{1, 4, 1})), 0.0);
  EXPECT_EQ(infer(layers::RepeatVector(4), {-1, 3}), (Shape{-1, 4, 3}));
  EXPECT_TRUE(layers::Identity()(x).same_as(x));
  expect_error<InvalidArgumentError>(
      [] {
        layers::Permute({1, 1});
      },
      "[permute] expected each of the axes 1 to 2 once, got 1");
  expect_error<InvalidArgumentError>(
      [&] { static_cast<void>(layers::GroupNormalization(3)(x)); },
      "[group_normalization] expected a number of channels that 3 groups divide, got (?, 3, 4)");
}

}  // namespace
}  // namespace tandem::normalization_layers_test
