// PyTorch's recurrent modules.
#include "tandem/recurrent_modules.h"

#include <cmath>

#include "core/dim.h"
#include "core/status.h"
#include "ops/math/of_size.h"
#include "ops/nn/lstm.h"
#include "tandem/array.h"
#include "tandem/creation.h"
#include "tandem/math.h"
#include "tandem/nn.h"
#include "tandem/random.h"

namespace tandem::nn {

RecurrentImpl::RecurrentImpl(const char* kind, int gates, int states,
                             const RecurrentOptions& options)
    : kind_(kind), gates_(gates), states_(states), options_(options) {
  const RecurrentArguments& a = options.arguments();
  const std::int64_t hidden = options.hidden_size();
  if (options.input_size() <= 0 || hidden <= 0 || a.num_layers <= 0)
    fail<InvalidArgumentError>(
        "[{}] expected positive sizes and numbers of layers, got input_size {}, hidden_size {} and "
        "num_layers {}",
        kind, options.input_size(), hidden, a.num_layers);
  if (!(a.dropout >= 0.0 && a.dropout < 1.0))
    fail<InvalidArgumentError>("[{}] expected a dropout in [0, 1), got {}", kind, a.dropout);
  if (a.nonlinearity != "tanh" && (a.nonlinearity != "relu" || gates != 1))
    fail<InvalidArgumentError>("[{}] expected nonlinearity 'tanh'{}, got '{}'", kind,
                               gates == 1 ? " or 'relu'" : "", a.nonlinearity);
  const double bound = 1.0 / std::sqrt(static_cast<double>(hidden));
  const std::int64_t directions = a.bidirectional ? 2 : 1, rows = gates * hidden;
  const auto parameter = [&](const std::string& name, const Shape& shape) {
    return register_parameter(name, random::uniform(shape, -bound, bound));
  };
  for (std::int64_t layer = 0; layer < a.num_layers; ++layer)
    for (std::int64_t direction = 0; direction < directions; ++direction) {
      const std::string suffix = "_l" + std::to_string(layer) + (direction > 0 ? "_reverse" : "");
      const std::int64_t features = layer == 0 ? options.input_size() : hidden * directions;
      Weights weights;
      weights.input = parameter("weight_ih" + suffix, {rows, features});
      weights.state = parameter("weight_hh" + suffix, {rows, hidden});
      if (a.bias) {
        weights.input_bias = parameter("bias_ih" + suffix, {rows});
        weights.state_bias = parameter("bias_hh" + suffix, {rows});
      }
      weights_.push_back(weights);
    }
}

void RecurrentImpl::check(const Tensor& input, const std::vector<Tensor>& state) const {
  const int rank = input.rank();
  if (rank != 2 && rank != 3)
    fail<InvalidArgumentError>("[{}] expected an input of 2 or 3 axes, got shape {}", kind_,
                               input.shape().to_string());
  if (!dim::may_equal(input.size_word(rank - 1), options_.input_size()))
    fail<InvalidArgumentError>("[{}] expected an input whose last axis has {} elements, got {}",
                               kind_, options_.input_size(), input.shape().to_string());
  const int time = rank == 3 && options_.arguments().batch_first ? 1 : 0;
  const std::int64_t steps = input.size_word(time);
  if (steps == 0 || (steps < 0 && !(gates_ == 4 && has_lstm_steps(input.dtype(), steps))))
    fail<InvalidArgumentError>(
        "[{}] expected a known number of steps, at least 1 (a trace has the operations of each), "
        "got {}",
        kind_, input.shape().to_string());
  const auto layers = static_cast<std::int64_t>(weights_.size());
  Shape expected{layers, options_.hidden_size()};
  if (rank == 3) expected = Shape({layers, input.size_word(1 - time), options_.hidden_size()});
  for (const Tensor& each : state)
    if (!may_agree(each.shape(), expected))
      fail<InvalidArgumentError>("[{}] expected a first state of shape {}, got {}", kind_,
                                 expected.to_string(), each.shape().to_string());
}

// One step. `x`: the products of its inputs; for LSTM and RNN with both biases.
RecurrentImpl::States RecurrentImpl::step(const Tensor& x, const States& state,
                                          const Weights& weights) const {
  const Tensor h = matmul(state[0], weights.state, {.transpose_b = true});
  if (gates_ == 1) {
    const Tensor sum = x + h;
    return {options_.arguments().nonlinearity == "relu" ? relu(sum) : tanh(sum)};
  }
  if (gates_ == 4) {
    const std::vector<Tensor> z = split(x + h, 4, {.axis = 1});
    const Tensor c = sigmoid(z[1]) * state[1] + sigmoid(z[0]) * tanh(z[2]);
    return {sigmoid(z[3]) * tanh(c), c};
  }
  const std::vector<Tensor> a = split(x, 3, {.axis = 1});
  const std::vector<Tensor> b =
      split(weights.state_bias.defined() ? bias_add(h, weights.state_bias) : h, 3, {.axis = 1});
  const Tensor r = sigmoid(a[0] + b[0]), z = sigmoid(a[1] + b[1]);
  const Tensor n = tanh(a[2] + r * b[2]);
  return {subtract(1.0, z) * n + z * state[0]};
}

std::pair<Tensor, RecurrentImpl::States> RecurrentImpl::run_direction(const Tensor& x, States state,
                                                                      const Weights& weights,
                                                                      bool backwards) const {
  Tensor bias;
  if (weights.input_bias.defined())
    bias = gates_ == 3 ? weights.input_bias.value()
                       : weights.input_bias.value() + weights.state_bias.value();
  Tensor products = dense(x, transpose(weights.input.value()), bias);
  if (state.empty())
    state.assign(static_cast<std::size_t>(states_),
                 zeros_like(slice(products[0], {0, 0}, {-1, options_.hidden_size()})));
  if (gates_ == 4 && has_lstm_steps(products.dtype(), products.size_word(0))) {
    auto [hidden, last_hidden, last_cell] =
        lstm_steps(std::move(products), state[0], state[1], transpose(weights.state.value()),
                   {.go_backwards = backwards, .time_major = true});
    return {std::move(hidden), {std::move(last_hidden), std::move(last_cell)}};
  }
  const std::vector<Tensor> steps = unstack(products, 0);
  std::vector<Tensor> outputs(steps.size());
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const std::size_t t = backwards ? steps.size() - 1 - i : i;
    state = step(steps[t], state, weights);
    outputs[t] = state[0];
  }
  return {stack(outputs, 0), std::move(state)};
}

std::pair<Tensor, std::vector<Tensor>> RecurrentImpl::run(const Tensor& input,
                                                          const std::vector<Tensor>& first) const {
  check(input, first);
  const RecurrentArguments& a = options_.arguments();
  const bool one = input.rank() == 2, swaps = !one && a.batch_first;
  Tensor x = one ? expand_dims(input, 1) : swaps ? transpose(input, {1, 0, 2}) : input;
  const std::size_t directions = a.bidirectional ? 2 : 1, layers = weights_.size() / directions;
  std::vector<std::vector<Tensor>> firsts, lasts(static_cast<std::size_t>(states_));
  for (const Tensor& given : first) {
    const Tensor state = one ? expand_dims(given, 1) : given;
    firsts.push_back(
        unstack(of_shape(kind_, "a first state of shape", state,
                         Shape({std::ssize(weights_), x.size_word(1), options_.hidden_size()})),
                0));
  }
  for (std::size_t layer = 0; layer < layers; ++layer) {
    std::vector<Tensor> outputs;
    for (std::size_t direction = 0; direction < directions; ++direction) {
      const std::size_t i = layer * directions + direction;
      States state;
      for (const auto& each : firsts) state.push_back(each[i]);
      auto [output, last] = run_direction(x, std::move(state), weights_[i], direction > 0);
      outputs.push_back(std::move(output));
      for (std::size_t s = 0; s < lasts.size(); ++s) lasts[s].push_back(last[s]);
    }
    x = directions == 1 ? outputs[0] : concat(outputs, -1);
    if (a.dropout > 0.0 && layer + 1 < layers && is_training()) x = nn::dropout(x, a.dropout);
  }
  std::vector<Tensor> states;
  for (const auto& last : lasts) {
    const Tensor all = stack(last, 0);
    states.push_back(one ? squeeze(all, {1}) : all);
  }
  return {one ? squeeze(x, {1}) : swaps ? transpose(x, {1, 0, 2}) : x, std::move(states)};
}

std::tuple<Tensor, std::tuple<Tensor, Tensor>> LSTMImpl::forward(
    const Tensor& input, const std::optional<std::tuple<Tensor, Tensor>>& state) const {
  std::vector<Tensor> first;
  if (state) first = {std::get<0>(*state), std::get<1>(*state)};
  auto [output, last] = run(input, first);
  return {std::move(output), {last[0], last[1]}};
}

std::tuple<Tensor, Tensor> GRUImpl::forward(const Tensor& input, const Tensor& state) const {
  auto [output, last] = run(input, state.defined() ? std::vector{state} : std::vector<Tensor>());
  return {std::move(output), last[0]};
}

std::tuple<Tensor, Tensor> RNNImpl::forward(const Tensor& input, const Tensor& state) const {
  auto [output, last] = run(input, state.defined() ? std::vector{state} : std::vector<Tensor>());
  return {std::move(output), last[0]};
}

LSTM::LSTM(const LSTMOptions& options) : ModuleHolder(std::make_shared<LSTMImpl>(options)) {}

GRU::GRU(const GRUOptions& options) : ModuleHolder(std::make_shared<GRUImpl>(options)) {}

RNN::RNN(const RNNOptions& options) : ModuleHolder(std::make_shared<RNNImpl>(options)) {}

}  // namespace tandem::nn
