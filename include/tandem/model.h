/// @file
/// Models: sequential, functional, or any layer, with training, evaluation and prediction. As
/// tf.keras.Model.
#pragma once

#include <concepts>
#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <iosfwd>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "tandem/callbacks.h"
#include "tandem/data.h"
#include "tandem/layers.h"
#include "tandem/losses.h"
#include "tandem/metrics.h"
#include "tandem/optimizers.h"

namespace tandem {

/// A symbolic tensor of a functional model: an input or the result of a layer. As
/// tf.keras.KerasTensor.
class SymbolicInput {
 public:
  /// For Tandem's own code.
  struct Node;
  /// For Tandem's own code.
  explicit SymbolicInput(std::shared_ptr<const Node> node) : node_(std::move(node)) {}
  const Shape& shape() const;                                        ///< shape, with batch axis -1
  const std::shared_ptr<const Node>& node() const { return node_; }  ///< for Tandem's own code

 private:
  std::shared_ptr<const Node> node_;
};

/// An input of a functional model. `shape` is that of one example, without the batch axis. As
/// tf.keras.Input.
SymbolicInput Input(const Shape& shape, std::string name = {});

/// An optimizer, as an object or by name.
class OptimizerChoice {
 public:
  OptimizerChoice() = default;
  /// @{
  /// Converts from an optimizer or its name.
  OptimizerChoice(optimizers::Optimizer optimizer) : optimizer_(std::move(optimizer)) {}  // NOLINT
  OptimizerChoice(const char* name) : optimizer_(optimizers::from_name(name)) {}          // NOLINT
  OptimizerChoice(const std::string& name) : optimizer_(optimizers::from_name(name)) {}   // NOLINT
  /// @}
  const optimizers::Optimizer& get() const { return optimizer_; }  ///< the optimizer

 private:
  optimizers::Optimizer optimizer_;
};

/// Options of Model::compile(). As the arguments of tf.keras.Model.compile.
struct CompileOptions {
  OptimizerChoice optimizer = "rmsprop";  ///< default: as in Keras
  losses::Loss loss{};                    ///< loss; required
  /// Metrics that ignore sample weights.
  std::vector<metrics::Metric> metrics{};
  /// Metrics that apply sample weights (and class weights). The names of all metrics must be
  /// unique: to use a metric both ways, give it two names.
  std::vector<metrics::Metric> weighted_metrics{};
  /// Sets the dtype policy of all layers, for example "mixed_bfloat16". Default: unchanged. If a
  /// layer computes in float16, compile() adds a dynamic loss scale to an optimizer without one, as
  /// Keras does.
  DTypePolicy dtype{};
  /// Runs each step eagerly. By default fit(), evaluate() and predict() trace their step once per
  /// batch size (tandem/function.h), and host code in layers runs only then.
  bool run_eagerly = false;
  /// Batches per execution of fit(), evaluate() and predict(), at least 1. Under TPUStrategy,
  /// consecutive batches of the same sizes are one program, a loop on the devices, so that the host
  /// has less to do. At the end of an epoch, an execution has the batches that are left. Callbacks
  /// run after each execution: on_batch_end() gets the number of its last batch. As
  /// steps_per_execution of tf.keras.Model.compile.
  std::int64_t steps_per_execution = 1;
};

/// Training history: per epoch "loss", the metrics and, with validation data, "val_loss", ... As
/// tf.keras.callbacks.History.
struct History {
  std::vector<std::int64_t> epoch{};                     ///< numbers of the epochs
  std::map<std::string, std::vector<double>> history{};  ///< values by name, one per epoch
  /// The values of this name. Throws NotFoundError that lists the names.
  const std::vector<double>& at(const std::string& name) const;
};

/// Validation data of fit(): batches, or tensors from which fit() makes batches of
/// FitOptions::validation_batch_size examples.
class ValidationData {
 public:
  ValidationData() = default;
  /// Batches of (inputs, targets[, sample weights]).
  ValidationData(data::Dataset batches) : data_(std::move(batches)), batched_(true) {}  // NOLINT
  /// Inputs and targets.
  ValidationData(const Tensor& x, const Tensor& y)
      : data_(data::Dataset::from_tensor_slices({x, y})) {}
  /// Inputs, targets and sample weights.
  ValidationData(const Tensor& x, const Tensor& y, const Tensor& sample_weight)
      : data_(data::Dataset::from_tensor_slices({x, y, sample_weight})) {}

  bool defined() const { return data_.defined(); }  ///< whether there is validation data
  /// Whether data() holds batches; if not, it holds examples.
  bool batched() const { return batched_; }
  const data::Dataset& data() const { return data_; }  ///< the data

 private:
  data::Dataset data_;
  bool batched_ = false;
};

/// Options of Model::fit(). As the arguments of tf.keras.Model.fit.
struct FitOptions {
  /// Number of the last epoch; trains `epochs - initial_epoch` epochs.
  std::int64_t epochs = 1;
  std::int64_t initial_epoch = 0;  ///< number of the first epoch, from 0
  /// Batches per epoch. Default: one pass over the data, which must be finite. If set, each epoch
  /// continues where the previous one stopped, and a new pass starts when the data ends, as in
  /// Keras. Each pass has its own order and random numbers, also in later calls of fit().
  std::optional<std::int64_t> steps_per_epoch{};
  ValidationData validation_data{};  ///< default: no validation
  /// Uses this fraction of the examples, the last ones before shuffling, for validation instead of
  /// training. For tensors only; ignored if validation_data is given.
  double validation_split = 0.0;
  /// Batches per evaluation, always the first ones. Default: all.
  std::optional<std::int64_t> validation_steps{};
  /// Batch size of validation_split and of validation_data given as tensors. Default: batch_size.
  std::optional<std::int64_t> validation_batch_size{};
  std::vector<callbacks::Callback> callbacks{};  ///< default: none
  /// 0: silent. 1: a progress bar (lines if stderr is not a terminal). 2: one line per epoch.
  int verbose = 1;
  /// The GLOBAL batch size, for tensors only. Default: 32.
  std::optional<std::int64_t> batch_size{};
  /// Seed of the shuffle, for tensors only. Default: derived from random::set_seed()'s seed.
  std::optional<std::int64_t> shuffle_seed{};
  bool shuffle = true;  ///< whether to shuffle in each epoch, for tensors only
  /// Weight of the examples of each class in the loss and the weighted metrics of training; default
  /// 1. Targets are class indices, [batch] or [batch, 1], or one-hot, [batch, classes]. Excludes
  /// sample weights.
  std::map<std::int64_t, double> class_weight{};
};

/// Options of Model::evaluate() and Model::predict().
struct EvaluateOptions {
  /// At most this many batches. Default: all; the data must be finite.
  std::optional<std::int64_t> steps{};
  int verbose = 0;  ///< as FitOptions::verbose
  /// The GLOBAL batch size, for tensors only. Default: 32.
  std::optional<std::int64_t> batch_size{};
};

/// A model. A shared handle. If its variables were created in a strategy's scope, it trains under
/// that strategy. As tf.keras.Model.
///
/// Thread safety: calls without training may run concurrently, all others may not.
class Model {
 public:
  Model() = default;
  /// Makes a model of a layer; builds it if the layer declares its input shape.
  explicit Model(Layer layer);

  bool defined() const { return impl_ != nullptr; }  ///< false for a default-constructed model
  const Layer& layer() const;                        ///< the layer that the model consists of
  std::vector<Layer> layers() const;                 ///< the child layers of layer()
  /// The layer of this name in layers(). Throws NotFoundError that lists the names.
  Layer get_layer(std::string_view name) const;
  /// The layer at this index of layers(); negative: from the end. Throws OutOfRangeError.
  Layer get_layer(std::int64_t index) const;

  /// @{
  /// Runs the forward pass, and builds the model if necessary. Without options, in the mode of
  /// train() and eval().
  Tensor operator()(const Tensor& input) const;
  Tensor operator()(const Tensor& input, const CallOptions& options) const;
  /// @}
  /// model(x, true) is model(x, {.training = true}).
  template <std::same_as<bool> Training>
  Tensor operator()(const Tensor& input, Training training) const {
    return (*this)(input, CallOptions{.training = training});
  }
  /// @{
  /// Runs the forward pass with several inputs.
  Tensor operator()(TensorList inputs) const;
  Tensor operator()(TensorList inputs, const CallOptions& options) const;
  /// @}
  /// As Layer::train(). fit(), evaluate() and predict() have modes of their own.
  void train(bool training = true) const { layer().train(training); }
  void eval() const { train(false); }  ///< train(false)
  /// Creates the variables for inputs of this shape, including the batch axis (-1).
  void build(const Shape& input_shape);
  bool built() const;  ///< whether the variables exist

  /// All variables. Throws FailedPreconditionError before the model is built, as do the functions
  /// below.
  std::vector<Variable> variables() const;
  std::vector<Variable> trainable_variables() const;  ///< variables that training updates
  /// Variables that training does not update.
  std::vector<Variable> non_trainable_variables() const;
  /// Trainable variables, as in PyTorch.
  std::vector<Variable> parameters() const { return trainable_variables(); }
  std::int64_t count_params() const;  ///< number of elements of all variables
  /// Writes a table of layers with output shapes and numbers of parameters, and totals.
  void summary(std::ostream& out) const;

  /// Configures training. May be called outside the strategy's scope. Throws InvalidArgumentError
  /// without a loss, and if the variables of the model or the optimizer were created under another
  /// strategy.
  void compile(CompileOptions options);
  /// @{
  /// Trains the model. As tf.keras.Model.fit.
  ///
  /// Elements of `data` are (inputs, targets) or (inputs, targets, sample weights) in batches of
  /// the global size; a functional model takes one component per input. Throws the errors of the
  /// data and of the step; the model then has the state of the last complete step. Throws
  /// InvalidArgumentError for infinite data without steps_per_epoch (and, for validation,
  /// evaluate() and predict(), without their number of steps).
  History fit(const data::Dataset& data, FitOptions options = {});
  History fit(const Tensor& x, const Tensor& y, FitOptions options = {});
  /// @}
  /// @{
  /// Returns the loss and the metrics by name. As tf.keras.Model.evaluate.
  ///
  /// Under a strategy with several replicas, each evaluates its part of a batch with its own copies
  /// of on-read variables, such as the moving averages of batch normalization, as in TensorFlow.
  /// Saved weights hold the mean of the copies, so that a model that loads them may give slightly
  /// different results.
  std::map<std::string, double> evaluate(const data::Dataset& data,
                                         const EvaluateOptions& options = {});
  std::map<std::string, double> evaluate(const Tensor& x, const Tensor& y,
                                         const EvaluateOptions& options = {});
  /// @}
  /// @{
  /// Returns the outputs for all inputs, concatenated along the batch axis. Elements of `data` are
  /// inputs or (inputs, ...). As tf.keras.Model.predict.
  Tensor predict(const data::Dataset& data, const EvaluateOptions& options = {});
  Tensor predict(const Tensor& x, const EvaluateOptions& options = {});
  /// @}

  /// The optimizer. Throws FailedPreconditionError before compile().
  const optimizers::Optimizer& optimizer() const;
  /// Ends fit() after the current step; for callbacks. The epoch appears in callbacks and the
  /// history as if it were complete. As Keras's stop_training.
  void stop_training();

  /// Writes all variables by name to a safetensors file, which is replaced completely or not at
  /// all. Throws InvalidArgumentError for the extension of another format (.h5, .keras, .pt, ...).
  void save_weights(const std::filesystem::path& path) const;
  /// Reads the variables from a checkpoint (tandem/checkpoint.h). Throws NotFoundError or
  /// InvalidArgumentError that names the tensors that differ, and DataLossError for corrupt data.
  void load_weights(const std::filesystem::path& path);

  /// For Tandem's own code.
  struct Impl;
  const std::shared_ptr<Impl>& impl() const { return impl_; }  ///< for Tandem's own code

 private:
  std::shared_ptr<Impl> impl_;
};

/// A model of layers in sequence. As tf.keras.Sequential.
class Sequential : public Model {
 public:
  Sequential() = default;
  /// @{
  /// A model of these layers.
  Sequential(std::initializer_list<Layer> layers)
      : Sequential(std::vector<Layer>(layers)) {}  // NOLINT
  explicit Sequential(const std::vector<Layer>& layers);
  /// @}
};

/// A model of the layers between symbolic inputs and an output. As tf.keras.Model(inputs, outputs).
class Functional : public Model {
 public:
  /// @{
  /// A model from inputs to an output.
  Functional(const std::vector<SymbolicInput>& inputs, const SymbolicInput& output);
  Functional(const SymbolicInput& input, const SymbolicInput& output)
      : Functional(std::vector<SymbolicInput>{input}, output) {}
  /// @}
};

/// As Model::save_weights().
void save_weights(const Model& model, const std::filesystem::path& path);

}  // namespace tandem
