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
#include <utility>
#include <variant>
#include <vector>

#include "tandem/creation.h"
#include "tandem/history.h"
#include "tandem/layers.h"
#include "tandem/model_options.h"

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

/// One symbolic tensor, or several in braces, as a parameter type.
class SymbolicInputs : public std::vector<SymbolicInput> {
 public:
  using std::vector<SymbolicInput>::vector;
  /// One.
  SymbolicInputs(const SymbolicInput& one);  // NOLINT: implicit
  /// Several.
  SymbolicInputs(std::vector<SymbolicInput> several) : vector(std::move(several)) {}  // NOLINT
};

/// Options of Input().
struct InputOptions {
  Shape shape{};                 ///< shape of one example, without the batch axis; required
  std::optional<DType> dtype{};  ///< dtype to which the model casts this input; default: its own
  std::string name{};            ///< for messages
};
/// @{
/// An input of a functional model, or the first element of a Sequential, whose first layer then
/// expects it. `shape` is that of one example, without the batch axis. As tf.keras.Input.
SymbolicInput Input(const Shape& shape, std::string name = {},
                    std::optional<DType> dtype = std::nullopt);
template <std::same_as<InputOptions> Options = InputOptions>
SymbolicInput Input(const Options& options) {
  return Input(options.shape, options.name, options.dtype);
}
template <std::same_as<InputOptions> Options = InputOptions>
SymbolicInput Input(const Shape& shape, const Options& options) {
  return Input(shape, options.name, options.dtype);
}
/// @}

/// The results of a step by name: scalars, and metrics' result(). See Model::train_step().
using StepResults = std::map<std::string, Tensor>;

struct ModelImpl;
/// The value of a model's flag.
template <>
bool TrainableFlag<Model>::operator()() const;
/// Freezes or unfreezes a model.
template <>
const TrainableFlag<Model>& TrainableFlag<Model>::operator=(bool value) const;

/// A model. A shared handle. If its variables were created in a strategy's scope, it trains under
/// that strategy. As tf.keras.Model.
///
/// A class that is derived from Model overrides call(), and has the layers as members:
/// @code
/// class Classifier : public td::Model {
///  public:
///   td::Tensor call(const td::Tensor& inputs, bool training) override {
///     return logits(dropout(hidden(inputs), training));
///   }
///   td::layers::Dense hidden{64, {.activation = "relu"}}, logits{10};
///   td::layers::Dropout dropout{0.5};
/// };
/// @endcode
/// Layers that call() uses become child layers as those of a layers::Layer. Handles to such a model
/// refer to the object, which must be kept (or moved) as long as the model is called: calls throw
/// FailedPreconditionError afterwards. Replicas call the object concurrently. Such a class, or one
/// that is derived from Sequential or Functional, may override the steps of fit() and evaluate():
/// see train_step().
///
/// Thread safety: calls without training may run concurrently, also while another thread calls
/// set_weights(), load_state_dict() or load_weights(): a prediction has all weights from before
/// that or all from after it. Other calls may not.
class Model {
 public:
  Model() = default;
  /// Makes a model of a layer; builds it if the layer declares its input shape.
  explicit Model(Layer layer);
  /// @{
  /// The layers between inputs and outputs, as Functional. As tf.keras.Model(inputs, outputs).
  ///
  /// Outputs have the names of their layers, the second of equal names with "_1". A model of
  /// several outputs is trained by fit() with targets in their order, evaluated, and predicts; its
  /// loss is the sum of the outputs' losses, by CompileOptions::loss_weights, and fit() and
  /// evaluate() report "NAME_loss" and "NAME_METRIC" of each. Calls of it return all outputs by
  /// call_all(); what computes one result of a model throws InvalidArgumentError.
  Model(const SymbolicInputs& inputs, const SymbolicInputs& outputs, const std::string& name = {});
  template <std::same_as<FunctionalOptions> Options = FunctionalOptions>
  Model(const SymbolicInputs& inputs, const SymbolicInputs& outputs, const Options& options)
      : Model(inputs, outputs, options.name) {}
  /// @}
  /// @{
  /// Handles to the same model.
  Model(const Model& other) { *this = other; }
  Model(Model&& other) noexcept { *this = std::move(other); }
  Model& operator=(const Model& other);
  Model& operator=(Model&& other) noexcept;
  virtual ~Model();
  /// @}

  bool defined() const { return impl() != nullptr; }  ///< false for a default-constructed model
  const Layer& layer() const;                         ///< the layer that the model consists of
  std::vector<Layer> layers() const;                  ///< the child layers of layer()
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
  SymbolicInput operator()(const SymbolicInput& input) const { return Layer(*this)(input); }
  SymbolicInput operator()(const std::vector<SymbolicInput>& inputs) const {
    return Layer(*this)(inputs);
  }
  /// @}
  /// @{
  /// The forward pass of a derived class, for one input or several. Override one of them. As
  /// tf.keras.Model.call. Throws UnimplementedError.
  virtual Tensor call(const Tensor& inputs);
  virtual Tensor call(const std::vector<Tensor>& inputs);
  /// @}
  /// @{
  /// The same, where `training` is CallOptions::training.
  virtual Tensor call(const Tensor& inputs, bool training);
  virtual Tensor call(const std::vector<Tensor>& inputs, bool training);
  /// @}
  Tensor forward(const Tensor& input) const { return (*this)(input); }  ///< as a call, in PyTorch
  /// @{
  /// Runs the forward pass, and returns all outputs of the model in their order.
  std::vector<Tensor> call_all(ModelTensors inputs) const;
  std::vector<Tensor> call_all(ModelTensors inputs, const CallOptions& options) const;
  /// @}
  /// The names of the outputs; of a model with one output empty.
  const std::vector<std::string>& output_names() const;
  /// @{
  /// The training step on a batch, or on a replica's part of one, of a class that is derived from
  /// Model: of a pair of inputs and targets, or of whatever the elements of the data are. The
  /// default is the built-in step, which a class may call and extend. As tf.keras.Model.train_step.
  /// @code
  /// td::StepResults train_step(const td::Tensor& x, const td::Tensor& y) override {
  ///   td::GradientTape tape;
  ///   const td::Tensor y_pred = (*this)(x, true);
  ///   const td::Tensor loss = compute_loss(x, y, y_pred);
  ///   optimizer().apply_gradients(tape.gradient(loss, trainable_variables()),
  ///                               trainable_variables());
  ///   return compute_metrics(x, y, y_pred);
  /// }
  /// @endcode
  /// fit() and train_on_batch() call the step as their own: traced, once per batch size, unless
  /// run_eagerly; on every replica of a strategy, concurrently; on the workers of parameter
  /// servers; part by part in the replica-invariant mode. Gradients are SUMMED over the replicas: a
  /// loss that is not compute_loss() is divided by the size of the global batch, by
  /// nn::compute_average_loss().
  ///
  /// fit() reports each result under its name: of a metrics::Metric that the step updates, its
  /// result() over the epoch; of another scalar its mean over the examples. The metrics are reset
  /// at the start of each epoch, and have the epoch's values after it. Update metrics of your own
  /// class through a td::metrics::Metric that holds it. compile() needs no loss if the steps
  /// use none.
  ///
  /// A step that is called outside of fit(), evaluate() and the like, and a metric that is returned
  /// but was not updated, throw FailedPreconditionError; a result that is no scalar, and results of
  /// other names than those of the first step, InvalidArgumentError. The steps are those of the
  /// object whose fit() is called; a handle of type td::Model to an object of a class derived from
  /// Sequential or Functional has the built-in ones.
  virtual StepResults train_step(const data::Example& data);
  virtual StepResults train_step(const Tensor& x, const Tensor& y);
  /// @}
  /// @{
  /// The same for evaluate(), test_on_batch() and the validation of fit(). As
  /// tf.keras.Model.test_step.
  virtual StepResults test_step(const data::Example& data);
  virtual StepResults test_step(const Tensor& x, const Tensor& y);
  /// @}
  /// The loss of compile(), and the penalties of regularizers, for steps of your own. In a step,
  /// the sum over replicas is the loss of the global batch, and compute_metrics() reports it. `x`
  /// is not used. Throws FailedPreconditionError if compile() got no loss. As
  /// tf.keras.Model.compute_loss.
  Tensor compute_loss(const Tensor& x, const Tensor& y, const Tensor& y_pred,
                      const Tensor& sample_weight = {}) const;
  /// Updates the metrics of compile(), in a step of your own, and returns their results, and "loss"
  /// after compute_loss(). `x` is not used. As tf.keras.Model.compute_metrics.
  StepResults compute_metrics(const Tensor& x, const Tensor& y, const Tensor& y_pred,
                              const Tensor& sample_weight = {}) const;
  /// @{
  /// This model, as in model->fit(): a model is a handle.
  Model* operator->() { return this; }
  const Model* operator->() const { return this; }
  /// @}
  /// The model's name; empty until it has one or is part of another model.
  const std::string& name() const { return layer().name(); }
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
  std::vector<Variable> weights() const { return variables(); }  ///< as variables(), in Keras
  /// As trainable_variables(), in Keras.
  std::vector<Variable> trainable_weights() const { return trainable_variables(); }
  /// As non_trainable_variables(), in Keras.
  std::vector<Variable> non_trainable_weights() const { return non_trainable_variables(); }
  /// Trainable variables, as in PyTorch.
  std::vector<Variable> parameters() const { return trainable_variables(); }
  /// @{
  /// As Layer::get_weights(), set_weights(), named_parameters(), state_dict() and
  /// load_state_dict().
  std::vector<Tensor> get_weights() const;
  void set_weights(const std::vector<Tensor>& weights) const;
  NamedParameters named_parameters() const;
  StateDict state_dict() const;
  void load_state_dict(const std::map<std::string, Tensor>& state) const;
  /// @}
  /// Clears the gradients of the trainable variables. As torch.nn.Module.zero_grad.
  void zero_grad() const;
  std::int64_t count_params() const;  ///< number of elements of all variables
  /// @{
  /// Writes a table of layers with output shapes and numbers of parameters, and totals. Default:
  /// to the standard output.
  void summary(std::ostream& out) const;
  void summary() const;
  /// @}

  /// Configures training. May be called outside the strategy's scope. Throws InvalidArgumentError
  /// without a loss, and if the variables of the model or the optimizer were created under another
  /// strategy.
  void compile(CompileOptions options);
  /// The same with the first options as arguments, as in Keras.
  void compile(const OptimizerChoice& optimizer, const losses::Loss& loss,
               const std::vector<metrics::Metric>& metrics = {}) {
    compile({.optimizer = optimizer, .loss = loss, .metrics = metrics});
  }
  /// @{
  /// Trains the model. As tf.keras.Model.fit.
  ///
  /// Elements of `data` are (inputs, targets) or (inputs, targets, sample weights) in batches of
  /// the global size; a functional model takes one component per input and per output, and weights
  /// for all outputs or for each. Inputs without targets are
  /// for a train_step() of your own. Throws the errors of the data and of the step; the model then
  /// has the state of the last complete step. Throws InvalidArgumentError for infinite data without
  /// steps_per_epoch (and, for validation, evaluate() and predict(), without their number of
  /// steps).
  History fit(const data::Dataset& data, FitOptions options = {});
  History fit(const Tensor& x, const Tensor& y, FitOptions options = {});
  History fit(ModelTensors inputs, ModelTensors targets, FitOptions options = {});
  History fit(const Tensor& x, FitOptions options = {}) {
    return fit(x, Tensor(), std::move(options));
  }
  /// @}
  /// @{
  /// Returns the loss and the metrics by name. As tf.keras.Model.evaluate.
  ///
  /// Under a strategy with several replicas, each evaluates its part of a batch with its own copies
  /// of on-read variables, such as the moving averages of batch normalization, as in TensorFlow.
  /// Saved weights hold the mean of the copies, so that a model that loads them may give slightly
  /// different results.
  LossAndMetrics evaluate(const data::Dataset& data, const EvaluateOptions& options = {}) const;
  LossAndMetrics evaluate(const Tensor& x, const Tensor& y,
                          const EvaluateOptions& options = {}) const;
  LossAndMetrics evaluate(ModelTensors inputs, ModelTensors targets,
                          const EvaluateOptions& options = {}) const;
  LossAndMetrics evaluate(const Tensor& x, const EvaluateOptions& options = {}) const {
    return evaluate(x, Tensor(), options);
  }
  /// @}
  /// @{
  /// Returns the outputs for all inputs, concatenated along the batch axis. Elements of `data` are
  /// inputs or (inputs, ...). As tf.keras.Model.predict.
  Predictions predict(const data::Dataset& data, const EvaluateOptions& options = {}) const;
  Predictions predict(const Tensor& x, const EvaluateOptions& options = {}) const;
  Predictions predict(ModelTensors inputs, const EvaluateOptions& options = {}) const;
  /// @}
  /// One training step on this batch. Returns its loss and metrics by name, from before the step.
  /// As tf.keras.Model.train_on_batch with return_dict.
  LossAndMetrics train_on_batch(ModelTensors x, ModelTensors y, const Tensor& sample_weight = {});
  /// The loss and the metrics of this batch. As tf.keras.Model.test_on_batch with return_dict.
  LossAndMetrics test_on_batch(ModelTensors x, ModelTensors y,
                               const Tensor& sample_weight = {}) const;
  /// The outputs for this batch. As tf.keras.Model.predict_on_batch.
  Predictions predict_on_batch(ModelTensors x) const;

  /// As Layer::losses(): the penalties of regularizers, which training adds to the loss.
  std::vector<Tensor> losses() const { return layer().losses(); }
  /// The optimizer, a handle to the model's. Throws FailedPreconditionError before compile().
  optimizers::Optimizer optimizer() const;
  /// Whether training updates the model: `model.trainable = false` freezes all of its layers. As
  /// LayerBase::trainable.
  TrainableFlag<Model> trainable{this};
  void set_trainable(bool value) const;  ///< as LayerBase::set_trainable()
  /// The member `stop_training`, which is read as a bool and assigned as one.
  class StopFlag {
   public:
    StopFlag(const StopFlag&) = delete;
    void operator()() const { *this = true; }  ///< as assigning true
    /// The value.
    operator bool() const;                        // NOLINT: it stands for its value
    const StopFlag& operator=(bool value) const;  ///< sets the value
    StopFlag& operator=(const StopFlag&) = delete;

   private:
    friend class Model;
    explicit StopFlag(Model* model) : model_(model) {}
    Model* model_;
  };
  /// Ends fit() after the current step; for callbacks: `model.stop_training = true` or
  /// model.stop_training(). The epoch appears in callbacks and the history as if it were complete.
  /// As Keras's stop_training.
  StopFlag stop_training{this};

  /// Writes all variables by name to a safetensors file, which is replaced completely or not at
  /// all. Throws InvalidArgumentError for the extension of another format (.h5, .keras, .pt, ...).
  void save_weights(const std::filesystem::path& path) const;
  /// Reads the variables from a checkpoint (tandem/checkpoint.h). Throws NotFoundError or
  /// InvalidArgumentError that names the tensors that differ, and DataLossError for corrupt data.
  void load_weights(const std::filesystem::path& path);

  /// The architecture is C++ code and is not saved: does not compile, and says what to write.
  template <class Path>
  void save(const Path&) const {
    static_assert(!std::same_as<Path, Path>,
                  "a model's architecture is C++ code: write model.save_weights(path), and to load "
                  "them, make the model by the same code and call model.load_weights(path)");
  }

  /// For Tandem's own code.
  using Impl = ModelImpl;
  const std::shared_ptr<Impl>& impl() const;  ///< for Tandem's own code

 private:
  friend class Sequential;
  // Made on first use for an object of a derived class.
  mutable std::shared_ptr<Impl> impl_;
};

/// Options of Sequential. As the arguments of tf.keras.Sequential.
struct SequentialOptions {
  bool trainable = true;  ///< whether training updates the layers
  std::string name{};     ///< name of the model, where it is a layer of another one
};

/// A model of layers in sequence. The first element may be an Input(), which declares the shape of
/// an example. As tf.keras.Sequential.
class Sequential : public Model {
 public:
  Sequential() = default;  ///< a model without layers, to be added by add() or assigned
  /// @{
  /// A model of these layers.
  Sequential(std::initializer_list<Layer> layers,  // NOLINT: implicit
             const SequentialOptions& options = {});
  explicit Sequential(const std::vector<Layer>& layers, const SequentialOptions& options = {});
  template <std::convertible_to<std::string> Name>
  Sequential(std::initializer_list<Layer> layers, const Name& name)
      : Sequential(std::vector<Layer>(layers), SequentialOptions{.name = name}) {}
  template <std::convertible_to<std::string> Name>
  Sequential(const std::vector<Layer>& layers, const Name& name)
      : Sequential(layers, SequentialOptions{.name = name}) {}
  /// @}
  /// Adds a layer at the end. If the model is built, the layer is built, under the strategy of the
  /// other ones; a compiled model stays compiled. Copies of the model have the layer, too; models
  /// that were made of this one before do not. As tf.keras.Sequential.add.
  void add(const Layer& layer);
};

/// A model of the layers between symbolic inputs and outputs. As tf.keras.Model(inputs, outputs).
class Functional : public Model {
 public:
  /// @{
  /// As that constructor of Model.
  Functional(const SymbolicInputs& inputs, const SymbolicInputs& outputs,
             const std::string& name = {})
      : Model(inputs, outputs, name) {}
  template <std::same_as<FunctionalOptions> Options = FunctionalOptions>
  Functional(const SymbolicInputs& inputs, const SymbolicInputs& outputs, const Options& options)
      : Model(inputs, outputs, options.name) {}
  /// @}
};

/// As Model::save_weights().
void save_weights(const Model& model, const std::filesystem::path& path);

/// Model files, which have the architecture, are not supported: throws UnimplementedError that says
/// how to load weights, or NotFoundError if there is no such file.
Model load_model(const std::filesystem::path& path);

/// A tensor of load(), which is undefined if there is none of the name; or all tensors whose names
/// begin with the name and a dot.
class LoadedItem : public Tensor {
 public:
  /// For Tandem's own code.
  LoadedItem(Tensor tensor, std::map<std::string, Tensor> group);
  /// The tensors of a group, by the rest of their names.
  operator std::map<std::string, Tensor>() const { return group_; }  // NOLINT: usable as a map
  /// The numbers of a group, as of GradScaler::state_dict(), likewise.
  operator std::map<std::string, double>() const;  // NOLINT: usable as a map

 private:
  std::map<std::string, Tensor> group_;
};

/// Result of load(): tensors by name.
class LoadedTensors : public std::map<std::string, Tensor> {
 public:
  using std::map<std::string, Tensor>::map;
  /// These tensors.
  LoadedTensors(std::map<std::string, Tensor> tensors)  // NOLINT: a map of tensors is one
      : std::map<std::string, Tensor>(std::move(tensors)) {}
  /// The tensor, or the group of tensors, of this name. Throws NotFoundError if there is neither.
  LoadedItem operator[](const std::string& name) const;
};

/// An item of save() with names: a tensor, a number, or a group of either.
class SavedItem {
 public:
  /// A tensor.
  SavedItem(const Tensor& tensor);  // NOLINT: a tensor is an item
  /// A number.
  template <detail::Arithmetic Number>
  SavedItem(Number number) : SavedItem(constant(number)) {}  // NOLINT: a number is an item
  /// A group, such as a state_dict().
  template <class Value>
  requires std::convertible_to<Value, SavedItem> SavedItem(  // NOLINT: a group is an item
      const std::map<std::string, Value>& group) {
    for (const auto& [name, value] : group)
      tensors_.emplace(name, SavedItem(value).tensors_.at(""));
  }
  /// For Tandem's own code: the tensors by the rest of their names.
  const std::map<std::string, Tensor>& tensors() const { return tensors_; }

 private:
  std::map<std::string, Tensor> tensors_;
};

/// @{
/// Writes tensors by name, one tensor, or the state_dict() of a layer or model to a file of any
/// name. Items of a group get the name "GROUP.NAME"; a number becomes a scalar. The format is
/// safetensors, not that of torch.save; read it by load(). Throws the errors of save_safetensors().
void save(const std::map<std::string, Tensor>& tensors, const std::filesystem::path& path);
void save(std::initializer_list<std::pair<std::string, SavedItem>> items,
          const std::filesystem::path& path);
void save(const Tensor& tensor, const std::filesystem::path& path);
void save(const Layer& layer, const std::filesystem::path& path);
/// @}
/// @{
/// Reads what save() has written, or another safetensors file: returns the tensors by name, sets
/// one tensor, or loads the state of a layer or model. Throws InvalidArgumentError for a file of
/// PyTorch and says how to convert it, and the errors of load_safetensors().
LoadedTensors load(const std::filesystem::path& path);
void load(Tensor& tensor, const std::filesystem::path& path);
void load(const Layer& layer, const std::filesystem::path& path);
/// @}

/// As keras.models.
namespace models {
/// The architecture is C++ code and is not saved: does not compile, and says what to write.
template <class Path>
Sequential load_model(const Path&) {
  static_assert(!std::same_as<Path, Path>,
                "a model's architecture is C++ code: make the model by the code that made the "
                "saved one, and call model.load_weights(path)");
  return {};
}
}  // namespace models

}  // namespace tandem
