// Models: layers that train. Sequential, functional, or any Layer of one's own.
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

// The symbolic result of a layer in a functional model, or one of the model's inputs.
class SymbolicInput {
 public:
  struct Node;
  explicit SymbolicInput(std::shared_ptr<const Node> node) : node_(std::move(node)) {}
  const Shape& shape() const;  // batch axis -1
  const std::shared_ptr<const Node>& node() const { return node_; }

 private:
  std::shared_ptr<const Node> node_;
};

// An input of a functional model: the shape of one example, without the batch axis.
SymbolicInput Input(const Shape& shape, std::string name = {});

// An optimizer by object or by name.
class OptimizerChoice {
 public:
  OptimizerChoice() = default;
  OptimizerChoice(optimizers::Optimizer optimizer) : optimizer_(std::move(optimizer)) {}  // NOLINT
  OptimizerChoice(const char* name) : optimizer_(optimizers::from_name(name)) {}          // NOLINT
  OptimizerChoice(const std::string& name) : optimizer_(optimizers::from_name(name)) {}   // NOLINT
  const optimizers::Optimizer& get() const { return optimizer_; }

 private:
  optimizers::Optimizer optimizer_;
};

struct CompileOptions {
  OptimizerChoice optimizer = "rmsprop";  // Keras's default
  losses::Loss loss{};
  /// Metrics of the examples as they are, whatever their sample weights, as in Keras.
  std::vector<metrics::Metric> metrics{};
  /// Metrics that weigh each example by its sample weight (and class weight), as in Keras. All
  /// metrics have unique names: a metric that is wanted both ways gets a name of its own.
  std::vector<metrics::Metric> weighted_metrics{};
  // fit(), evaluate() and predict() trace their step once for each size of batches and replay it
  // (tandem/function.h): host code in the model's layers runs while they do. Here each step runs
  // operation by operation.
  bool run_eagerly = false;
};

// What training knew after each epoch: "loss", the metrics, and with validation data "val_loss",
// ...
struct History {
  std::vector<std::int64_t> epoch{};
  std::map<std::string, std::vector<double>> history{};
  const std::vector<double>& at(
      const std::string& name) const;  // NotFoundError naming what there is
};

/// What fit() evaluates the model on after each epoch: batches, or plain tensors, of which fit()
/// makes batches of `validation_batch_size`.
class ValidationData {
 public:
  ValidationData() = default;
  ValidationData(data::Dataset batches) : data_(std::move(batches)), batched_(true) {}  // NOLINT
  ValidationData(const Tensor& x, const Tensor& y)
      : data_(data::Dataset::from_tensor_slices({x, y})) {}
  ValidationData(const Tensor& x, const Tensor& y, const Tensor& sample_weight)
      : data_(data::Dataset::from_tensor_slices({x, y, sample_weight})) {}

  bool defined() const { return data_.defined(); }
  /// Whether `data()` is of batches; if not, it is of examples.
  bool batched() const { return batched_; }
  const data::Dataset& data() const { return data_; }

 private:
  data::Dataset data_;
  bool batched_ = false;
};

struct FitOptions {
  /// Train until epoch number `epochs`, from number `initial_epoch` on: `epochs - initial_epoch`
  /// epochs.
  std::int64_t epochs = 1;
  std::int64_t initial_epoch = 0;
  /// The batches of an epoch. Not given: an epoch is one pass over the data, which must end. Given:
  /// the data goes on from epoch to epoch and, where a pass ends, with the next pass, as in Keras.
  /// Each pass has its own order and its own random numbers, also in later calls of fit().
  std::optional<std::int64_t> steps_per_epoch{};
  ValidationData validation_data{};
  /// Plain tensors only: this fraction of the examples, the last ones before any shuffling, is
  /// taken out of training and used as validation data, unless there is `validation_data`.
  double validation_split = 0.0;
  /// The batches of each evaluation, always the first ones. Not given: until the data ends.
  std::optional<std::int64_t> validation_steps{};
  /// `validation_data` in plain tensors and `validation_split` only; `batch_size` unless given.
  std::optional<std::int64_t> validation_batch_size{};
  std::vector<callbacks::Callback> callbacks{};
  // 0: silent. 1: a progress bar (lines where stderr is no terminal). 2: a line an epoch.
  int verbose = 1;
  std::optional<std::int64_t>
      batch_size{};  // plain tensors only: the GLOBAL batch; 32 unless given
  std::optional<std::int64_t> shuffle_seed{};  // plain tensors only: not given, random::set_seed's
  bool shuffle = true;                         // plain tensors only: another order each epoch
  /// The weight of the examples of each class, in the loss and the weighted metrics of training;
  /// 1 for a class that is not there. Targets are class numbers, (batch) or (batch, 1), or one-hot,
  /// (batch, classes). Not together with sample weights.
  std::map<std::int64_t, double> class_weight{};
};

struct EvaluateOptions {
  /// At most so many batches. Not given: until the data ends, which it must.
  std::optional<std::int64_t> steps{};
  int verbose = 0;
  std::optional<std::int64_t>
      batch_size{};  // plain tensors only: the GLOBAL batch; 32 unless given
};

// A shared handle. A model whose variables were made inside a strategy's scope trains under that
// strategy.
// Thread safety: calls with training off may run side by side; everything else is one at a time.
class Model {
 public:
  Model() = default;
  // Any layer as a model; it is built at once when it declares its input shape.
  explicit Model(Layer layer);

  bool defined() const { return impl_ != nullptr; }
  const Layer& layer() const;
  std::vector<Layer> layers() const;
  /// The layer of that name among layers(). Throws NotFoundError that lists the names.
  Layer get_layer(std::string_view name) const;
  /// The layer at that place in layers(); from the end for a negative index. Throws
  /// OutOfRangeError.
  Layer get_layer(std::int64_t index) const;

  Tensor operator()(const Tensor& input, const CallOptions& options = {}) const;
  /// model(x, true): model(x, {.training = true}).
  template <std::same_as<bool> Training>
  Tensor operator()(const Tensor& input, Training training) const {
    return (*this)(input, CallOptions{.training = training});
  }
  Tensor operator()(TensorList inputs, const CallOptions& options = {}) const;
  // Makes the variables for inputs of this shape (batch axis included, -1).
  void build(const Shape& input_shape);
  bool built() const;

  // Throws FailedPreconditionError before the model is built.
  std::vector<Variable> variables() const;
  std::vector<Variable> trainable_variables() const;
  std::vector<Variable> non_trainable_variables() const;
  std::vector<Variable> parameters() const { return trainable_variables(); }
  std::int64_t count_params() const;
  // A table: layer, output shape, parameters; then the totals.
  void summary(std::ostream& out) const;

  // Outside every strategy's scope: for the strategy under which the model was built. Throws
  // InvalidArgumentError without a loss, or when the model's variables or the optimizer's were made
  // under another strategy.
  void compile(CompileOptions options);
  // The data's elements are (inputs, targets) or (inputs, targets, sample weights), in batches of
  // the global size; a functional model's inputs are as many components as it has. Throws what goes
  // wrong in the data or the step; the model keeps the last whole step. A dataset that never ends
  // is an InvalidArgumentError without steps_per_epoch, and so it is in validation, evaluate() and
  // predict() without their number of steps.
  History fit(const data::Dataset& data, FitOptions options = {});
  History fit(const Tensor& x, const Tensor& y, FitOptions options = {});
  /// Losses and metrics by name.
  ///
  /// Under a strategy with several replicas each one evaluates its part of a batch with its own
  /// copies of what the replicas keep apart, such as the moving moments of batch normalisation, as
  /// in TensorFlow. Saved weights hold the mean of these copies, so that a model that loads them
  /// gives slightly other figures.
  std::map<std::string, double> evaluate(const data::Dataset& data,
                                         const EvaluateOptions& options = {});
  std::map<std::string, double> evaluate(const Tensor& x, const Tensor& y,
                                         const EvaluateOptions& options = {});
  // The outputs for all inputs, joined along the batch axis. Elements are inputs, or (inputs, ...).
  Tensor predict(const data::Dataset& data, const EvaluateOptions& options = {});
  Tensor predict(const Tensor& x, const EvaluateOptions& options = {});

  const optimizers::Optimizer& optimizer() const;  // FailedPreconditionError before compile()
  // Ends fit() after the present step; for callbacks. An epoch that is cut short so is told to
  // callbacks and in the history like a whole one.
  void stop_training();

  // Weights as a safetensors file, by the variables' names. Saving replaces the file whole or not
  // at all; loading wants the same names, shapes and dtypes (NotFoundError, InvalidArgumentError
  // naming the tensors) and undamaged bytes (DataLossError).
  void save_weights(const std::filesystem::path& path) const;
  void load_weights(const std::filesystem::path& path);

  struct Impl;
  const std::shared_ptr<Impl>& impl() const { return impl_; }

 private:
  std::shared_ptr<Impl> impl_;
};

class Sequential : public Model {
 public:
  Sequential() = default;
  Sequential(std::initializer_list<Layer> layers)
      : Sequential(std::vector<Layer>(layers)) {}  // NOLINT
  explicit Sequential(const std::vector<Layer>& layers);
};

// The layers between symbolic inputs and outputs.
class Functional : public Model {
 public:
  Functional(const std::vector<SymbolicInput>& inputs, const SymbolicInput& output);
  Functional(const SymbolicInput& input, const SymbolicInput& output)
      : Functional(std::vector<SymbolicInput>{input}, output) {}
};

void save_weights(const Model& model, const std::filesystem::path& path);

}  // namespace tandem
