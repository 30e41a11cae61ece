/// @file
/// Layer, a handle to a callable with variables, and its base class. As tf.keras.layers.Layer.
#pragma once

#include <atomic>
#include <concepts>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "tandem/dtype_policy.h"
#include "tandem/initializers.h"
#include "tandem/regularizers.h"
#include "tandem/tensor.h"
#include "tandem/variable.h"

namespace tandem {

/// Options of a call of a layer or model.
struct CallOptions {
  /// Training mode: dropout is active, batch normalization uses the batch's moments.
  bool training = false;
};

/// The values of variables by name, as torch.nn.Module.state_dict: tensors that keep their elements
/// when the variables change. It knows the variables, for functions that change them.
class StateDict : public std::map<std::string, Tensor> {
 public:
  StateDict() = default;
  const std::vector<Variable>& variables() const { return variables_; }  ///< in the model's order
  /// Adds a variable with its value. Returns false if the name is there already.
  bool add(const std::string& name, const Variable& variable);

 private:
  std::vector<Variable> variables_;
};

/// A parameter with its name: a pair of both, `for (const auto& [name, variable] : ...)`, with
/// libtorch's names for them.
class NamedParameter : public std::pair<std::string, Variable> {
 public:
  using std::pair<std::string, Variable>::pair;
  /// A pair as a parameter.
  NamedParameter(std::pair<std::string, Variable> named)  // NOLINT: a pair is one
      : std::pair<std::string, Variable>(std::move(named)) {}
  const std::string& key() const { return first; }  ///< the name
  const Variable& value() const { return second; }  ///< the variable
};
/// Parameters with their names, in order. As torch::OrderedDict.
class NamedParameters : public std::vector<NamedParameter> {
 public:
  using std::vector<NamedParameter>::vector;
  using std::vector<NamedParameter>::operator[];
  /// The parameter of this name. Throws NotFoundError that lists the names.
  const Variable& operator[](const std::string& name) const;
  bool contains(const std::string& name) const;  ///< whether there is a parameter of this name
  /// As a list of pairs.
  operator std::vector<std::pair<std::string, Variable>>() const;  // NOLINT: is such a list
};

class Layer;
class LayerBase;
class Model;
class SymbolicInput;

/// The member `trainable` of layers and models, which is read as a bool and assigned as one:
/// `layer.trainable = false` is layer.set_trainable(false), and layer.trainable() is its value.
template <class Owner>
class TrainableFlag {
 public:
  TrainableFlag(const TrainableFlag&) = delete;
  bool operator()() const;  ///< the value
  /// The value.
  operator bool() const { return (*this)(); }        // NOLINT: it stands for its value
  const TrainableFlag& operator=(bool value) const;  ///< as set_trainable() of the owner
  /// Assigns the value of another flag.
  const TrainableFlag& operator=(const TrainableFlag& other) const { return *this = other(); }

 private:
  friend class Layer;
  friend class LayerBase;
  friend class Model;
  TrainableFlag() = default;
  explicit TrainableFlag(Owner* owner) : owner_(owner) {}

  Owner* owner_ = nullptr;
};
/// The value of a layer's flag.
template <>
bool TrainableFlag<LayerBase>::operator()() const;
/// Freezes or unfreezes a layer.
template <>
const TrainableFlag<LayerBase>& TrainableFlag<LayerBase>::operator=(bool value) const;

/// Base class of layers and models whose methods have the full signatures. As
/// tf.keras.layers.Layer; layers::Layer has Keras's signatures. A layer creates its variables in
/// build(), which runs once, before the first call, with the input's shape (batch axis -1).
///
/// A copy of a layer shares its variables, name and settings, as if it were the same layer.
///
/// Thread safety: replicas may call a layer concurrently. Setting it up (names, paths, variables)
/// is for one thread; a layer with variables must be built before replicas call it.
class LayerBase {
 public:
  /// A layer of this name; empty: named by its model.
  explicit LayerBase(std::string name);
  virtual ~LayerBase() = default;

  /// Name of the type in snake case ("dense"), from which default names are made.
  virtual std::string kind() const = 0;
  /// Creates the variables with add_weight(). The default builds the child layers by a call() on
  /// zeros (float32, batch size 1), if all sizes are known.
  virtual void build(std::span<const Shape> input_shapes);
  /// Computes the layer's result.
  virtual Tensor call(std::span<const Tensor> inputs, const CallOptions& options) = 0;
  /// Shape of the result for inputs of these shapes (batch axis -1), for summaries and symbolic
  /// calls. May be called before the layer is built. Throws InvalidArgumentError "[dense] expected
  /// ..., got ..." with the layer's name.
  virtual Shape output_shape(std::span<const Shape> input_shapes) const = 0;
  /// Child layers, in the order in which their variables are listed.
  virtual std::vector<Layer> children() const;

  /// Empty until the layer gets a name or becomes part of a model.
  const std::string& name() const { return state_->name; }
  /// The name, or the kind if it has none; for messages.
  std::string label() const { return name().empty() ? kind() : name(); }
  void set_name(std::string name) { state_->name = std::move(name); }  ///< sets the name
  /// Whether the variables exist.
  bool built() const { return state_->built.load(std::memory_order_acquire); }
  /// Shape of one example that the layer expects, without the batch axis; unset if not declared.
  const Shape& declared_input_shape() const { return state_->declared_input_shape; }
  /// Sets declared_input_shape().
  void declare_input_shape(const Shape& shape) { state_->declared_input_shape = shape; }
  /// Whether training updates the layer: set_trainable() as a member that can be assigned.
  TrainableFlag<LayerBase> trainable{this};
  /// Freezes or unfreezes the variables of the layer and of its child layers, also those that are
  /// made later. Frozen variables have no gradients: backward() computes none, and optimizers pass
  /// them over. As Keras's `trainable`, but the last call decides: a child that is unfrozen after
  /// its parent is trained. Not while replicas use the layer.
  void set_trainable(bool trainable);
  /// The dtypes of the layer; by default the process's policy when it was created.
  const DTypePolicy& dtype_policy() const { return state_->dtype_policy; }
  /// Sets dtype_policy() of this layer and its child layers. Throws FailedPreconditionError if the
  /// variables exist and would have another dtype.
  void set_dtype_policy(const DTypePolicy& policy);
  /// Sets the policy of this layer alone, and converts its trainable variables to the policy's
  /// dtype if they exist. Optimizers must not have slots of them yet.
  void convert_dtype_policy(const DTypePolicy& policy);
  /// Runs calls of the layer under amp::autocast with this dtype, float16 or bfloat16; unset: not.
  void set_autocast(std::optional<DType> dtype) { state_->autocast = dtype; }
  /// set_autocast()'s dtype.
  const std::optional<DType>& autocast() const { return state_->autocast; }
  /// Casts floating results of calls of the layer to this dtype. Default: not.
  void set_output_dtype(std::optional<DType> dtype) { state_->output_dtype = dtype; }
  /// Dtype that was set by set_output_dtype().
  const std::optional<DType>& output_dtype() const { return state_->output_dtype; }
  /// Whether a call casts floating inputs to dtype_policy().compute_dtype(). Models do not: their
  /// layers do.
  virtual bool casts_inputs() const { return true; }
  /// Whether call() reads the layer's floating variables as dtype_policy().compute_dtype().
  virtual bool casts_variables() const { return true; }
  /// Variables of this layer, without those of its child layers.
  const std::vector<Variable>& own_variables() const { return state_->variables; }
  /// Path of the layer in its model ("block_1/dense"), the prefix of its variables' names. Empty
  /// for the model itself, whose own variables are prefixed by its label().
  const std::string& path() const { return state_->path; }
  void set_path(std::string path) { state_->path = std::move(path); }  ///< sets the path

  /// The options of a call without options: Layer::operator().
  CallOptions default_options() const;
  void set_training(bool training);  ///< as Layer::train()

  /// Builds the layer if it is not built: assigns names and paths to child layers and calls
  /// build(). Throws InvalidArgumentError if the shapes are not the declared ones and if two
  /// children have the same name.
  void ensure_built(std::span<const Shape> input_shapes);
  /// Whether build() has run on this object, and not only on another copy of the layer.
  bool ready() const { return ready_.load(std::memory_order_acquire); }
  /// The same for all copies of a layer, and different for different layers.
  const void* identity() const { return state_.get(); }
  /// As set_path(), and renames the variables, of child layers, too. For a layer that gets its
  /// place after it was built, before an optimizer has slots of its variables.
  void move_to(const std::string& path);
  /// Whether a model that the layer becomes part of calls move_to().
  bool moves() const { return state_->moves; }

  /// @{
  /// As Layer::variables(), trainable_variables() and non_trainable_variables().
  std::vector<Variable> variables() const;
  std::vector<Variable> trainable_variables() const;
  std::vector<Variable> non_trainable_variables() const;
  /// @}
  std::vector<Variable> weights() const { return variables(); }  ///< as variables(), in Keras
  /// As trainable_variables(), in Keras.
  std::vector<Variable> trainable_weights() const { return trainable_variables(); }
  /// As non_trainable_variables(), in Keras.
  std::vector<Variable> non_trainable_weights() const { return non_trainable_variables(); }
  /// As trainable_variables(), in PyTorch.
  std::vector<Variable> parameters() const { return trainable_variables(); }
  /// @{
  /// As Layer::get_weights() and so on.
  std::vector<Tensor> get_weights() const;
  void set_weights(const std::vector<Tensor>& weights) const;
  NamedParameters named_parameters() const;
  StateDict state_dict() const;
  void load_state_dict(const std::map<std::string, Tensor>& state) const;
  /// @}
  std::int64_t count_params() const;  ///< number of elements of all variables
  /// As Layer::losses().
  std::vector<Tensor> losses() const;
  /// The variables with the names that state_dict() has. Default: their own names.
  virtual std::vector<std::pair<std::string, Variable>> named_variables() const;

 protected:
  /// @{
  /// Shares the variables, the name and the settings.
  LayerBase(const LayerBase& other) : state_(other.state_), ready_(other.ready()) {}
  LayerBase& operator=(const LayerBase& other);
  /// @}

  /// Creates a variable named "path/name" in the current strategy scope. Default of `dtype`: that
  /// of dtype_policy(). Throws FailedPreconditionError inside a strategy's replica. As Keras's
  /// add_weight. In a copy of a layer that is built, returns the variable of the layer.
  Variable add_weight(const std::string& name, const Shape& shape, const Initializer& initializer,
                      VariableOptions options = {}, std::optional<DType> dtype = std::nullopt);
  /// Adds a penalty of this variable, which add_weight() has returned, to losses(). None: nothing.
  void regularize(const Variable& variable, const Regularizer& regularizer);
  /// For layers whose variables are made without build(). `moves`: as moves().
  void mark_built(bool moves);
  /// Gives these child layers names and paths, unless they have them.
  void place_children(std::span<const Layer> children) const;
  /// As a call of the layer while it is being built.
  Tensor call_in_trial(std::span<const Tensor> inputs);
  /// A handle to this object, which must not outlive it.
  Layer borrowed() const;

 private:
  struct State {
    std::string name;
    std::string path;
    std::string prefix;  // of the variables' names
    DTypePolicy dtype_policy;
    std::optional<DType> autocast;
    std::optional<DType> output_dtype;
    Shape declared_input_shape;
    std::vector<Variable> variables;
    const void* builder = nullptr;  // belongs to the thread that builds the layer now
    int builder_process = 0;        // the forks that had made its process
    std::atomic<bool> built = false;
    bool trainable = true;
    bool moves = false;
    // Shared with the functions that were traced in this mode.
    std::shared_ptr<std::atomic<bool>> training = std::make_shared<std::atomic<bool>>(false);
    std::vector<std::pair<Variable, Regularizer>> penalties;
  };
  friend class TrainableFlag<LayerBase>;
  class BuildTurn;
  void build_in_turn(std::span<const Shape> input_shapes);
  Variable next_shared(const std::string& name, const Shape& shape);

  std::shared_ptr<State> state_;
  std::atomic<bool> ready_ = false;
  // While build() of a copy runs: the number of variables that add_weight() has returned.
  std::optional<std::size_t> shared_weights_;
};

/// A shared handle to a layer. A layer that is used twice shares its variables.
class Layer {
 public:
  Layer() = default;
  /// Wraps a layer, as in std::make_shared<MyLayer>().
  template <std::derived_from<LayerBase> L>
  Layer(std::shared_ptr<L> layer) : Layer(std::shared_ptr<LayerBase>(layer), 0) {  // NOLINT
    if constexpr (requires { L::bind_forward(*layer); })
      if (layer) L::bind_forward(*layer);
  }
  /// Wraps a copy of a layer, which shares its variables: MyLayer(32) where a layer is expected.
  template <std::derived_from<LayerBase> L>
  requires(!std::is_abstract_v<L> && std::is_move_constructible_v<L>) Layer(L layer)
      : Layer(std::make_shared<L>(std::move(layer))) {}  // NOLINT
  /// The layer of a model: the model as a layer of another one.
  Layer(const Model& model);  // NOLINT: a model is a layer
  /// An Input() as the first layer of a Sequential: declares the shape of an example. Throws
  /// InvalidArgumentError for the result of a layer.
  Layer(const SymbolicInput& input);  // NOLINT: stands for the layer
  /// @{
  /// Handles to the same layer.
  Layer(const Layer& other) { *this = other; }
  Layer(Layer&& other) noexcept { *this = std::move(other); }
  Layer& operator=(const Layer& other);
  Layer& operator=(Layer&& other) noexcept;
  /// @}

  bool defined() const { return layer_ != nullptr; }  ///< false for a default-constructed layer
  const Layer* operator->() const { return this; }    ///< this handle, as of a pointer to a layer
  /// The layer. Throws FailedPreconditionError if undefined.
  LayerBase& base() const;
  /// The layer as an object of your class, or of the class of a module: null if it is another one.
  /// As torch::nn::Module::as.
  template <class L>
  auto as() const {
    if constexpr (std::derived_from<L, LayerBase>)
      return dynamic_cast<L*>(&base());
    else
      return dynamic_cast<std::remove_reference_t<decltype(*std::declval<L&>())>*>(&base());
  }
  const std::shared_ptr<LayerBase>& shared() const { return layer_; }  ///< for Tandem's own code
  const std::string& name() const { return base().name(); }            ///< as LayerBase::name()
  bool built() const { return base().built(); }                        ///< whether variables exist
  /// As LayerBase::trainable: `layer.trainable = false` freezes the layer and its child layers.
  TrainableFlag<LayerBase> trainable;
  /// Freezes or unfreezes the layer and its child layers.
  void set_trainable(bool value) const { base().set_trainable(value); }

  /// @{
  /// Calls the layer, and builds it if necessary. Without options, a call in the call() of another
  /// layer has the options of that one, as in Keras; any other has the mode of train() and eval().
  /// Errors of operations in the call name the innermost layer ("[block/dense_1] ...") and its
  /// inputs.
  Tensor operator()(const Tensor& input) const;
  Tensor operator()(const Tensor& input, const CallOptions& options) const;
  /// @}
  /// layer(x, true) is layer(x, {.training = true}).
  template <std::same_as<bool> Training>
  Tensor operator()(const Tensor& input, Training training) const {
    return (*this)(input, CallOptions{.training = training});
  }
  /// @{
  /// Calls a layer with several inputs.
  Tensor operator()(TensorList inputs) const;
  Tensor operator()(TensorList inputs, const CallOptions& options) const;
  /// @}
  /// @{
  /// Adds the layer to a functional model: returns the symbolic result for symbolic inputs.
  SymbolicInput operator()(const SymbolicInput& input) const;
  SymbolicInput operator()(const std::vector<SymbolicInput>& inputs) const;
  /// @}
  Tensor forward(const Tensor& input) const { return (*this)(input); }  ///< as a call, in PyTorch

  /// Sets the mode of calls without options, of this layer and its child layers. As
  /// torch.nn.Module.train, but the first mode is that of eval(). Functions have a trace for each
  /// mode.
  void train(bool training = true) const { base().set_training(training); }
  void eval() const { train(false); }  ///< train(false)

  /// All variables including those of child layers, in the order of creation.
  std::vector<Variable> variables() const;
  /// The variables that training updates.
  std::vector<Variable> trainable_variables() const;
  /// The variables that training does not update, such as moving averages and those of frozen
  /// layers.
  std::vector<Variable> non_trainable_variables() const;
  std::vector<Variable> weights() const { return variables(); }  ///< as variables(), in Keras
  /// As trainable_variables(), in Keras.
  std::vector<Variable> trainable_weights() const { return trainable_variables(); }
  /// As non_trainable_variables(), in Keras.
  std::vector<Variable> non_trainable_weights() const { return non_trainable_variables(); }
  /// As trainable_variables(), in PyTorch.
  std::vector<Variable> parameters() const { return trainable_variables(); }

  /// The number of elements of all variables. As Keras.
  std::int64_t count_params() const { return base().count_params(); }
  /// The penalties of the regularizers of this layer and its child layers, one scalar for each
  /// variable that training updates and that has a regularizer. Computed from the present values,
  /// with a gradient. fit() and train_on_batch() add them to the loss; a loop of your own adds them
  /// itself. As Keras.
  std::vector<Tensor> losses() const { return base().losses(); }
  /// The values of variables(), in their order. As Keras.
  std::vector<Tensor> get_weights() const;
  /// Assigns values to variables(), in their order. Throws InvalidArgumentError, before anything is
  /// assigned, for another number of values, another shape or another dtype. As Keras.
  void set_weights(const std::vector<Tensor>& weights) const;
  /// The variables that training updates, with their names. As torch.nn.Module.named_parameters.
  NamedParameters named_parameters() const;
  /// The values of all variables by name. As torch.nn.Module.state_dict; the tensors keep their
  /// values when the variables change.
  StateDict state_dict() const;
  /// Assigns the values of state_dict(). Throws InvalidArgumentError, before anything is assigned,
  /// that lists the missing and the unexpected names, or names a tensor of another shape or dtype.
  /// As torch.nn.Module.load_state_dict.
  void load_state_dict(const std::map<std::string, Tensor>& state) const;

 private:
  Layer(std::shared_ptr<LayerBase> layer, int);

  std::shared_ptr<LayerBase> layer_;
};

}  // namespace tandem
