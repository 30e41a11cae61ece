#include <gtest/gtest.h>

#include <cmath>

#include "support/tensors.h"
#include "tandem/array.h"
#include "tandem/autodiff.h"
#include "tandem/function.h"
#include "tandem/layers.h"
#include "tandem/math.h"
#include "tandem/random.h"

namespace tandem::attention_test {
namespace {

using testing::expect_error;
using testing::expect_tensor;
using testing::random_tensor;
using testing::values_of;

Tensor sequence(std::int64_t batch, std::int64_t positions, std::int64_t features,
                std::uint32_t seed) {
  return random_tensor({batch, positions, features}, seed, -1.0, 1.0, float32);
}

// Large weights, so that the attention differs much between positions.
Layer ready(Layer layer, const std::vector<Tensor>& inputs) {
  layer(inputs);
  std::uint32_t seed = 20;
  for (Variable variable : layer.trainable_variables())
    variable.assign(random_tensor(variable.shape(), seed++, -0.8, 0.8, float32));
  return layer;
}

// The layer's formula as matrix products, head by head. `allowed` is [queries, keys] or undefined.
Tensor plain(const Layer& layer, const Tensor& query, const Tensor& value, const Tensor& key,
             const Tensor& allowed) {
  const std::vector<Variable> w = layer.variables();
  const std::int64_t heads = w[0].shape()[1];
  const auto projected = [](const Tensor& x, const Variable& kernel, const Variable& bias,
                            std::int64_t head) {
    const Tensor of_head =
        reshape(slice(kernel, {0, head, 0}, {-1, 1, -1}), {kernel.shape()[0], kernel.shape()[2]});
    return matmul(x, of_head) + reshape(slice_rows(bias, head, head + 1), {bias.shape()[1]});
  };
  Tensor sum = w[7].value();
  for (std::int64_t head = 0; head < heads; ++head) {
    const Tensor q = projected(query, w[0], w[1], head), k = projected(key, w[2], w[3], head),
                 v = projected(value, w[4], w[5], head);
    Tensor scores =
        matmul(q, k, {.transpose_b = true}) / std::sqrt(static_cast<double>(w[0].shape()[2]));
    if (allowed.defined()) scores = where(allowed, scores, constant(-1e30));
    const Tensor out = reshape(slice_rows(w[6], head, head + 1), w[6].shape().without_leading(1));
    sum = sum + matmul(matmul(nn::softmax(scores), v), out);
  }
  return sum;
}

void expect_equal(const Tensor& actual, const Tensor& expected) {
  expect_tensor(actual, float32, expected.shape(), values_of(expected), 2e-6);
}

TEST(MultiHeadAttention, NamesAndShapesAreThoseOfKeras) {
  const Layer layer = layers::MultiHeadAttention(2, 3, {.value_dim = 5});
  const std::vector<Tensor> inputs = {sequence(2, 4, 6, 1), sequence(2, 7, 8, 2),
                                      sequence(2, 7, 9, 3)};
  EXPECT_EQ(layer(inputs).shape(), (Shape{2, 4, 6}));
  const std::vector<std::pair<std::string, Shape>> expected = {
      {"query/kernel", {6, 2, 3}},
      {"query/bias", {2, 3}},
      {"key/kernel", {9, 2, 3}},
      {"key/bias", {2, 3}},
      {"value/kernel", {8, 2, 5}},
      {"value/bias", {2, 5}},
      {"attention_output/kernel", {2, 5, 6}},
      {"attention_output/bias", {6}}};
  const std::vector<Variable> variables = layer.variables();
  ASSERT_EQ(variables.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(variables[i].name(), "multi_head_attention/" + expected[i].first);
    EXPECT_EQ(variables[i].shape(), expected[i].second) << expected[i].first;
  }
  const Layer without = layers::MultiHeadAttention(2, 3, {.use_bias = false});
  without(inputs[0]);
  EXPECT_EQ(without.variables().size(), 4u);
}

TEST(MultiHeadAttention, EqualsItsFormula) {
  const Tensor x = sequence(2, 5, 6, 1), other = sequence(2, 7, 4, 2), third = sequence(2, 7, 3, 3);
  const Layer own = ready(layers::MultiHeadAttention(2, 3), {x});
  expect_equal(own(x), plain(own, x, x, x, {}));
  const Layer cross = ready(layers::MultiHeadAttention(3, 4, {.value_dim = 2}), {x, other});
  expect_equal(cross(std::vector<Tensor>{x, other}), plain(cross, x, other, other, {}));
  const Layer keyed = ready(layers::MultiHeadAttention(1, 4), {x, other, third});
  expect_equal(keyed(std::vector<Tensor>{x, other, third}), plain(keyed, x, other, third, {}));
}

TEST(MultiHeadAttention, MasksSelectTheVisiblePositions) {
  const Tensor x = sequence(2, 4, 6, 1);
  const Tensor before = greater_equal(expand_dims(range(4), 1), range(4));
  const Layer causal = ready(layers::MultiHeadAttention(2, 3, {.use_causal_mask = true}), {x});
  expect_equal(causal(x), plain(causal, x, x, x, before));
  const Layer masked = ready(layers::MultiHeadAttention(2, 3), {x});
  // By position, by example and by head; as 1 and 0, too.
  for (const Tensor& mask : {before, expand_dims(before, 0), reshape(before, {1, 1, 4, 4}),
                             cast(expand_dims(before, 0), float32)})
    expect_equal(masked(std::vector<Tensor>{x, x, x, mask}), plain(masked, x, x, x, before));
}

TEST(MultiHeadAttention, DropsWeightsOnlyInTraining) {
  const Tensor x = sequence(2, 8, 6, 1);
  const Layer layer = ready(layers::MultiHeadAttention(2, 3, {.dropout = 0.5}), {x});
  expect_equal(layer(x), plain(layer, x, x, x, {}));
  random::set_seed(2);
  const auto first = values_of(layer(x, {.training = true}));
  EXPECT_NE(values_of(layer(x)), first);
  random::set_seed(2);
  EXPECT_EQ(values_of(layer(x, {.training = true})), first);
}

TEST(MultiHeadAttention, TracedEqualsEager) {
  const Tensor x = sequence(2, 6, 4, 1);
  for (const double dropout : {0.0, 0.3}) {
    const Layer layer =
        ready(layers::MultiHeadAttention(2, 3, {.dropout = dropout, .use_causal_mask = true}), {x});
    const std::vector<Variable> variables = layer.trainable_variables();
    const auto step = [&](const Tensor& in) {
      GradientTape tape;
      const Tensor y = layer(in, {.training = true});
      std::vector<Tensor> results = tape.gradient(reduce_sum(square(y)), variables);
      results.push_back(y);
      return results;
    };
    const auto traced = function(step);
    random::set_seed(5);
    const std::vector<Tensor> eager = step(x), again = step(x);
    random::set_seed(5);
    for (const std::vector<Tensor>& expected : {eager, again}) {
      const std::vector<Tensor> replayed = traced(x);
      ASSERT_EQ(replayed.size(), expected.size());
      for (std::size_t i = 0; i < expected.size(); ++i)
        expect_tensor(replayed[i], float32, expected[i].shape(), values_of(expected[i]), 1e-6);
    }
  }
}

TEST(MultiHeadAttention, ExplainsInvalidInputs) {
  const auto refused = [](const auto& call, const std::string& text) {
    expect_error<InvalidArgumentError>(call, text);
  };
  refused([] { layers::MultiHeadAttention(0, 3); },
          "[multi_head_attention] expected positive num_heads, key_dim and value_dim, got 0, 3");
  refused([] { layers::MultiHeadAttention(2, 3, {.dropout = 1.0}); },
          "[multi_head_attention] expected a dropout in [0, 1), got 1");
  const Tensor x = sequence(2, 4, 6, 1);
  const Layer layer = layers::MultiHeadAttention(2, 3);
  refused(
      [&] {
        layer(std::vector<Tensor>{x, x, x, x, x});
      },
      "expected 1 to 4 inputs {query, value, key, attention_mask}, got 5");
  refused(
      [&] {
        layer(ones({2, 6}));
      },
      "[multi_head_attention] expected inputs of shape (batch, positions, features), got");
  layer(x);
  refused([&] { layer(sequence(2, 4, 5, 1)); },
          "[multi_head_attention] expected an input whose last axis has 6 elements, got (2, 4, 5)");
}

TEST(PositionEmbedding, AddsOneRowPerPosition) {
  const Layer layer = layers::PositionEmbedding(5);
  const Tensor x = sequence(2, 5, 3, 1);
  const Tensor whole = layer(x);
  EXPECT_EQ(layer.variables()[0].name(), "position_embedding/embeddings");
  EXPECT_EQ(layer.variables()[0].shape(), (Shape{5, 3}));
  const Tensor table = layer.variables()[0].value();
  expect_tensor(whole, float32, {2, 5, 3}, values_of(broadcast_to(table, {2, 5, 3})));
  expect_tensor(layer(sequence(1, 2, 3, 1)), float32, {1, 2, 3},
                values_of(slice_rows(table, 0, 2)));
  expect_error<InvalidArgumentError>([&] { layer(sequence(2, 6, 3, 1)); },
                                     "[position_embedding] expected at most 5 positions");
  expect_error<InvalidArgumentError>([] { layers::PositionEmbedding(0); },
                                     "[position_embedding] expected a positive sequence length");
}

}  // namespace
}  // namespace tandem::attention_test
