/// @file
/// Recurrent layers over sequences [batch, steps, features]. As tf.keras.layers.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tandem/dtype_policy.h"
#include "tandem/initializers.h"
#include "tandem/layers.h"
#include "tandem/regularizers.h"
#include "tandem/tensor.h"

namespace tandem::layers {

/// Options of Recurrent::call_with_state().
struct RecurrentCallOptions {
  /// The first state: one tensor [batch, units], or {h, c} of an LSTM; default: zeros.
  std::vector<Tensor> initial_state{};
  Tensor mask{};                   ///< bool [batch, steps]: whether a step counts; default: all do
  std::optional<bool> training{};  ///< default: as of other calls
};
/// Results of Recurrent::call_with_state().
struct RecurrentResult {
  Tensor output{};              ///< the result of a call of the layer
  std::vector<Tensor> state{};  ///< the state after the last step, as RecurrentCallOptions has it
};
/// The base of recurrent layers.
///
/// Called with {sequence}, {sequence, first state...}, or either followed by a bool mask [batch,
/// steps]. Returns the output of the last step [batch, units], or with return_sequences those of
/// all steps [batch, steps, units]. A step that the mask leaves out keeps the state and repeats the
/// output before it, which is zeros before the first step that counts.
///
/// The steps are run one after another, in a trace too: its length grows with their number, which
/// must be known and at least 1. Pad sequences to a few lengths, and mask the padding. On CPUs all
/// steps of an LSTM without a mask or recurrent_dropout and with the default activations are one
/// operation. Their number may be unknown in a trace, which has no second derivatives then. Throws
/// InvalidArgumentError for other shapes and numbers of inputs.
///
/// In training, `dropout` and `recurrent_dropout` zero features of the inputs and of the state with
/// one choice for all steps of a call (Gal and Ghahramani 2016); with recurrent_dropout there is a
/// choice for each gate.
///
/// Of Keras's arguments there are no stateful (pass the state on by call_with_state()),
/// return_state (call_with_state() returns it), constraints, seed, unroll and use_cudnn. There are
/// no classes of cells: a step is a call_with_state() with a sequence of one step.
class Recurrent : public tandem::Layer {
 public:
  /// Calls the layer with a sequence [batch, steps, features], and returns the last state, too.
  RecurrentResult call_with_state(const Tensor& sequence,
                                  const RecurrentCallOptions& options = {}) const;

 protected:
  Recurrent() = default;  ///< an undefined layer
  using Layer::Layer;
};

/// Options of LSTM. As Keras.
struct LSTMOptions {
  ActivationName activation = "tanh";               ///< of the candidate and of the result
  ActivationName recurrent_activation = "sigmoid";  ///< of the gates
  bool use_bias = true;                             ///< whether to add a bias
  Initializer kernel_initializer = initializers::glorot_uniform();  ///< of the inputs' kernel
  Initializer recurrent_initializer = initializers::orthogonal();   ///< of the state's kernel
  Initializer bias_initializer = initializers::zeros();             ///< of the bias
  bool unit_forget_bias = true;         ///< whether the bias of the forget gate starts at 1
  Regularizer kernel_regularizer{};     ///< penalty of the inputs' kernel; default: none
  Regularizer recurrent_regularizer{};  ///< penalty of the state's kernel; default: none
  Regularizer bias_regularizer{};       ///< penalty of the bias; default: none
  double dropout = 0.0;                 ///< dropout rate of the inputs, in [0, 1)
  double recurrent_dropout = 0.0;       ///< dropout rate of the state, in [0, 1)
  bool return_sequences = false;        ///< whether to return the outputs of all steps
  bool go_backwards = false;            ///< whether to begin with the last step
  bool zero_output_for_mask = false;    ///< whether the output of a masked step is zeros
  Shape input_shape{};                  ///< shape of one example; for a model's first layer
  DTypePolicy dtype{};                  ///< dtypes; default: the process's policy
  std::string name{};                   ///< name in the model; default: by the type
};
/// Long short-term memory (Hochreiter and Schmidhuber 1997). As tf.keras.layers.LSTM. For
/// z = x . kernel + h . recurrent_kernel + bias, cut into the gates i, f, g and o:
/// c' = sigmoid(f) * c + sigmoid(i) * tanh(g), and h' = sigmoid(o) * tanh(c') is the output.
///
/// Variables have Keras's names and shapes: "lstm_cell/kernel" [features, 4 * units],
/// "lstm_cell/recurrent_kernel" [units, 4 * units], "lstm_cell/bias" [4 * units]. They are
/// PyTorch's weight_ih_l0 and weight_hh_l0, transposed, and bias_ih_l0 + bias_hh_l0.
class LSTM : public Recurrent {
 public:
  LSTM() = default;  ///< an undefined layer, to be assigned
  /// A layer whose state has `units` elements.
  explicit LSTM(std::int64_t units, const LSTMOptions& options = {});
};

/// Options of GRU. As Keras.
struct GRUOptions {
  ActivationName activation = "tanh";                               ///< of the candidate
  ActivationName recurrent_activation = "sigmoid";                  ///< of the gates
  bool use_bias = true;                                             ///< whether to add biases
  Initializer kernel_initializer = initializers::glorot_uniform();  ///< of the inputs' kernel
  Initializer recurrent_initializer = initializers::orthogonal();   ///< of the state's kernel
  Initializer bias_initializer = initializers::zeros();             ///< of the biases
  Regularizer kernel_regularizer{};     ///< penalty of the inputs' kernel; default: none
  Regularizer recurrent_regularizer{};  ///< penalty of the state's kernel; default: none
  Regularizer bias_regularizer{};       ///< penalty of the biases; default: none
  double dropout = 0.0;                 ///< dropout rate of the inputs, in [0, 1)
  double recurrent_dropout = 0.0;       ///< dropout rate of the state, in [0, 1)
  bool return_sequences = false;        ///< whether to return the outputs of all steps
  bool go_backwards = false;            ///< whether to begin with the last step
  bool reset_after = true;  ///< whether the reset gate is applied after the product, as in PyTorch
  bool zero_output_for_mask = false;  ///< whether the output of a masked step is zeros
  Shape input_shape{};                ///< shape of one example; for a model's first layer
  DTypePolicy dtype{};                ///< dtypes; default: the process's policy
  std::string name{};                 ///< name in the model; default: by the type
};
/// Gated recurrent unit (Cho et al. 2014). As tf.keras.layers.GRU. For the parts z, r and n of
/// x . kernel + bias[0] and, marked by ', of h . recurrent_kernel + bias[1]:
/// h' = sigmoid(z + z') * h + (1 - sigmoid(z + z')) * tanh(n + sigmoid(r + r') * n'). Without
/// reset_after, the last product is that of sigmoid(r + r') * h, and there is one bias.
///
/// Variables have Keras's names and shapes: "gru_cell/kernel" [features, 3 * units],
/// "gru_cell/recurrent_kernel" [units, 3 * units], "gru_cell/bias" [2, 3 * units] (without
/// reset_after [3 * units]). PyTorch's weights have the parts in the order r, z, n: transpose
/// weight_ih_l0 and weight_hh_l0, swap the first two thirds, and stack bias_ih_l0 and bias_hh_l0.
class GRU : public Recurrent {
 public:
  GRU() = default;  ///< an undefined layer, to be assigned
  /// A layer whose state has `units` elements.
  explicit GRU(std::int64_t units, const GRUOptions& options = {});
};

/// Options of SimpleRNN. As Keras.
struct SimpleRNNOptions {
  ActivationName activation = "tanh";                               ///< of the result
  bool use_bias = true;                                             ///< whether to add a bias
  Initializer kernel_initializer = initializers::glorot_uniform();  ///< of the inputs' kernel
  Initializer recurrent_initializer = initializers::orthogonal();   ///< of the state's kernel
  Initializer bias_initializer = initializers::zeros();             ///< of the bias
  Regularizer kernel_regularizer{};     ///< penalty of the inputs' kernel; default: none
  Regularizer recurrent_regularizer{};  ///< penalty of the state's kernel; default: none
  Regularizer bias_regularizer{};       ///< penalty of the bias; default: none
  double dropout = 0.0;                 ///< dropout rate of the inputs, in [0, 1)
  double recurrent_dropout = 0.0;       ///< dropout rate of the state, in [0, 1)
  bool return_sequences = false;        ///< whether to return the outputs of all steps
  bool go_backwards = false;            ///< whether to begin with the last step
  bool zero_output_for_mask = false;    ///< whether the output of a masked step is zeros
  Shape input_shape{};                  ///< shape of one example; for a model's first layer
  DTypePolicy dtype{};                  ///< dtypes; default: the process's policy
  std::string name{};                   ///< name in the model; default: by the type
};
/// h' = tanh(x . kernel + h . recurrent_kernel + bias). As tf.keras.layers.SimpleRNN. Variables:
/// "simple_rnn_cell/kernel" [features, units], ".../recurrent_kernel" [units, units], ".../bias"
/// [units]; PyTorch's nn.RNN has the kernels transposed, and two biases whose sum this one is.
class SimpleRNN : public Recurrent {
 public:
  SimpleRNN() = default;  ///< an undefined layer, to be assigned
  /// A layer whose state has `units` elements.
  explicit SimpleRNN(std::int64_t units, const SimpleRNNOptions& options = {});
};

/// Options of Bidirectional. As Keras.
struct BidirectionalOptions {
  std::string merge_mode = "concat";  ///< "concat", "sum", "mul" or "ave"
  /// The layer of the other direction. Default: as the first one, with the opposite go_backwards.
  tandem::Layer backward_layer{};
  Shape input_shape{};  ///< shape of one example; for a model's first layer
  DTypePolicy dtype{};  ///< dtypes; default: the process's policy
  std::string name{};   ///< name in the model; default: by the type
};
/// Runs a recurrent layer over a sequence in both directions, and merges the results of each step.
/// As tf.keras.layers.Bidirectional; Keras's merge_mode None, which has two results, is refused.
/// With return_sequences, outputs of masked steps are zeros. States are those of the forward layer
/// and then those of the backward layer.
///
/// It makes new layers with the options of the given ones, which it does not use: "forward_lstm"
/// and "backward_lstm" for layers named "lstm". Throws InvalidArgumentError for a layer that is not
/// recurrent, layers of one direction, and another merge_mode.
class Bidirectional : public Recurrent {
 public:
  Bidirectional() = default;  ///< an undefined layer, to be assigned
  /// Both directions of this layer.
  explicit Bidirectional(const tandem::Layer& layer, const BidirectionalOptions& options = {});
};

/// Applies a layer to each step of a sequence [batch, steps, ...], as if the steps were examples.
/// As tf.keras.layers.TimeDistributed. Throws InvalidArgumentError for fewer axes.
class TimeDistributed : public tandem::Layer {
 public:
  TimeDistributed() = default;  ///< an undefined layer, to be assigned
  /// This layer for each step.
  explicit TimeDistributed(const tandem::Layer& layer, const SimpleOptions& options = {});
};

}  // namespace tandem::layers
