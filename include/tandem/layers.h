/// @file
/// Layers: callables with variables, from which models are built. As tf.keras.layers. Images are
/// channels-last: [batch, height, width, channels].
#pragma once

#include <atomic>
#include <concepts>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tandem/dtype_policy.h"
#include "tandem/initializers.h"
#include "tandem/nn.h"
#include "tandem/tensor.h"
#include "tandem/variable.h"

namespace tandem {

/// Options of a call of a layer or model.
struct CallOptions {
  /// Training mode: dropout is active, batch normalization uses the batch's moments.
  bool training = false;
};

class Layer;
class SymbolicInput;

/// Base class of layers and models. As tf.keras.layers.Layer. A layer creates its variables in
/// build(), which runs once, before the first call, with the input's shape (batch axis -1).
///
/// Thread safety: replicas may call a layer concurrently. Setting it up (names, paths, variables)
/// is for one thread; a layer with variables must be built before replicas call it.
class LayerBase {
 public:
  /// A layer of this name; empty: named by its model.
  explicit LayerBase(std::string name)
      : name_(std::move(name)), dtype_policy_(mixed_precision::global_policy()) {}
  virtual ~LayerBase() = default;
  LayerBase(const LayerBase&) = delete;
  LayerBase& operator=(const LayerBase&) = delete;

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
  const std::string& name() const { return name_; }
  /// The name, or the kind if it has none; for messages.
  std::string label() const { return name_.empty() ? kind() : name_; }
  void set_name(std::string name) { name_ = std::move(name); }  ///< sets the name
  /// Whether the variables exist.
  bool built() const { return built_.load(std::memory_order_acquire); }
  /// Shape of one example that the layer expects, without the batch axis; unset if not declared.
  const Shape& declared_input_shape() const { return declared_input_shape_; }
  /// Sets declared_input_shape().
  void declare_input_shape(const Shape& shape) { declared_input_shape_ = shape; }
  bool trainable() const { return trainable_; }  ///< whether training updates the layer
  /// Freezes or unfreezes the variables of the layer and of its child layers, also those that are
  /// made later. Frozen variables have no gradients: backward() computes none, and optimizers pass
  /// them over. As Keras's `trainable`, but the last call decides: a child that is unfrozen after
  /// its parent is trained. Not while replicas use the layer.
  void set_trainable(bool trainable);
  /// The dtypes of the layer; by default the process's policy when it was created.
  const DTypePolicy& dtype_policy() const { return dtype_policy_; }
  /// Sets dtype_policy() of this layer and its child layers. Throws FailedPreconditionError if the
  /// variables exist and would have another dtype.
  void set_dtype_policy(const DTypePolicy& policy);
  /// Sets the policy of this layer alone, and converts its trainable variables to the policy's
  /// dtype if they exist. Optimizers must not have slots of them yet.
  void convert_dtype_policy(const DTypePolicy& policy);
  /// Runs calls of the layer under amp::autocast with this dtype, float16 or bfloat16; unset: not.
  void set_autocast(std::optional<DType> dtype) { autocast_ = dtype; }
  const std::optional<DType>& autocast() const { return autocast_; }  ///< set_autocast()'s dtype
  /// Casts floating results of calls of the layer to this dtype. Default: not.
  void set_output_dtype(std::optional<DType> dtype) { output_dtype_ = dtype; }
  /// Dtype that was set by set_output_dtype().
  const std::optional<DType>& output_dtype() const { return output_dtype_; }
  /// Whether a call casts floating inputs to dtype_policy().compute_dtype(). Models do not: their
  /// layers do.
  virtual bool casts_inputs() const { return true; }
  /// Whether call() reads the layer's floating variables as dtype_policy().compute_dtype().
  virtual bool casts_variables() const { return true; }
  /// Variables of this layer, without those of its child layers.
  const std::vector<Variable>& own_variables() const { return variables_; }
  /// Path of the layer in its model ("block_1/dense"), the prefix of its variables' names. Empty
  /// for the model itself, whose own variables are prefixed by its label().
  const std::string& path() const { return path_; }
  void set_path(std::string path) { path_ = std::move(path); }  ///< sets the path

  /// The options of a call without options: Layer::operator().
  CallOptions default_options() const;
  void set_training(bool training);  ///< as Layer::train()

  /// Builds the layer if it is not built: assigns names and paths to child layers and calls
  /// build(). Throws InvalidArgumentError if the shapes are not the declared ones and if two
  /// children have the same name.
  void ensure_built(std::span<const Shape> input_shapes);

 protected:
  /// Creates a variable named "path/name" in the current strategy scope. Default of `dtype`: that
  /// of dtype_policy(). Throws FailedPreconditionError inside a strategy's replica. As Keras's
  /// add_weight.
  Variable add_weight(const std::string& name, const Shape& shape, const Initializer& initializer,
                      VariableOptions options = {}, std::optional<DType> dtype = std::nullopt);

 private:
  std::string name_;
  std::string path_;
  DTypePolicy dtype_policy_;
  std::optional<DType> autocast_;
  std::optional<DType> output_dtype_;
  Shape declared_input_shape_;
  std::vector<Variable> variables_;
  std::mutex build_mutex_;
  std::atomic<bool> built_ = false;
  bool trainable_ = true;
  // Shared with the functions that were traced in this mode.
  std::shared_ptr<std::atomic<bool>> training_ = std::make_shared<std::atomic<bool>>(false);
};

/// A shared handle to a layer. A layer that is used twice shares its variables.
class Layer {
 public:
  Layer() = default;
  /// Wraps a layer, as in std::make_shared<MyLayer>().
  template <std::derived_from<LayerBase> L>
  Layer(std::shared_ptr<L> layer)
      : layer_(std::move(layer)) {}  // NOLINT: from make_shared<MyLayer>()

  bool defined() const { return layer_ != nullptr; }  ///< false for a default-constructed layer
  /// The layer. Throws FailedPreconditionError if undefined.
  LayerBase& base() const;
  const std::shared_ptr<LayerBase>& shared() const { return layer_; }  ///< for Tandem's own code
  const std::string& name() const { return base().name(); }            ///< as LayerBase::name()
  bool trainable() const { return base().trainable(); }  ///< as LayerBase::trainable()
  /// Freezes or unfreezes the layer and its child layers.
  void set_trainable(bool trainable) const { base().set_trainable(trainable); }

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

  /// Sets the mode of calls without options, of this layer and its child layers. As
  /// torch.nn.Module.train, but the first mode is that of eval(). Functions that were traced in the
  /// other mode are traced anew.
  void train(bool training = true) const { base().set_training(training); }
  void eval() const { train(false); }  ///< train(false)

  /// All variables including those of child layers, in the order of creation.
  std::vector<Variable> variables() const;
  /// The variables that training updates.
  std::vector<Variable> trainable_variables() const;
  /// The variables that training does not update, such as moving averages and those of frozen
  /// layers.
  std::vector<Variable> non_trainable_variables() const;

 private:
  std::shared_ptr<LayerBase> layer_;
};

/// Layers. As tf.keras.layers.
namespace layers {

/// Options of Dense().
struct DenseOptions {
  std::string activation{};  ///< name of the activation; default: linear
  bool use_bias = true;      ///< whether to add a bias
  Initializer kernel_initializer = initializers::glorot_uniform();  ///< of kernels
  Initializer bias_initializer = initializers::zeros();             ///< of biases
  Shape input_shape{};  ///< shape of one example; for a model's first layer
  std::string name{};   ///< name in the model; default: by the type
  DTypePolicy dtype{};  ///< dtypes; default: the process's policy
};
/// Fully connected layer: activation(x . kernel + bias) over the last axis. As
/// tf.keras.layers.Dense.
Layer Dense(std::int64_t units, const DenseOptions& options = {});
/// Dense(10, "relu") is Dense(10, {.activation = "relu"}).
template <std::convertible_to<std::string> Activation>
Layer Dense(std::int64_t units, const Activation& activation) {
  return Dense(units, DenseOptions{.activation = activation});
}

/// Options of Conv2D().
struct Conv2DOptions {
  std::string activation{};       ///< name of the activation; default: linear
  nn::Pair strides = 1;           ///< stride
  std::string padding = "valid";  ///< "valid" or "same"
  nn::Pair dilation_rate = 1;     ///< spacing of the kernel's elements
  std::int64_t groups = 1;        ///< groups of channels that are convolved separately
  bool use_bias = true;           ///< whether to add a bias
  Initializer kernel_initializer = initializers::glorot_uniform();  ///< of kernels
  Initializer bias_initializer = initializers::zeros();             ///< of biases
  Shape input_shape{};  ///< shape of one example; for a model's first layer
  std::string name{};   ///< name in the model; default: by the type
  DTypePolicy dtype{};  ///< dtypes; default: the process's policy
};
/// 2D convolution. As tf.keras.layers.Conv2D.
Layer Conv2D(std::int64_t filters, nn::Pair kernel_size, const Conv2DOptions& options = {});
/// Conv2D(32, 3, "relu") is Conv2D(32, 3, {.activation = "relu"}).
template <std::convertible_to<std::string> Activation>
Layer Conv2D(std::int64_t filters, nn::Pair kernel_size, const Activation& activation) {
  return Conv2D(filters, kernel_size, Conv2DOptions{.activation = activation});
}

/// Options of DepthwiseConv2D().
struct DepthwiseConv2DOptions {
  std::string activation{};           ///< name of the activation; default: linear
  nn::Pair strides = 1;               ///< stride
  std::string padding = "valid";      ///< "valid" or "same"
  nn::Pair dilation_rate = 1;         ///< spacing of the kernel's elements
  std::int64_t depth_multiplier = 1;  ///< output channels per input channel
  bool use_bias = true;               ///< whether to add a bias
  Initializer kernel_initializer = initializers::glorot_uniform();  ///< of kernels
  Initializer bias_initializer = initializers::zeros();             ///< of biases
  Shape input_shape{};  ///< shape of one example; for a model's first layer
  std::string name{};   ///< name in the model; default: by the type
  DTypePolicy dtype{};  ///< dtypes; default: the process's policy
};
/// Depthwise 2D convolution. As tf.keras.layers.DepthwiseConv2D.
Layer DepthwiseConv2D(nn::Pair kernel_size, const DepthwiseConv2DOptions& options = {});

/// Options of MaxPooling2D() and AveragePooling2D().
struct Pooling2DOptions {
  std::optional<nn::Pair> strides{};  ///< default: pool_size
  std::string padding = "valid";      ///< "valid" or "same"
  Shape input_shape{};                ///< shape of one example; for a model's first layer
  std::string name{};                 ///< name in the model; default: by the type
  DTypePolicy dtype{};                ///< dtypes; default: the process's policy
};
/// Max pooling. As tf.keras.layers.MaxPooling2D.
Layer MaxPooling2D(nn::Pair pool_size = 2, const Pooling2DOptions& options = {});
/// Average pooling. As tf.keras.layers.AveragePooling2D.
Layer AveragePooling2D(nn::Pair pool_size = 2, const Pooling2DOptions& options = {});

/// Options of GlobalAveragePooling2D() and GlobalMaxPooling2D().
struct GlobalPooling2DOptions {
  bool keepdims = false;  ///< whether to keep height and width as axes of size 1
  Shape input_shape{};    ///< shape of one example; for a model's first layer
  std::string name{};     ///< name in the model; default: by the type
  DTypePolicy dtype{};    ///< dtypes; default: the process's policy
};
/// @{
/// The mean or maximum over height and width. As their namesakes in tf.keras.layers.
Layer GlobalAveragePooling2D(const GlobalPooling2DOptions& options = {});
Layer GlobalMaxPooling2D(const GlobalPooling2DOptions& options = {});
/// @}

/// Options of BatchNormalization(). As Keras.
struct BatchNormalizationOptions {
  double momentum = 0.99;  ///< factor of the old value in the moving averages
  double epsilon = 1e-3;   ///< added to the variance
  bool center = true;      ///< whether to add beta
  bool scale = true;       ///< whether to multiply by gamma
  /// In training, uses the moments of the batches of all replicas of the strategy, and outside
  /// strategies of all ranks of the process group, if there is one. Every rank must then call the
  /// layer equally often. Batches may have different sizes, also 0.
  bool synchronized = false;
  Shape input_shape{};  ///< shape of one example; for a model's first layer
  std::string name{};   ///< name in the model; default: by the type
  DTypePolicy dtype{};  ///< dtypes; default: the process's policy
};
/// Batch normalization over all axes but the last. The moving averages are on-read variables,
/// averaged over replicas. As tf.keras.layers.BatchNormalization.
Layer BatchNormalization(const BatchNormalizationOptions& options = {});

/// Options of LayerNormalization(). As Keras.
struct LayerNormalizationOptions {
  double epsilon = 1e-3;  ///< added to the variance
  bool center = true;     ///< whether to add beta
  bool scale = true;      ///< whether to multiply by gamma
  Shape input_shape{};    ///< shape of one example; for a model's first layer
  std::string name{};     ///< name in the model; default: by the type
  DTypePolicy dtype{};    ///< dtypes; default: the process's policy
};
/// Layer normalization over the last axis. As tf.keras.layers.LayerNormalization.
Layer LayerNormalization(const LayerNormalizationOptions& options = {});

/// Options of MultiHeadAttention(). As Keras.
struct MultiHeadAttentionOptions {
  std::int64_t value_dim = 0;    ///< size per head of values; 0: key_dim
  double dropout = 0.0;          ///< dropout rate of the attention weights
  bool use_bias = true;          ///< whether projections have biases
  bool use_causal_mask = false;  ///< whether a position attends only to itself and earlier ones
  Initializer kernel_initializer = initializers::glorot_uniform();  ///< of kernels
  Initializer bias_initializer = initializers::zeros();             ///< of biases
  Shape input_shape{};  ///< shape of one example; for a model's first layer
  std::string name{};   ///< name in the model; default: by the type
  DTypePolicy dtype{};  ///< dtypes; default: the process's policy
};
/// Multi-head attention over sequences [batch, positions, features]. As
/// tf.keras.layers.MultiHeadAttention.
///
/// Projects query, key and value to `num_heads` heads of size `key_dim` and `value_dim`, applies
/// nn::scaled_dot_product_attention(), and projects to the query's number of features. Called with
/// {query} (self-attention), {query, value}, {query, value, key} or {query, value, key,
/// attention_mask}. The mask is bool or 0 and 1 and broadcasts to [batch, queries, keys] or [batch,
/// heads, queries, keys]; true: the query attends to the key.
///
/// Variables have Keras's names and shapes: "query/kernel" [features, num_heads, key_dim],
/// "query/bias" [num_heads, key_dim], "key/...", "value/...", "attention_output/kernel" [num_heads,
/// value_dim, features], "attention_output/bias".
Layer MultiHeadAttention(std::int64_t num_heads, std::int64_t key_dim,
                         const MultiHeadAttentionOptions& options = {});

/// Options that all layers have.
struct SimpleOptions {
  Shape input_shape{};  ///< shape of one example; for a model's first layer
  std::string name{};   ///< name in the model; default: by the type
  DTypePolicy dtype{};  ///< dtypes; default: the process's policy
};
/// Zeroes inputs with probability `rate` in training and scales the others by 1 / (1 - rate). As
/// tf.keras.layers.Dropout.
Layer Dropout(double rate, const SimpleOptions& options = {});
/// Flattens all axes but the batch. As tf.keras.layers.Flatten.
Layer Flatten(const SimpleOptions& options = {});
/// Reshapes examples to `target_shape`, without the batch axis; one size may be -1. As
/// tf.keras.layers.Reshape.
Layer Reshape(const Shape& target_shape, const SimpleOptions& options = {});
/// Applies an activation by name (nn::activation_from_name). As tf.keras.layers.Activation.
Layer Activation(const std::string& activation, const SimpleOptions& options = {});
Layer ReLU(const SimpleOptions& options = {});  ///< applies nn::relu. As tf.keras.layers.ReLU
/// Applies nn::softmax over the last axis. As tf.keras.layers.Softmax.
Layer Softmax(const SimpleOptions& options = {});
/// Computes x * scale + offset. As tf.keras.layers.Rescaling.
Layer Rescaling(double scale, double offset = 0.0, const SimpleOptions& options = {});
/// Pads height and width with zeros on both sides. As tf.keras.layers.ZeroPadding2D.
Layer ZeroPadding2D(nn::Pair padding = 1, const SimpleOptions& options = {});
/// Options of Embedding().
struct EmbeddingOptions {
  /// Initializer of the table.
  Initializer embeddings_initializer = initializers::random_uniform();
  Shape input_shape{};  ///< shape of one example; for a model's first layer
  std::string name{};   ///< name in the model; default: by the type
  DTypePolicy dtype{};  ///< dtypes; default: the process's policy
};
/// Looks up rows of a table [input_dim, output_dim] by integer inputs. As
/// tf.keras.layers.Embedding.
Layer Embedding(std::int64_t input_dim, std::int64_t output_dim,
                const EmbeddingOptions& options = {});
/// Options of PositionEmbedding().
struct PositionEmbeddingOptions {
  Initializer initializer = initializers::glorot_uniform();  ///< initializer of the vectors
  Shape input_shape{};  ///< shape of one example; for a model's first layer
  std::string name{};   ///< name in the model; default: by the type
  DTypePolicy dtype{};  ///< dtypes; default: the process's policy
};
/// A learned vector per position, [sequence_length, features], broadcast to the shape of the input
/// [..., positions, features], to be added to it. At most `sequence_length` positions. As
/// keras_hub.layers.PositionEmbedding.
Layer PositionEmbedding(std::int64_t sequence_length, const PositionEmbeddingOptions& options = {});
Layer Add(const SimpleOptions& options = {});  ///< sum of several inputs. As tf.keras.layers.Add
/// Product of several inputs. As tf.keras.layers.Multiply.
Layer Multiply(const SimpleOptions& options = {});
/// Options of Concatenate().
struct ConcatenateOptions {
  std::int64_t axis = -1;  ///< axis along which inputs are joined
  std::string name{};      ///< name in the model; default: by the type
  DTypePolicy dtype{};     ///< dtypes; default: the process's policy
};
/// Concatenates several inputs. As tf.keras.layers.Concatenate.
Layer Concatenate(const ConcatenateOptions& options = {});
/// Wraps a function of one tensor; it must not create variables. As tf.keras.layers.Lambda.
Layer Lambda(std::function<Tensor(const Tensor&)> function, const SimpleOptions& options = {});
/// Several layers in sequence as one layer. As torch.nn.Sequential.
Layer Stack(const std::vector<Layer>& layers, const SimpleOptions& options = {});

}  // namespace layers
}  // namespace tandem
