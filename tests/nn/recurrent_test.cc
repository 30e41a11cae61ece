// Recurrent layers against a plain computation in double precision.
#include "tandem/recurrent.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "nn/layer_support.h"
#include "support/gradient_check.h"
#include "support/tensors.h"
#include "tandem/tandem.h"

namespace tandem::recurrent_test {
namespace {

using layers::GRU;
using layers::LSTM;
using layers::SimpleRNN;
using testing::expect_error;
using testing::expect_tensor;
using testing::names_of;
using testing::random_tensor;
using testing::values_of;
using Values = std::vector<double>;

constexpr std::int64_t kBatch = 2, kSteps = 4, kFeatures = 3, kUnits = 2;
constexpr double kTolerance = 1e-9;

double sigmoid_of(double x) { return 1.0 / (1.0 + std::exp(-x)); }

// Row-major matrices.
Values product(const Values& a, const Values& b, std::size_t rows, std::size_t inner,
               std::size_t columns) {
  Values result(rows * columns, 0.0);
  for (std::size_t i = 0; i < rows; ++i)
    for (std::size_t k = 0; k < inner; ++k)
      for (std::size_t j = 0; j < columns; ++j)
        result[i * columns + j] += a[i * inner + k] * b[k * columns + j];
  return result;
}

// The parts of a layer's gates: those of its inputs and of its state, with biases, for one example.
struct Parts {
  Values x, h;
};
// One step of one example, from its parts, recurrent kernel and state {h} or {h, c}.
using PlainStep = std::function<std::vector<Values>(const Parts&, const Values& recurrent_kernel,
                                                    const std::vector<Values>& state)>;

std::vector<Values> lstm_step(const Parts& p, const Values&, const std::vector<Values>& state) {
  constexpr std::size_t u = kUnits;
  std::vector<Values> next(2, Values(u));
  for (std::size_t j = 0; j < u; ++j) {
    const auto z = [&](std::size_t gate) { return p.x[gate * u + j] + p.h[gate * u + j]; };
    next[1][j] = sigmoid_of(z(1)) * state[1][j] + sigmoid_of(z(0)) * std::tanh(z(2));
    next[0][j] = sigmoid_of(z(3)) * std::tanh(next[1][j]);
  }
  return next;
}

std::vector<Values> gru_step(const Parts& p, const Values&, const std::vector<Values>& state) {
  constexpr std::size_t u = kUnits;
  Values next(u);
  for (std::size_t j = 0; j < u; ++j) {
    const double z = sigmoid_of(p.x[j] + p.h[j]), r = sigmoid_of(p.x[u + j] + p.h[u + j]);
    next[j] = z * state[0][j] + (1.0 - z) * std::tanh(p.x[2 * u + j] + r * p.h[2 * u + j]);
  }
  return {next};
}

std::vector<Values> gru_step_with_reset_before(const Parts& p, const Values& recurrent_kernel,
                                               const std::vector<Values>& state) {
  constexpr std::size_t u = kUnits;
  Values z(u), reset(u), next(u);
  for (std::size_t j = 0; j < u; ++j) {
    z[j] = sigmoid_of(p.x[j] + p.h[j]);
    reset[j] = sigmoid_of(p.x[u + j] + p.h[u + j]) * state[0][j];
  }
  for (std::size_t j = 0; j < u; ++j) {
    double n = p.x[2 * u + j];
    for (std::size_t k = 0; k < u; ++k) n += reset[k] * recurrent_kernel[k * 3 * u + 2 * u + j];
    next[j] = z[j] * state[0][j] + (1.0 - z[j]) * std::tanh(n);
  }
  return {next};
}

std::vector<Values> simple_step(const Parts& p, const Values&, const std::vector<Values>&) {
  Values next(kUnits);
  for (std::size_t j = 0; j < kUnits; ++j) next[j] = std::tanh(p.x[j] + p.h[j]);
  return {next};
}

// The outputs of all steps [batch, steps, units] in the order in which they are made, and the last
// states.
struct Expected {
  Values outputs;
  std::vector<Values> states;
};
struct PlainCall {
  std::vector<Values> first_state{};  // empty: zeros
  std::vector<bool> mask{};           // [batch, steps]; empty: none
  bool backwards = false, zeros_for_mask = false;
};

Expected expected_of(const Layer& layer, const PlainStep& step, std::size_t gates,
                     std::size_t num_states, const Tensor& x, const PlainCall& call) {
  const std::vector<Variable> v = layer.variables();
  const Values kernel = values_of(v[0].value()), recurrent = values_of(v[1].value());
  const Values bias = v.size() > 2 ? values_of(v[2].value()) : Values(gates * kUnits, 0.0);
  const Values sequence = values_of(x);
  Expected expected;
  expected.outputs.resize(kBatch * kSteps * kUnits);
  expected.states.resize(num_states);
  for (std::size_t b = 0; b < kBatch; ++b) {
    std::vector<Values> state(num_states, Values(kUnits, 0.0));
    for (std::size_t s = 0; s < call.first_state.size(); ++s)
      for (std::size_t j = 0; j < kUnits; ++j) state[s][j] = call.first_state[s][b * kUnits + j];
    Values output(kUnits, 0.0);
    for (std::size_t i = 0; i < kSteps; ++i) {
      const std::size_t t = call.backwards ? kSteps - 1 - i : i, at = b * kSteps + t;
      const Values row(sequence.begin() + static_cast<std::ptrdiff_t>(at * kFeatures),
                       sequence.begin() + static_cast<std::ptrdiff_t>((at + 1) * kFeatures));
      Parts parts{product(row, kernel, 1, kFeatures, gates * kUnits),
                  product(state[0], recurrent, 1, kUnits, gates * kUnits)};
      for (std::size_t j = 0; j < gates * kUnits; ++j) {
        parts.x[j] += bias[j];
        if (bias.size() > gates * kUnits) parts.h[j] += bias[gates * kUnits + j];
      }
      if (call.mask.empty() || call.mask[at]) {
        state = step(parts, recurrent, state);
        output = state[0];
      } else if (call.zeros_for_mask) {
        output.assign(kUnits, 0.0);
      }
      for (std::size_t j = 0; j < kUnits; ++j)
        expected.outputs[(b * kSteps + i) * kUnits + j] = output[j];
    }
    for (std::size_t s = 0; s < num_states; ++s)
      expected.states[s].insert(expected.states[s].end(), state[s].begin(), state[s].end());
  }
  return expected;
}

// The output of the last step of each example.
Values last_of(const Values& outputs) {
  Values last;
  for (std::size_t b = 0; b < kBatch; ++b)
    for (std::size_t j = 0; j < kUnits; ++j)
      last.push_back(outputs[((b + 1) * kSteps - 1) * kUnits + j]);
  return last;
}

struct Kind {
  const char* name;
  PlainStep step;
  std::size_t gates, states;
  bool reset_after = true;

  struct Flags {
    bool sequences = false, backwards = false, zeros_for_mask = false, bias = true;
    double dropout = 0.0, recurrent_dropout = 0.0;
  };
  template <class Options>
  static Options options_of(const Flags& flags) {
    Options options;
    options.use_bias = flags.bias;
    options.dropout = flags.dropout;
    options.recurrent_dropout = flags.recurrent_dropout;
    options.return_sequences = flags.sequences;
    options.go_backwards = flags.backwards;
    options.zero_output_for_mask = flags.zeros_for_mask;
    options.dtype = "float64";
    return options;
  }
  // A layer of this kind in float64, with variables that are all random.
  layers::Recurrent make(const Flags& flags) const;
};

// Any of the three, as what they have in common.
struct Any : layers::Recurrent {
  explicit Any(const Layer& layer) : Recurrent(layer.shared()) {}
};

layers::Recurrent Kind::make(const Flags& flags) const {
  Layer layer;
  if (states == 2) {
    layer = LSTM(kUnits, options_of<layers::LSTMOptions>(flags));
  } else if (gates == 3) {
    auto options = options_of<layers::GRUOptions>(flags);
    options.reset_after = reset_after;
    layer = GRU(kUnits, options);
  } else {
    layer = SimpleRNN(kUnits, options_of<layers::SimpleRNNOptions>(flags));
  }
  layer(random_tensor({kBatch, kSteps, kFeatures}, 1));
  std::uint32_t seed = 10;
  for (Variable variable : layer.variables())
    variable.assign(random_tensor(variable.shape(), seed++));
  return Any(layer);
}

const std::vector<Kind>& kinds() {
  static const std::vector<Kind> all = {
      {"LSTM", lstm_step, 4, 2},
      {"GRU", gru_step, 3, 1},
      {"GRU, reset before", gru_step_with_reset_before, 3, 1, false},
      {"SimpleRNN", simple_step, 1, 1}};
  return all;
}

const std::vector<bool> kMask = {true, true, false, true, false, true, true, false};
Tensor mask_tensor() { return constant({{1, 1, 0, 1}, {0, 1, 1, 0}}) == 1.0; }

TEST(Recurrent, OutputsAndStatesEqualAPlainComputation) {
  const Tensor x = random_tensor({kBatch, kSteps, kFeatures}, 2);
  for (const Kind& kind : kinds())
    for (const bool backwards : {false, true})
      for (const bool bias : {true, false}) {
        SCOPED_TRACE(kind.name);
        const auto all = kind.make({.sequences = true, .backwards = backwards, .bias = bias});
        const Expected expected =
            expected_of(all, kind.step, kind.gates, kind.states, x, {.backwards = backwards});
        expect_tensor(all(x), float64, {kBatch, kSteps, kUnits}, expected.outputs, kTolerance);
        const auto last = kind.make({.backwards = backwards, .bias = bias});
        const layers::RecurrentResult result = last.call_with_state(x);
        expect_tensor(result.output, float64, {kBatch, kUnits}, last_of(expected.outputs),
                      kTolerance);
        ASSERT_EQ(result.state.size(), kind.states);
        for (std::size_t s = 0; s < kind.states; ++s)
          expect_tensor(result.state[s], float64, {kBatch, kUnits}, expected.states[s], kTolerance);
      }
}

TEST(Recurrent, AFirstStateAndAMaskAreKept) {
  const Tensor x = random_tensor({kBatch, kSteps, kFeatures}, 2);
  for (const Kind& kind : kinds())
    for (const bool backwards : {false, true})
      for (const bool zeros_for_mask : {false, true}) {
        SCOPED_TRACE(kind.name);
        const auto layer = kind.make(
            {.sequences = true, .backwards = backwards, .zeros_for_mask = zeros_for_mask});
        layers::RecurrentCallOptions options{.mask = mask_tensor()};
        PlainCall call{.mask = kMask, .backwards = backwards, .zeros_for_mask = zeros_for_mask};
        for (std::uint32_t s = 0; s < kind.states; ++s) {
          options.initial_state.push_back(random_tensor({kBatch, kUnits}, 30 + s));
          call.first_state.push_back(values_of(options.initial_state.back()));
        }
        const Expected expected = expected_of(layer, kind.step, kind.gates, kind.states, x, call);
        const layers::RecurrentResult result = layer.call_with_state(x, options);
        expect_tensor(result.output, float64, {kBatch, kSteps, kUnits}, expected.outputs,
                      kTolerance);
        for (std::size_t s = 0; s < kind.states; ++s)
          expect_tensor(result.state[s], float64, {kBatch, kUnits}, expected.states[s], kTolerance);
        // The same as inputs of the layer.
        std::vector<Tensor> inputs{x};
        inputs.insert(inputs.end(), options.initial_state.begin(), options.initial_state.end());
        inputs.push_back(options.mask);
        expect_tensor(layer(inputs), float64, {kBatch, kSteps, kUnits}, expected.outputs,
                      kTolerance);
      }
}

TEST(Recurrent, PartsOfASequenceWithTheStateBetweenEqualTheWhole) {
  const Tensor x = random_tensor({kBatch, kSteps, kFeatures}, 2);
  for (const Kind& kind : kinds()) {
    SCOPED_TRACE(kind.name);
    const auto layer = kind.make({});
    const auto first = layer.call_with_state(slice(x, {0, 0, 0}, {-1, 1, -1}));
    const auto rest =
        layer.call_with_state(slice(x, {0, 1, 0}, {-1, -1, -1}), {.initial_state = first.state});
    expect_tensor(rest.output, float64, {kBatch, kUnits}, values_of(layer(x)), kTolerance);
  }
}

TEST(Recurrent, GradientsAreThoseOfDifferences) {
  const Tensor x = random_tensor({kBatch, kSteps, kFeatures}, 2);
  for (const Kind& kind : kinds()) {
    SCOPED_TRACE(kind.name);
    const auto layer = kind.make({.sequences = true});
    std::vector<Tensor> inputs{x};
    for (std::uint32_t s = 0; s < kind.states; ++s)
      inputs.push_back(random_tensor({kBatch, kUnits}, 30 + s));
    testing::expect_gradients(
        [&](const std::vector<Tensor>& in) {
          return layer
              .call_with_state(in[0],
                               {.initial_state = {in.begin() + 1, in.end()}, .mask = mask_tensor()})
              .output;
        },
        inputs);
    for (Variable variable : layer.variables()) {
      SCOPED_TRACE(variable.name());
      const Tensor kept = variable.value();
      GradientTape tape;
      const Tensor loss = reduce_sum(square(layer(x)));
      const Values gradient = values_of(tape.gradient(loss, variable));
      for (std::size_t i = 0; i < gradient.size(); ++i) {
        const auto loss_at = [&](double step) {
          Values moved = values_of(kept);
          moved[i] += step;
          variable.assign(constant(moved, {.shape = kept.shape()}));
          return reduce_sum(square(layer(x))).item<double>();
        };
        EXPECT_NEAR(gradient[i], (loss_at(1e-5) - loss_at(-1e-5)) / 2e-5, 1e-6) << i;
      }
      variable.assign(kept);
    }
  }
}

TEST(Recurrent, TracesOfUnknownBatchesEqualEagerCalls) {
  for (const Kind& kind : kinds()) {
    SCOPED_TRACE(kind.name);
    const auto layer = kind.make({.sequences = true});
    const auto eager = [&](const Tensor& x, const Tensor& mask) {
      const auto [output, state] = layer.call_with_state(x, {.mask = mask});
      return concat({output, expand_dims(state.back(), 1)}, 1);
    };
    const auto traced = function(
        eager, {.input_signature = {{{-1, kSteps, kFeatures}, float64}, {{-1, kSteps}, bool_}}});
    for (const std::int64_t batch : {2, 5}) {
      const Tensor x = random_tensor({batch, kSteps, kFeatures}, 7);
      const Tensor mask = random_tensor({batch, kSteps}, 8) > 0.0;
      const Tensor expected = eager(x, mask);
      expect_tensor(traced(x, mask), float64, expected.shape(), values_of(expected), kTolerance);
    }
  }
}

TEST(Recurrent, HasKerasNamesShapesAndInitialValues) {
  const Sequential model({LSTM(5, {.input_shape = {7, 3}}), layers::Dense(1)});
  const std::vector<Variable> variables = model.variables();
  ASSERT_EQ(variables.size(), 5u);
  EXPECT_EQ(variables[0].name(), "lstm/lstm_cell/kernel");
  EXPECT_EQ(variables[1].name(), "lstm/lstm_cell/recurrent_kernel");
  EXPECT_EQ(variables[2].name(), "lstm/lstm_cell/bias");
  EXPECT_EQ(variables[0].shape(), (Shape{3, 20}));
  EXPECT_EQ(variables[1].shape(), (Shape{5, 20}));
  const Values bias = values_of(variables[2].value());
  for (std::size_t i = 0; i < 20; ++i) EXPECT_EQ(bias[i], i >= 5 && i < 10 ? 1.0 : 0.0);
  const Tensor recurrent = variables[1].value();
  expect_tensor(matmul(recurrent, recurrent, {.transpose_b = true}), float32, {5, 5},
                values_of(tandem::eye(5)), 1e-5);
  GRU gru(5);
  gru(ones({2, 7, 3}));
  EXPECT_EQ(gru.variables()[2].shape(), (Shape{2, 15}));
  GRU before(5, {.reset_after = false});
  before(ones({2, 7, 3}));
  EXPECT_EQ(before.variables()[2].shape(), (Shape{15}));
  EXPECT_EQ(testing::infer(gru, {-1, 7, 3}), (Shape{-1, 5}));
  EXPECT_EQ(testing::infer(GRU(5, {.return_sequences = true}), {-1, -1, 3}), (Shape{-1, -1, 5}));
}

TEST(Recurrent, DropoutHasOneChoiceForAllSteps) {
  for (const double recurrent : {0.0, 0.5}) {
    random::set_seed(3);
    const SimpleRNN layer(4, {.activation = "linear",
                              .kernel_initializer = "ones",
                              .recurrent_initializer = "zeros",
                              .dropout = 0.5,
                              .recurrent_dropout = recurrent,
                              .return_sequences = true});
    const Tensor x = ones({64, 3, 2});
    expect_tensor(layer(x), float32, {64, 3, 4}, Values(64 * 3 * 4, 2.0), 1e-6);
    const Values y = values_of(layer(x, {.training = true}));
    std::map<double, int> seen;
    for (std::size_t b = 0; b < 64; ++b) {
      ++seen[y[b * 12]];
      for (std::size_t t = 1; t < 3; ++t)
        for (std::size_t j = 0; j < 4; ++j) EXPECT_EQ(y[b * 12 + t * 4 + j], y[b * 12 + j]);
    }
    EXPECT_EQ(seen.size(), 3u);  // 0, 1 or 2 features are kept, and doubled
    EXPECT_GT(seen[2.0], 16);
  }
  // The state's choice, and the gates' own ones.
  for (const Kind& kind : kinds()) {
    SCOPED_TRACE(kind.name);
    const auto layer = kind.make({.dropout = 0.3, .recurrent_dropout = 0.4});
    const Tensor x = random_tensor({kBatch, kSteps, kFeatures}, 2);
    EXPECT_NE(values_of(layer(x, {.training = true})), values_of(layer(x)));
    EXPECT_EQ(layer(x, {.training = true}).shape(), (Shape{kBatch, kUnits}));
  }
}

TEST(Recurrent, SixteenBitsAreCloseToFloat32) {
  for (const char* policy : {"mixed_bfloat16", "bfloat16"}) {
    SCOPED_TRACE(policy);
    random::set_seed(1);
    const LSTM narrow(8, {.dtype = policy});
    const LSTM wide(8);
    const Tensor x = random::normal({4, 6, 3});
    narrow(x);
    wide(x);
    for (std::size_t i = 0; i < 3; ++i)
      Variable(wide.variables()[i]).assign(cast(narrow.variables()[i].value(), float32));
    const Tensor result = narrow(x);
    EXPECT_EQ(result.dtype(), bfloat16);
    expect_tensor(cast(result, float32), float32, {4, 8}, values_of(wide(x)), 0.03);
  }
}

// The results of a model that was trained for three epochs.
Values trained_on(const std::vector<std::string>& devices) {
  random::set_seed(5);
  const distribute::MirroredStrategy strategy({.devices = devices});
  Model model;
  {
    const auto scope = strategy.scope();
    model = Sequential({layers::Bidirectional(LSTM(
                            4, {.dropout = 0.2, .return_sequences = true, .input_shape = {5, 2}})),
                        GRU(3), layers::Dense(1)});
    model.compile({.optimizer = "sgd", .loss = "mse"});
  }
  const Tensor x = reshape(range(0.0, 80.0, 1.0), {8, 5, 2}) / 80.0;
  const Tensor y = reduce_mean(reshape(x, {8, 10}), {.axis = Dims{1}, .keepdims = true});
  model.fit(x, y, {.epochs = 3, .batch_size = 4, .verbose = 0, .shuffle = false});
  return values_of(model(x));
}

TEST(Recurrent, ModelsTrainTheSameOnTwoReplicas) {
  config::set_logical_cpus(2);
  const Values one = trained_on({"/cpu:0"}), two = trained_on({"/cpu:0", "/cpu:1"});
  ASSERT_EQ(one.size(), two.size());
  for (std::size_t i = 0; i < one.size(); ++i) EXPECT_NEAR(one[i], two[i], 1e-6);
}

TEST(Recurrent, MistakesAreNamed) {
  const Tensor x = ones({2, 4, 3});
  const LSTM layer(5);
  layer(x);
  expect_error<InvalidArgumentError>(
      [&] {
        static_cast<void>(layer(ones({2, 3})));
      },
      "[lstm] expected a sequence of shape (batch, steps, features)");
  expect_error<InvalidArgumentError>(
      [&] {
        static_cast<void>(layer(ones({2, 4, 7})));
      },
      "[lstm] expected an input whose last axis has 3 elements");
  expect_error<InvalidArgumentError>(
      [&] {
        static_cast<void>(layer(ones({2, 0, 3})));
      },
      "[lstm] expected at least one step, got (2, 0, 3)");
  expect_error<InvalidArgumentError>(
      [&] {
        static_cast<void>(layer({x, ones({2, 5})}));
      },
      "2 tensors of the first state or none");
  expect_error<InvalidArgumentError>(
      [&] {
        static_cast<void>(layer({x, ones({2, 5}), ones({2, 6})}));
      },
      "[lstm] expected a first state of shape (batch, 5)");
  expect_error<InvalidArgumentError>(
      [&] {
        static_cast<void>(layer({x, ones({2, 3}) == 1.0}));
      },
      "[lstm] expected a mask (batch, steps)");
  expect_error<InvalidArgumentError>(
      [&] {
        layer.call_with_state(x, {.mask = ones({2, 4})});
      },
      "[lstm] expected a bool mask, got float32");
  expect_error<InvalidArgumentError>([] { LSTM(0); }, "[lstm] expected a positive number of units");
  expect_error<InvalidArgumentError>([] { GRU(2, {.dropout = 1.0}); },
                                     "[gru] expected dropout rates in [0, 1), got 1");
  const GRU gru(5);
  gru(x);
  const auto traced = function([&](const Tensor& sequence) { return gru(sequence); },
                               {.input_signature = {{{2, -1, 3}, float32}}});
  expect_error<InvalidArgumentError>([&] { static_cast<void>(traced(x)); },
                                     "[gru] expected a known number of steps");
}

TEST(Recurrent, UnknownNumbersOfStepsEqualEagerCalls) {
  const DeviceScope cpu("/cpu:0");
  for (const bool backwards : {false, true}) {
    const auto layer = kinds()[0].make({.backwards = backwards});
    const layers::Bidirectional both(Any(kinds()[0].make({.sequences = true})));
    const nn::LSTM module(kFeatures, kUnits, {.batch_first = true, .bidirectional = backwards});
    const auto eager = [&](const Tensor& x) {
      GradientTape tape;
      tape.watch(x);
      const auto [output, state] = layer.call_with_state(x);
      const auto [hidden, last] = module(cast(x, float32));
      const Tensor loss = reduce_sum(square(both(x))) + reduce_sum(output * state[1]) +
                          cast(reduce_sum(square(hidden)) + reduce_sum(std::get<1>(last)), float64);
      return concat({reshape(loss, {1}), reshape(tape.gradient(loss, x), {-1})}, 0);
    };
    const auto traced = function(eager, {.input_signature = {{{-1, -1, kFeatures}, float64}}});
    static_cast<void>(eager(random_tensor({1, 1, kFeatures})));  // builds the layers
    for (const std::int64_t steps : {1, 3}) {
      const Tensor x = random_tensor({2, steps, kFeatures}, 7);
      const Tensor expected = eager(x);
      expect_tensor(traced(x), float64, expected.shape(), values_of(expected), 1e-6);
    }
    const auto masked = function(
        [&](const Tensor& x, const Tensor& mask) {
          return layer({x, mask});
        },
        {.input_signature = {{{2, -1, kFeatures}, float64}, {{2, -1}, bool_}}});
    expect_error<InvalidArgumentError>(
        [&] {
          static_cast<void>(masked(random_tensor({2, 2, kFeatures}), ones({2, 2}) == 1.0));
        },
        "expected a known number of steps");
  }
}

TEST(Recurrent, BothDirectionsHaveKerasNames) {
  const Sequential model({layers::Bidirectional(LSTM(2), {.input_shape = {4, 3}})});
  EXPECT_EQ(names_of(model.variables()),
            (std::vector<std::string>{"bidirectional/forward_lstm/lstm_cell/kernel",
                                      "bidirectional/forward_lstm/lstm_cell/recurrent_kernel",
                                      "bidirectional/forward_lstm/lstm_cell/bias",
                                      "bidirectional/backward_lstm/lstm_cell/kernel",
                                      "bidirectional/backward_lstm/lstm_cell/recurrent_kernel",
                                      "bidirectional/backward_lstm/lstm_cell/bias"}));
}

TEST(Recurrent, BothDirectionsAreMergedByStep) {
  const Tensor x = random_tensor({kBatch, kSteps, kFeatures}, 2);
  for (const char* mode : {"concat", "sum", "mul", "ave"})
    for (const bool sequences : {true, false}) {
      SCOPED_TRACE(mode);
      const layers::Bidirectional both(
          LSTM(kUnits, {.return_sequences = sequences, .dtype = "float64"}),
          {.merge_mode = mode, .dtype = "float64"});
      both(x);
      LSTM one(kUnits, {.return_sequences = sequences, .dtype = "float64"});
      LSTM other(kUnits, {.return_sequences = sequences, .go_backwards = true, .dtype = "float64"});
      one(x), other(x);
      const std::vector<Tensor> w = both.get_weights();
      one.set_weights({w[0], w[1], w[2]}), other.set_weights({w[3], w[4], w[5]});
      const auto a = one.call_with_state(x), b = other.call_with_state(x);
      const Tensor back = sequences ? reverse(b.output, {1}) : b.output;
      const std::string how = mode;
      const Tensor expected = how == "concat" ? concat({a.output, back}, -1)
                              : how == "sum"  ? a.output + back
                              : how == "mul"  ? a.output * back
                                              : (a.output + back) / 2.0;
      const auto result = both.call_with_state(x);
      expect_tensor(result.output, float64, expected.shape(), values_of(expected), kTolerance);
      EXPECT_EQ(testing::infer(both, {kBatch, kSteps, kFeatures}), expected.shape());
      ASSERT_EQ(result.state.size(), 4u);
      EXPECT_EQ(values_of(result.state[1]), values_of(a.state[1]));
      EXPECT_EQ(values_of(result.state[2]), values_of(b.state[0]));
      const auto again = both.call_with_state(x, {.initial_state = result.state});
      const Tensor continued = one.call_with_state(x, {.initial_state = a.state}).output;
      if (how == "concat" && !sequences)
        expect_tensor(slice(again.output, {0, 0}, {-1, kUnits}), float64, {kBatch, kUnits},
                      values_of(continued), kTolerance);
    }
  expect_error<InvalidArgumentError>([] { layers::Bidirectional(layers::Dense(2)); },
                                     "[bidirectional] expected a recurrent layer, got 'dense'");
  expect_error<InvalidArgumentError>([] { layers::Bidirectional(LSTM(2), {.merge_mode = "max"}); },
                                     "expected one of: concat, sum, mul, ave; got 'max'");
  expect_error<InvalidArgumentError>(
      [] { layers::Bidirectional(LSTM(2), {.backward_layer = LSTM(2)}); },
      "different values of go_backwards");
}

TEST(Recurrent, TimeDistributedAppliesALayerToEachStep) {
  const layers::TimeDistributed dense(layers::Dense(4));
  const Tensor x = random::normal({2, 5, 3});
  const Tensor y = dense(x);
  EXPECT_EQ(names_of(dense.variables()), (std::vector<std::string>{"dense/kernel", "dense/bias"}));
  const Tensor expected = matmul(x, dense.variables()[0]) + dense.variables()[1];
  expect_tensor(y, float32, {2, 5, 4}, values_of(expected), 1e-5);
  const layers::TimeDistributed images(layers::Conv2D(6, 3));
  EXPECT_EQ(images(ones({2, 3, 8, 9, 1})).shape(), (Shape{2, 3, 6, 7, 6}));
  EXPECT_EQ(testing::infer(images, {-1, 3, 8, 9, 1}), (Shape{-1, 3, 6, 7, 6}));
  const auto traced = function([&](const Tensor& in) { return dense(in); },
                               {.input_signature = {{{-1, -1, 3}, float32}}});
  expect_tensor(traced(x), float32, {2, 5, 4}, values_of(y), 1e-6);
  expect_error<InvalidArgumentError>(
      [&] {
        static_cast<void>(dense(ones({2, 3})));
      },
      "with at least 3 axes, got (2, 3)");
}

}  // namespace
}  // namespace tandem::recurrent_test
