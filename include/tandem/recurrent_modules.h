/// @file
/// Recurrent modules with PyTorch's names, layouts and defaults. As torch.nn. Tandem's own layers,
/// which also take masks, are in tandem/recurrent.h.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "tandem/module.h"
#include "tandem/tensor.h"
#include "tandem/variable.h"

// forward() of these modules has other results than that of Module.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Woverloaded-virtual"

namespace tandem::nn {

/// Options of LSTM, GRU and RNN in braces. As the arguments of torch.nn.LSTM, without proj_size.
struct RecurrentArguments {
  std::int64_t num_layers = 1;        ///< layers, each of which gets the outputs of the one before
  std::string nonlinearity = "tanh";  ///< "tanh" or "relu"; RNN only
  bool bias = true;                   ///< whether to add biases
  bool batch_first = false;           ///< whether sequences are [batch, steps, ...]
  double dropout = 0.0;               ///< dropout rate between layers, in training
  bool bidirectional = false;         ///< whether each layer runs in both directions
};
/// The arguments of LSTM, GRU and RNN, set one after another: `LSTMOptions(8, 16).num_layers(2)`.
/// As torch::nn::LSTMOptions.
class RecurrentOptions {
 public:
  /// Numbers of features of inputs and of the state.
  RecurrentOptions(std::int64_t input_size, std::int64_t hidden_size)
      : input_size_(input_size), hidden_size_(hidden_size) {}
  /// @{
  /// Sets the member of RecurrentArguments.
  RecurrentOptions& num_layers(std::int64_t value) {
    arguments_.num_layers = value;
    return *this;
  }
  RecurrentOptions& nonlinearity(const std::string& value) {
    arguments_.nonlinearity = value;
    return *this;
  }
  RecurrentOptions& bias(bool value) {
    arguments_.bias = value;
    return *this;
  }
  RecurrentOptions& batch_first(bool value) {
    arguments_.batch_first = value;
    return *this;
  }
  RecurrentOptions& dropout(double value) {
    arguments_.dropout = value;
    return *this;
  }
  RecurrentOptions& bidirectional(bool value) {
    arguments_.bidirectional = value;
    return *this;
  }
  RecurrentOptions& arguments(const RecurrentArguments& value) {
    arguments_ = value;
    return *this;
  }
  /// @}
  std::int64_t input_size() const { return input_size_; }             ///< features of inputs
  std::int64_t hidden_size() const { return hidden_size_; }           ///< features of the state
  const RecurrentArguments& arguments() const { return arguments_; }  ///< the rest

 private:
  std::int64_t input_size_, hidden_size_;
  RecurrentArguments arguments_;
};
using LSTMOptions = RecurrentOptions;  ///< of LSTM
using GRUOptions = RecurrentOptions;   ///< of GRU
using RNNOptions = RecurrentOptions;   ///< of RNN

/// The base of the modules below. Parameters have PyTorch's names and shapes:
/// "weight_ih_l0" [gates * hidden_size, input_size], "weight_hh_l0" [gates * hidden_size,
/// hidden_size], "bias_ih_l0" and "bias_hh_l0" [gates * hidden_size], then those of "l0_reverse" if
/// there are two directions, then those of l1. They start uniform in +-1 / sqrt(hidden_size).
///
/// Sequences are [steps, batch, features], with batch_first [batch, steps, features], or [steps,
/// features]. Results have hidden_size features, twice as many with two directions. States are
/// [num_layers * directions, batch, hidden_size], without a batch [num_layers * directions,
/// hidden_size]. The number of steps must be known in a trace, which has the operations of each,
/// except that of an LSTM on a CPU. Throws InvalidArgumentError for other shapes.
class RecurrentImpl : public Module {
 public:
  std::string kind() const override { return kind_; }

 protected:
  /// `gates`: how many times hidden_size rows the weights have. `states`: tensors of a state.
  RecurrentImpl(const char* kind, int gates, int states, const RecurrentOptions& options);
  /// The output and the last state, from a sequence and the first state (empty: zeros).
  std::pair<Tensor, std::vector<Tensor>> run(const Tensor& input,
                                             const std::vector<Tensor>& state) const;
  const RecurrentOptions& options() const { return options_; }  ///< the arguments

 private:
  struct Weights {
    Variable input, state, input_bias, state_bias;
  };
  using States = std::vector<Tensor>;
  States step(const Tensor& x, const States& state, const Weights& weights) const;
  std::pair<Tensor, States> run_direction(const Tensor& x, States state, const Weights& weights,
                                          bool backwards) const;
  void check(const Tensor& input, const std::vector<Tensor>& state) const;

  const char* kind_;
  int gates_, states_;
  RecurrentOptions options_;
  std::vector<Weights> weights_;  // by layer, and then by direction
};

/// The module of LSTM.
class LSTMImpl : public RecurrentImpl {
 public:
  explicit LSTMImpl(const LSTMOptions& options)
      : RecurrentImpl("lstm", 4, 2, options) {}  ///< as LSTM
  /// The output, and the last state (h, c), from a sequence and the first state; default: zeros.
  std::tuple<Tensor, std::tuple<Tensor, Tensor>> forward(
      const Tensor& input, const std::optional<std::tuple<Tensor, Tensor>>& state = {}) const;
};
/// Long short-term memory, whose gates are in the order i, f, g, o. As torch.nn.LSTM.
/// @code
/// td::nn::LSTM lstm(8, 16, {.num_layers = 2, .batch_first = true});
/// const auto [output, state] = lstm(sequence);
/// @endcode
class LSTM : public ModuleHolder<LSTMImpl> {
 public:
  using ModuleHolder::ModuleHolder;
  LSTM() = default;  ///< an empty handle, to be assigned
  /// A module with these options.
  explicit LSTM(const LSTMOptions& options);
  /// A module for inputs of `input_size` features, with a state of `hidden_size`.
  LSTM(std::int64_t input_size, std::int64_t hidden_size, const RecurrentArguments& arguments = {})
      : LSTM(LSTMOptions(input_size, hidden_size).arguments(arguments)) {}
};

/// The module of GRU.
class GRUImpl : public RecurrentImpl {
 public:
  explicit GRUImpl(const GRUOptions& options) : RecurrentImpl("gru", 3, 1, options) {}  ///< as GRU
  /// The output and the last state, from a sequence and the first state; default: zeros.
  std::tuple<Tensor, Tensor> forward(const Tensor& input, const Tensor& state = {}) const;
};
/// Gated recurrent unit, whose parts are in the order r, z, n. As torch.nn.GRU.
class GRU : public ModuleHolder<GRUImpl> {
 public:
  using ModuleHolder::ModuleHolder;
  GRU() = default;  ///< an empty handle, to be assigned
  /// A module with these options.
  explicit GRU(const GRUOptions& options);
  /// A module for inputs of `input_size` features, with a state of `hidden_size`.
  GRU(std::int64_t input_size, std::int64_t hidden_size, const RecurrentArguments& arguments = {})
      : GRU(GRUOptions(input_size, hidden_size).arguments(arguments)) {}
};

/// The module of RNN.
class RNNImpl : public RecurrentImpl {
 public:
  explicit RNNImpl(const RNNOptions& options) : RecurrentImpl("rnn", 1, 1, options) {}  ///< as RNN
  /// The output and the last state, from a sequence and the first state; default: zeros.
  std::tuple<Tensor, Tensor> forward(const Tensor& input, const Tensor& state = {}) const;
};
/// h' = tanh(x . weight_ih^T + bias_ih + h . weight_hh^T + bias_hh), or relu of it. As
/// torch.nn.RNN.
class RNN : public ModuleHolder<RNNImpl> {
 public:
  using ModuleHolder::ModuleHolder;
  RNN() = default;  ///< an empty handle, to be assigned
  /// A module with these options.
  explicit RNN(const RNNOptions& options);
  /// A module for inputs of `input_size` features, with a state of `hidden_size`.
  RNN(std::int64_t input_size, std::int64_t hidden_size, const RecurrentArguments& arguments = {})
      : RNN(RNNOptions(input_size, hidden_size).arguments(arguments)) {}
};

}  // namespace tandem::nn

#pragma GCC diagnostic pop
