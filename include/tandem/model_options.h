/// @file
/// Options of training, evaluation and prediction (tandem/model.h).
#pragma once

#include <concepts>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tandem/callbacks.h"
#include "tandem/data.h"
#include "tandem/losses.h"
#include "tandem/metrics.h"
#include "tandem/optimizers.h"
#include "tandem/outputs.h"

namespace tandem {

/// An optimizer, as an object or by name.
class OptimizerChoice {
 public:
  OptimizerChoice() = default;
  /// @{
  /// Converts from an optimizer or its name.
  OptimizerChoice(optimizers::Optimizer optimizer) : optimizer_(std::move(optimizer)) {}  // NOLINT
  OptimizerChoice(const char* name) : optimizer_(optimizers::from_name(name)) {}          // NOLINT
  OptimizerChoice(const std::string& name) : optimizer_(optimizers::from_name(name)) {}   // NOLINT
  template <std::derived_from<optimizers::Optimizer> O>
  OptimizerChoice(const std::shared_ptr<O>& optimizer) : optimizer_(optimizer) {}  // NOLINT
  /// @}
  const optimizers::Optimizer& get() const { return optimizer_; }  ///< the optimizer

 private:
  optimizers::Optimizer optimizer_;
};

/// Options of Model::compile(). As the arguments of tf.keras.Model.compile.
///
/// For a model of several outputs, loss, loss_weights and metrics are lists in the order of the
/// outputs, or have the names of outputs, which are those of the layers: see PerOutput.
struct CompileOptions {
  OptimizerChoice optimizer = "rmsprop";  ///< default: as in Keras
  /// Loss; required, but for a class with steps of its own (Model::train_step). Several outputs
  /// have a loss each, or one for all of them. Those without one are not trained.
  PerOutput<losses::Loss> loss{};
  /// Factors of the outputs' losses in the loss of a model of several outputs. Default: 1.
  PerOutput<double> loss_weights{};
  /// Metrics that ignore sample weights. Several outputs have one each, or any number by name.
  PerOutput<metrics::Metric> metrics{};
  /// Metrics that apply sample weights (and class weights). The names of all metrics must be
  /// unique: to use a metric both ways, give it two names.
  PerOutput<metrics::Metric> weighted_metrics{};
  /// Runs each step eagerly. By default fit(), evaluate() and predict() trace their step once per
  /// batch size (tandem/function.h), and host code in layers runs only then.
  bool run_eagerly = false;
  /// Batches per execution of fit(), evaluate() and predict(), at least 1. Under TPUStrategy,
  /// consecutive batches of the same sizes are one program, a loop on the devices, so that the host
  /// has less to do. At the end of an epoch, an execution has the batches that are left. Callbacks
  /// run after each execution: on_train_batch_end() gets the number of its last batch. As
  /// steps_per_execution of tf.keras.Model.compile.
  std::int64_t steps_per_execution = 1;
  /// Sets the dtype policy of all layers, for example "mixed_bfloat16". Default: unchanged. If a
  /// layer computes in float16, compile() adds a dynamic loss scale to an optimizer without one, as
  /// Keras does.
  DTypePolicy dtype{};
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
  /// The inputs and targets of a model with several.
  ValidationData(ModelTensors inputs, ModelTensors targets, const Tensor& sample_weight = {});
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

/// Weights by class number; converts from a map of any integers and numbers.
class ClassWeights : public std::map<std::int64_t, double> {
 public:
  using std::map<std::int64_t, double>::map;
  /// The weights of a map.
  template <std::integral Class, detail::Arithmetic Weight>
  ClassWeights(const std::map<Class, Weight>& weights)  // NOLINT: a map of weights is one
      : std::map<std::int64_t, double>(weights.begin(), weights.end()) {}
};
/// Options of Model::fit(). As the arguments of tf.keras.Model.fit.
struct FitOptions {
  /// Number of the last epoch; trains `epochs - initial_epoch` epochs.
  std::int64_t epochs = 1;
  /// The GLOBAL batch size, for tensors only. Default: 32.
  std::optional<std::int64_t> batch_size{};
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
  /// Evaluates the validation data in every `validation_freq`-th epoch alone. The history has
  /// values of "val_loss" and so on for these epochs, and callbacks that monitor one pass over the
  /// others.
  std::int64_t validation_freq = 1;
  /// 0: silent. 1: a progress bar (lines if stderr is not a terminal). 2: one line per epoch.
  int verbose = 1;
  callbacks::CallbackList callbacks{};  ///< default: none
  /// Seed of the shuffle, for tensors only. Default: derived from random::set_seed()'s seed.
  std::optional<std::int64_t> shuffle_seed{};
  bool shuffle = true;  ///< whether to shuffle in each epoch, for tensors only
  /// Weight of the examples of each class in the loss and the weighted metrics of training; default
  /// 1. Targets are class indices, [batch] or [batch, 1], or one-hot, [batch, classes]. Excludes
  /// sample weights.
  ClassWeights class_weight{};
  /// Weight of each example in the loss and the weighted metrics, [examples], for tensors only.
  /// Default: 1.
  Tensor sample_weight{};
};

/// Options of Model::evaluate() and Model::predict().
struct EvaluateOptions {
  /// The GLOBAL batch size, for tensors only. Default: 32.
  std::optional<std::int64_t> batch_size{};
  int verbose = 0;  ///< as FitOptions::verbose
  /// As FitOptions::sample_weight; for evaluate() alone.
  Tensor sample_weight{};
  /// At most this many batches. Default: all; the data must be finite.
  std::optional<std::int64_t> steps{};
};

/// Options of Functional and Model(inputs, outputs). As the arguments of tf.keras.Model.
struct FunctionalOptions {
  std::string name{};  ///< name of the model, where it is a layer of another one
};

}  // namespace tandem
