// Compares gradients with respect to inputs and variables of layers with central differences.
#include <gtest/gtest.h>

#include <cmath>

#include "support/tensors.h"
#include "tandem/autodiff.h"
#include "tandem/convolution_layers.h"
#include "tandem/layers.h"
#include "tandem/math.h"
#include "tandem/random.h"

namespace tandem::layer_gradients_test {
namespace {

using testing::random_tensor;
using testing::random_values;
using testing::values_of;

// A scalar that depends differently on each element of the layer's output. It is summed in float64,
// because the rounding of a float32 sum would exceed the differences.
double loss_of(const Layer& layer, const Tensor& x, bool training) {
  NoGradScope no_grad;
  const auto y = values_of(layer(x, {.training = training}));
  const auto weights = random_values(static_cast<std::int64_t>(y.size()), 99, 0.5, 1.5);
  double loss = 0.0;
  for (std::size_t i = 0; i < y.size(); ++i) loss += y[i] * weights[i];
  return loss;
}

void expect_close(const Tensor& gradient, const std::vector<double>& numeric,
                  const std::string& what) {
  ASSERT_TRUE(gradient.defined()) << what;
  const auto values = values_of(gradient);
  ASSERT_EQ(values.size(), numeric.size()) << what;
  double largest = 1.0;
  for (double v : numeric) largest = std::max(largest, std::abs(v));
  for (std::size_t i = 0; i < values.size(); ++i)
    EXPECT_NEAR(values[i], numeric[i], 2e-3 * largest) << what << ' ' << i;
}

template <class At>
std::vector<double> differences(const std::vector<double>& values, const At& loss_at) {
  constexpr double kStep = 5e-3;
  std::vector<double> numeric;
  for (std::size_t i = 0; i < values.size(); ++i) {
    auto moved = values;
    moved[i] = values[i] + kStep;
    const double above = loss_at(moved);
    moved[i] = values[i] - kStep;
    numeric.push_back((above - loss_at(moved)) / (2.0 * kStep));
  }
  return numeric;
}

void expect_gradients(const Layer& layer, const Shape& shape, bool training = true) {
  SCOPED_TRACE(layer.base().kind());
  random::set_seed(4);
  const Tensor x = random_tensor(shape, 5, -1.0, 1.0, float32);
  layer(x);
  for (Variable variable : layer.trainable_variables())  // zeros and ones would hide errors
    variable.assign(random_tensor(variable.shape(), 6, 0.4, 1.2, float32));

  GradientTape tape({.persistent = true});
  tape.watch(x);
  const Tensor y = layer(x, {.training = training});
  const Tensor weights =
      constant(random_values(y.size(), 99, 0.5, 1.5), {.dtype = float32, .shape = y.shape()});
  const Tensor loss = reduce_sum(y * weights);

  expect_close(tape.gradient(loss, x),
               differences(values_of(x),
                           [&](const std::vector<double>& moved) {
                             return loss_of(layer,
                                            constant(moved, {.dtype = float32, .shape = shape}),
                                            training);
                           }),
               "input");
  for (Variable variable : layer.trainable_variables()) {
    const Tensor kept = variable.value();
    const auto numeric = differences(values_of(kept), [&](const std::vector<double>& moved) {
      variable.assign(constant(moved, {.dtype = float32, .shape = variable.shape()}));
      return loss_of(layer, x, training);
    });
    variable.assign(kept);
    expect_close(tape.gradient(loss, variable), numeric, variable.name());
  }
}

TEST(LayerGradients, Dense) {
  expect_gradients(layers::Dense(3, {.activation = "tanh"}), {4, 5});
  expect_gradients(layers::Dense(3), {2, 3, 5});
}

TEST(LayerGradients, Convolutions) {
  expect_gradients(layers::Conv2D(3, 3, {.strides = 2, .padding = "same"}), {2, 5, 4, 2});
  expect_gradients(
      layers::Conv2D(4, {2, 3}, {.dilation_rate = 2, .groups = 2, .activation = "sigmoid"}),
      {1, 6, 6, 2});
  expect_gradients(layers::DepthwiseConv2D(3, {.depth_multiplier = 2}), {1, 5, 5, 2});
}

TEST(LayerGradients, Normalizations) {
  expect_gradients(layers::BatchNormalization(), {5, 2, 2, 2});
  expect_gradients(layers::BatchNormalization(), {5, 3}, false);
  expect_gradients(layers::LayerNormalization(), {3, 6});
}

TEST(LayerGradients, Sequences) {
  expect_gradients(layers::MultiHeadAttention(2, 3, {.value_dim = 2}), {2, 3, 4});
  expect_gradients(layers::MultiHeadAttention(2, 2, {.use_bias = false, .use_causal_mask = true}),
                   {1, 4, 3});
}

TEST(LayerGradients, WithoutVariables) {
  expect_gradients(layers::AveragePooling2D(2, {.padding = "same"}), {1, 5, 5, 2});
  expect_gradients(layers::GlobalAveragePooling2D(), {2, 3, 3, 2});
  expect_gradients(layers::Softmax(), {3, 4});
  expect_gradients(layers::ZeroPadding2D(), {1, 2, 2, 1});
}

TEST(LayerGradients, AStackOfLayers) {
  expect_gradients(
      layers::Stack({layers::Conv2D(2, 3, {.activation = "tanh"}), layers::BatchNormalization(),
                     layers::Flatten(), layers::Dense(3, {.activation = "softmax"})}),
      {3, 5, 5, 1});
}

TEST(LayerGradients, PositionEmbeddingSumsOverTheBatch) {
  const Layer layer = layers::PositionEmbedding(3);
  const Tensor x = ones({2, 2, 1});
  layer(x);
  GradientTape tape;
  const Tensor y = layer(x) * constant({{{1.0}, {2.0}}, {{3.0}, {4.0}}});
  testing::expect_tensor(tape.gradient(reduce_sum(y), layer.variables()[0]), float32, {3, 1},
                         {4, 6, 0}, 1e-6);
}

TEST(LayerGradients, EmbeddingSumsTheGradientsOfARow) {
  const Layer layer = layers::Embedding(4, 2);
  GradientTape tape;
  const Tensor y = layer(constant({{1, 1, 3}}, {.dtype = int64}));
  const Variable table = layer.variables()[0];
  testing::expect_tensor(
      tape.gradient(reduce_sum(y * constant({{{1.0, 2.0}, {3.0, 4.0}, {5.0, 6.0}}})), table),
      float32, {4, 2}, {0, 0, 4, 6, 0, 0, 5, 6}, 1e-6);
}

}  // namespace
}  // namespace tandem::layer_gradients_test
