// PyTorch's recurrent modules against Keras's layers, whose weights are arranged differently.
#include "tandem/recurrent_modules.h"

#include <gtest/gtest.h>

#include <string>
#include <tuple>
#include <vector>

#include "support/gradient_check.h"
#include "support/tensors.h"
#include "tandem/tandem.h"

namespace tandem::recurrent_modules_test {
namespace {

using testing::expect_error;
using testing::expect_tensor;
using testing::random_tensor;
using testing::values_of;

constexpr std::int64_t kSteps = 4, kBatch = 2, kFeatures = 3, kHidden = 5;
constexpr double kTolerance = 1e-5;

// Swaps the first two thirds of the last axis: PyTorch's r, z, n and Keras's z, r, n.
Tensor swapped(const Tensor& x) {
  const std::vector<Tensor> parts = split(x, 3, {.axis = x.rank() - 1});
  return concat({parts[1], parts[0], parts[2]}, -1);
}

// The layer with the weights of one layer and direction of a module, which are four variables from
// `first` on.
layers::Recurrent keras_layer(const std::vector<Variable>& v, std::size_t first, std::int64_t gates,
                              std::int64_t features, bool backwards) {
  const Tensor kernel = transpose(v[first].value()), recurrent = transpose(v[first + 1].value());
  const Tensor a = v[first + 2].value(), b = v[first + 3].value();
  const auto with = [&](auto layer, const std::vector<Tensor>& weights) -> layers::Recurrent {
    layer(zeros({1, 1, features}));
    layer.set_weights(weights);
    return layer;
  };
  if (gates == 4)
    return with(layers::LSTM(kHidden, {.return_sequences = true, .go_backwards = backwards}),
                {kernel, recurrent, a + b});
  if (gates == 1)
    return with(layers::SimpleRNN(kHidden, {.return_sequences = true, .go_backwards = backwards}),
                {kernel, recurrent, a + b});
  return with(layers::GRU(kHidden, {.return_sequences = true, .go_backwards = backwards}),
              {swapped(kernel), swapped(recurrent), stack({swapped(a), swapped(b)}, 0)});
}

struct Result {
  Tensor output;
  std::vector<Tensor> states;
};

// Two layers of both directions for [batch, steps, features].
Result two_layers(const std::vector<Variable>& v, std::int64_t gates, const Tensor& x) {
  Result result{x, {}};
  std::vector<std::vector<Tensor>> states(gates == 4 ? 2 : 1);
  for (std::size_t layer = 0; layer < 2; ++layer) {
    std::vector<Tensor> outputs;
    for (std::size_t direction = 0; direction < 2; ++direction) {
      const bool backwards = direction == 1;
      const auto one =
          keras_layer(v, layer * 8 + direction * 4, gates, result.output.dim(-1), backwards)
              .call_with_state(result.output);
      outputs.push_back(backwards ? reverse(one.output, {1}) : one.output);
      for (std::size_t s = 0; s < states.size(); ++s) states[s].push_back(one.state[s]);
    }
    result.output = concat(outputs, -1);
  }
  for (const auto& each : states) result.states.push_back(stack(each, 0));
  return result;
}

const nn::RecurrentArguments kBoth = {.num_layers = 2, .batch_first = true, .bidirectional = true};

void expect_equal(const Tensor& a, const Tensor& b) {
  expect_tensor(a, b.dtype(), b.shape(), values_of(b), kTolerance);
}

TEST(RecurrentModules, EqualKerasLayersWithTheDocumentedWeights) {
  const Tensor x = random::normal({kBatch, kSteps, kFeatures});
  const nn::LSTM lstm(kFeatures, kHidden, kBoth);
  const auto [output, state] = lstm(x);
  const Result expected = two_layers(lstm.parameters(), 4, x);
  expect_equal(output, expected.output);
  expect_equal(std::get<0>(state), expected.states[0]);
  expect_equal(std::get<1>(state), expected.states[1]);
  const nn::GRU gru(kFeatures, kHidden, kBoth);
  const auto [gru_output, gru_state] = gru(x);
  const Result gru_expected = two_layers(gru.parameters(), 3, x);
  expect_equal(gru_output, gru_expected.output);
  expect_equal(gru_state, gru_expected.states[0]);
  const nn::RNN rnn(kFeatures, kHidden, kBoth);
  expect_equal(std::get<0>(rnn(x)), two_layers(rnn.parameters(), 1, x).output);
}

TEST(RecurrentModules, HavePyTorchsNamesShapesAndLayouts) {
  const nn::LSTM lstm(nn::LSTMOptions(kFeatures, kHidden).num_layers(2).bidirectional(true));
  std::vector<std::string> names;
  for (const auto& [name, variable] : lstm.named_parameters()) names.push_back(name);
  ASSERT_EQ(names.size(), 16u);
  EXPECT_EQ(names[0], "weight_ih_l0");
  EXPECT_EQ(names[3], "bias_hh_l0");
  EXPECT_EQ(names[4], "weight_ih_l0_reverse");
  EXPECT_EQ(names[12], "weight_ih_l1_reverse");
  EXPECT_EQ(lstm.parameters()[8].shape(), (Shape{4 * kHidden, 2 * kHidden}));
  const Tensor x = random::normal({kSteps, kBatch, kFeatures});
  const auto [output, state] = lstm(x);
  EXPECT_EQ(output.shape(), (Shape{kSteps, kBatch, 2 * kHidden}));
  EXPECT_EQ(std::get<1>(state).shape(), (Shape{4, kBatch, kHidden}));
  // Without a batch, and with a first state.
  const Tensor one = reshape(slice(x, {0, 0, 0}, {-1, 1, -1}), {kSteps, kFeatures});
  const auto [alone, alone_state] = lstm(one);
  EXPECT_EQ(alone.shape(), (Shape{kSteps, 2 * kHidden}));
  EXPECT_EQ(std::get<0>(alone_state).shape(), (Shape{4, kHidden}));
  expect_equal(alone, reshape(slice(output, {0, 0, 0}, {-1, 1, -1}), {kSteps, 2 * kHidden}));
}

TEST(RecurrentModules, StatesContinueASequence) {
  const nn::GRU gru(kFeatures, kHidden, {.num_layers = 2, .bias = false});
  const Tensor x = random::normal({kSteps, kBatch, kFeatures});
  const auto [whole, last] = gru(x);
  const auto [first, between] = gru(slice_rows(x, 0, 1));
  const auto [rest, end] = gru(slice_rows(x, 1, kSteps), between);
  expect_equal(concat({first, rest}, 0), whole);
  expect_equal(end, last);
  const nn::LSTM lstm(kFeatures, kHidden);
  const auto [lstm_whole, lstm_last] = lstm(x);
  const auto [lstm_first, lstm_between] = lstm(slice_rows(x, 0, 1));
  const auto [lstm_rest, lstm_end] = lstm(slice_rows(x, 1, kSteps), lstm_between);
  expect_equal(concat({lstm_first, lstm_rest}, 0), lstm_whole);
  expect_equal(std::get<1>(lstm_end), std::get<1>(lstm_last));
}

TEST(RecurrentModules, DropOutputsBetweenLayersInTraining) {
  const nn::RNN rnn(kFeatures, kHidden, {.num_layers = 2, .nonlinearity = "relu", .dropout = 0.9});
  const Tensor x = random::normal({kSteps, 16, kFeatures});
  rnn.eval();
  const Tensor kept = std::get<0>(rnn(x));
  expect_equal(std::get<0>(rnn(x)), kept);
  rnn.train();
  EXPECT_NE(values_of(std::get<0>(rnn(x))), values_of(kept));
}

TEST(RecurrentModules, TracesOfUnknownBatchesTrain) {
  const nn::LSTM lstm(kFeatures, kHidden, kBoth);
  const auto loss_of = [&](const Tensor& x) {
    GradientTape tape;
    const auto [output, state] = lstm(x);
    const Tensor loss = reduce_mean(square(output)) + reduce_mean(std::get<1>(state));
    const std::vector<Tensor> slopes = tape.gradient(loss, lstm.parameters());
    return loss + reduce_sum(square(slopes[0]));
  };
  const auto traced = function(loss_of, {.input_signature = {{{-1, kSteps, kFeatures}, float32}}});
  for (const std::int64_t batch : {2, 3}) {
    const Tensor x = random::normal({batch, kSteps, kFeatures});
    EXPECT_NEAR(traced(x).item(), loss_of(x).item(), kTolerance);
  }
}

TEST(RecurrentModules, MistakesAreNamed) {
  const nn::LSTM lstm(kFeatures, kHidden);
  expect_error<InvalidArgumentError>(
      [&] {
        static_cast<void>(lstm(ones({2, 2, 7})));
      },
      "[lstm] expected an input whose last axis has 3 elements");
  expect_error<InvalidArgumentError>([&] { static_cast<void>(lstm(ones({3}))); },
                                     "[lstm] expected an input of 2 or 3 axes, got shape (3,)");
  expect_error<InvalidArgumentError>(
      [&] {
        static_cast<void>(lstm(ones({2, 2, 3}), std::tuple{ones({1, 1, 5}), ones({1, 1, 5})}));
      },
      "[lstm] expected a first state of shape (1, 2, 5), got (1, 1, 5)");
  expect_error<InvalidArgumentError>([] { nn::GRU(3, 0); }, "[gru] expected positive sizes");
  expect_error<InvalidArgumentError>([] { nn::RNN(3, 2, {.nonlinearity = "elu"}); },
                                     "[rnn] expected nonlinearity 'tanh' or 'relu', got 'elu'");
}

}  // namespace
}  // namespace tandem::recurrent_modules_test
