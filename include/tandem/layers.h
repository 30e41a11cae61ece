/// @file
/// Layers: callables with variables, from which models are built. As tf.keras.layers. Images are
/// channels-last: [batch, height, width, channels].
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "tandem/activations.h"
#include "tandem/dtype_policy.h"
#include "tandem/initializers.h"
#include "tandem/layer.h"
#include "tandem/math.h"
#include "tandem/nn.h"
#include "tandem/tensor.h"
#include "tandem/variable.h"

namespace tandem {

/// Layers. As tf.keras.layers.
namespace layers {

/// The name of an activation, as an option: "relu", or the function nn::relu itself.
class ActivationName : public std::string {
 public:
  ActivationName() = default;  ///< the linear activation
  /// A name.
  template <std::convertible_to<std::string> Name>
  ActivationName(const Name& name) : std::string(name) {}  // NOLINT: a name stands for it
  /// @{
  /// A function of tandem/nn.h or tandem/math.h with its default parameters. Throws
  /// InvalidArgumentError for another one, which nn::Module or a layer of your own calls.
  ActivationName(Tensor (*function)(const Tensor&))  // NOLINT: a function stands for it
      : ActivationName(function == nn::relu             ? "relu"
                       : function == nn::relu6          ? "relu6"
                       : function == nn::selu           ? "selu"
                       : function == nn::swish          ? "swish"
                       : function == nn::softplus       ? "softplus"
                       : function == tandem::tanh       ? "tanh"
                       : function == tandem::sigmoid    ? "sigmoid"
                       : function == tandem::exp        ? "exponential"
                       : function == nn::hard_sigmoid   ? "hard_sigmoid"
                       : function == nn::hard_swish     ? "hard_swish"
                       : function == nn::log_sigmoid    ? "log_sigmoid"
                       : function == nn::mish           ? "mish"
                       : function == nn::softsign       ? "softsign"
                       : function == nn::sparse_plus    ? "sparse_plus"
                       : function == nn::sparse_sigmoid ? "sparse_sigmoid"
                       : function == nn::tanh_shrink    ? "tanh_shrink"
                                                        : unknown()) {}
  ActivationName(Tensor (*function)(const Tensor&, std::int64_t))  // NOLINT
      : ActivationName(function == softmax()       ? "softmax"
                       : function == log_softmax() ? "log_softmax"
                       : function == nn::glu       ? "glu"
                                                   : unknown()) {}
  ActivationName(Tensor (*function)(const Tensor&, double))  // NOLINT
      : ActivationName(function == nn::elu           ? "elu"
                       : function == nn::leaky_relu  ? "leaky_relu"
                       : function == nn::celu        ? "celu"
                       : function == nn::squareplus  ? "squareplus"
                       : function == nn::hard_shrink ? "hard_shrink"
                       : function == nn::soft_shrink ? "soft_shrink"
                                                     : unknown()) {}
  ActivationName(Tensor (*function)(const Tensor&, bool))  // NOLINT
      : ActivationName(function == nn::gelu ? "gelu" : unknown()) {}
  /// @}

 private:
  static auto softmax() -> Tensor (*)(const Tensor&, std::int64_t) { return nn::softmax; }
  static auto log_softmax() -> Tensor (*)(const Tensor&, std::int64_t) { return nn::log_softmax; }
  [[noreturn]] static const char* unknown();
};

/// Options of Dense().
struct DenseOptions {
  ActivationName activation{};  ///< the activation; default: linear
  bool use_bias = true;         ///< whether to add a bias
  Initializer kernel_initializer = initializers::glorot_uniform();  ///< of kernels
  Initializer bias_initializer = initializers::zeros();             ///< of biases
  Regularizer kernel_regularizer{};  ///< penalty of kernels; default: none
  Regularizer bias_regularizer{};    ///< penalty of biases; default: none
  Shape input_shape{};               ///< shape of one example; for a model's first layer
  DTypePolicy dtype{};               ///< dtypes; default: the process's policy
  std::string name{};                ///< name in the model; default: by the type
};
/// Fully connected layer: activation(x . kernel + bias) over the last axis. As
/// tf.keras.layers.Dense.
class Dense : public tandem::Layer {
 public:
  Dense() = default;  ///< an undefined layer, to be assigned
  /// A layer with `units` outputs.
  explicit Dense(std::int64_t units, const DenseOptions& options = {});
  /// Dense(10, "relu") is Dense(10, {.activation = "relu"}).
  template <std::convertible_to<std::string> Name>
  Dense(std::int64_t units, const Name& activation)
      : Dense(units, DenseOptions{.activation = activation}) {}
};

/// Options of Conv2D().
struct Conv2DOptions {
  nn::Pair strides = 1;         ///< stride
  nn::WindowPadding padding{};  ///< "valid", "same" or numbers of rows and columns
  nn::Pair dilation_rate = 1;   ///< spacing of the kernel's elements
  std::int64_t groups = 1;      ///< groups of channels that are convolved separately
  ActivationName activation{};  ///< the activation; default: linear
  bool use_bias = true;         ///< whether to add a bias
  Initializer kernel_initializer = initializers::glorot_uniform();  ///< of kernels
  Initializer bias_initializer = initializers::zeros();             ///< of biases
  Regularizer kernel_regularizer{};  ///< penalty of kernels; default: none
  Regularizer bias_regularizer{};    ///< penalty of biases; default: none
  Shape input_shape{};               ///< shape of one example; for a model's first layer
  DTypePolicy dtype{};               ///< dtypes; default: the process's policy
  std::string name{};                ///< name in the model; default: by the type
};
/// 2D convolution. As tf.keras.layers.Conv2D.
class Conv2D : public tandem::Layer {
 public:
  Conv2D() = default;  ///< an undefined layer, to be assigned
  /// A layer with `filters` output channels.
  Conv2D(std::int64_t filters, nn::Pair kernel_size, const Conv2DOptions& options = {});
  /// Conv2D(32, 3, "relu") is Conv2D(32, 3, {.activation = "relu"}).
  template <std::convertible_to<std::string> Name>
  Conv2D(std::int64_t filters, nn::Pair kernel_size, const Name& activation)
      : Conv2D(filters, kernel_size, Conv2DOptions{.activation = activation}) {}
};

/// Options of DepthwiseConv2D().
struct DepthwiseConv2DOptions {
  nn::Pair strides = 1;               ///< stride
  nn::WindowPadding padding{};        ///< "valid", "same" or numbers of rows and columns
  std::int64_t depth_multiplier = 1;  ///< output channels per input channel
  nn::Pair dilation_rate = 1;         ///< spacing of the kernel's elements
  ActivationName activation{};        ///< the activation; default: linear
  bool use_bias = true;               ///< whether to add a bias
  Initializer kernel_initializer = initializers::glorot_uniform();  ///< of kernels
  Initializer bias_initializer = initializers::zeros();             ///< of biases
  Regularizer depthwise_regularizer{};  ///< penalty of kernels; default: none
  Regularizer bias_regularizer{};       ///< penalty of biases; default: none
  Shape input_shape{};                  ///< shape of one example; for a model's first layer
  DTypePolicy dtype{};                  ///< dtypes; default: the process's policy
  std::string name{};                   ///< name in the model; default: by the type
};
/// Depthwise 2D convolution. As tf.keras.layers.DepthwiseConv2D.
class DepthwiseConv2D : public tandem::Layer {
 public:
  DepthwiseConv2D() = default;  ///< an undefined layer, to be assigned
  /// A layer with one kernel per input channel.
  explicit DepthwiseConv2D(nn::Pair kernel_size, const DepthwiseConv2DOptions& options = {});
};

/// Options of MaxPooling2D() and AveragePooling2D().
struct Pooling2DOptions {
  nn::OptionalPair pool_size{};  ///< size of windows, if it is no argument; default: 2
  nn::OptionalPair strides{};    ///< default: pool_size
  nn::WindowPadding padding{};   ///< "valid", "same" or numbers of rows and columns
  Shape input_shape{};           ///< shape of one example; for a model's first layer
  DTypePolicy dtype{};           ///< dtypes; default: the process's policy
  std::string name{};            ///< name in the model; default: by the type
};
/// Max pooling. As tf.keras.layers.MaxPooling2D.
class MaxPooling2D : public tandem::Layer {
 public:
  /// With the size of windows among the options.
  template <std::same_as<Pooling2DOptions> Options = Pooling2DOptions>
  explicit MaxPooling2D(const Options& options)
      : MaxPooling2D(options.pool_size.value_or(2), options) {}
  /// A layer with windows of this size.
  explicit MaxPooling2D(nn::Pair pool_size = 2, const Pooling2DOptions& options = {});
};
/// Average pooling. As tf.keras.layers.AveragePooling2D.
class AveragePooling2D : public tandem::Layer {
 public:
  /// With the size of windows among the options.
  template <std::same_as<Pooling2DOptions> Options = Pooling2DOptions>
  explicit AveragePooling2D(const Options& options)
      : AveragePooling2D(options.pool_size.value_or(2), options) {}
  /// A layer with windows of this size.
  explicit AveragePooling2D(nn::Pair pool_size = 2, const Pooling2DOptions& options = {});
};

/// Options of the layers that pool over all positions.
struct GlobalPooling2DOptions {
  bool keepdims = false;  ///< whether to keep the pooled axes with size 1
  Shape input_shape{};    ///< shape of one example; for a model's first layer
  DTypePolicy dtype{};    ///< dtypes; default: the process's policy
  std::string name{};     ///< name in the model; default: by the type
};
/// The mean over height and width. As tf.keras.layers.GlobalAveragePooling2D.
class GlobalAveragePooling2D : public tandem::Layer {
 public:
  /// A layer.
  explicit GlobalAveragePooling2D(const GlobalPooling2DOptions& options = {});
};
/// The maximum over height and width. As tf.keras.layers.GlobalMaxPooling2D.
class GlobalMaxPooling2D : public tandem::Layer {
 public:
  /// A layer.
  explicit GlobalMaxPooling2D(const GlobalPooling2DOptions& options = {});
};

/// The mean over the positions of sequences [batch, positions, features]. As
/// tf.keras.layers.GlobalAveragePooling1D.
class GlobalAveragePooling1D : public tandem::Layer {
 public:
  /// A layer.
  explicit GlobalAveragePooling1D(const GlobalPooling2DOptions& options = {});
};
/// The maximum over the positions of sequences. As tf.keras.layers.GlobalMaxPooling1D.
class GlobalMaxPooling1D : public tandem::Layer {
 public:
  /// A layer.
  explicit GlobalMaxPooling1D(const GlobalPooling2DOptions& options = {});
};

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
  DTypePolicy dtype{};  ///< dtypes; default: the process's policy
  std::string name{};   ///< name in the model; default: by the type
};
/// Batch normalization over all axes but the last. The moving averages are on-read variables,
/// averaged over replicas. As tf.keras.layers.BatchNormalization.
class BatchNormalization : public tandem::Layer {
 public:
  /// A layer.
  explicit BatchNormalization(const BatchNormalizationOptions& options = {});
};

/// Options of LayerNormalization(). As Keras.
struct LayerNormalizationOptions {
  double epsilon = 1e-3;  ///< added to the variance
  bool center = true;     ///< whether to add beta
  bool scale = true;      ///< whether to multiply by gamma
  Shape input_shape{};    ///< shape of one example; for a model's first layer
  DTypePolicy dtype{};    ///< dtypes; default: the process's policy
  std::string name{};     ///< name in the model; default: by the type
};
/// Layer normalization over the last axis. As tf.keras.layers.LayerNormalization.
class LayerNormalization : public tandem::Layer {
 public:
  /// A layer.
  explicit LayerNormalization(const LayerNormalizationOptions& options = {});
};

/// Options of MultiHeadAttention(). As Keras.
struct MultiHeadAttentionOptions {
  std::int64_t value_dim = 0;  ///< size per head of values; 0: key_dim
  double dropout = 0.0;        ///< dropout rate of the attention weights
  bool use_bias = true;        ///< whether projections have biases
  Initializer kernel_initializer = initializers::glorot_uniform();  ///< of kernels
  Initializer bias_initializer = initializers::zeros();             ///< of biases
  bool use_causal_mask = false;  ///< whether a position attends only to itself and earlier ones
  Shape input_shape{};           ///< shape of one example; for a model's first layer
  DTypePolicy dtype{};           ///< dtypes; default: the process's policy
  std::string name{};            ///< name in the model; default: by the type
};
/// Multi-head attention over sequences [batch, positions, features]. As
/// tf.keras.layers.MultiHeadAttention.
///
/// Projects query, key and value to `num_heads` heads of size `key_dim` and `value_dim`, applies
/// nn::scaled_dot_product_attention(), and projects to the query's number of features. Called with
/// {query} (self-attention), {query, value}, {query, value, key} or {query, value, key,
/// attention_mask}. The mask is bool or 0 and 1 and broadcasts to [batch, queries, keys] or [batch,
/// heads, queries, keys]; true: the query attends to the key. To generate sequences position by
/// position, see KeyValueCache (tandem/generation.h).
///
/// Variables have Keras's names and shapes: "query/kernel" [features, num_heads, key_dim],
/// "query/bias" [num_heads, key_dim], "key/...", "value/...", "attention_output/kernel" [num_heads,
/// value_dim, features], "attention_output/bias".
class MultiHeadAttention : public tandem::Layer {
 public:
  MultiHeadAttention() = default;  ///< an undefined layer, to be assigned
  /// A layer of `num_heads` heads with queries and keys of size `key_dim`.
  MultiHeadAttention(std::int64_t num_heads, std::int64_t key_dim,
                     const MultiHeadAttentionOptions& options = {});
};

/// Options that all layers have.
struct SimpleOptions {
  Shape input_shape{};  ///< shape of one example; for a model's first layer
  DTypePolicy dtype{};  ///< dtypes; default: the process's policy
  std::string name{};   ///< name in the model; default: by the type
};
/// Zeroes inputs with probability `rate` in training and scales the others by 1 / (1 - rate). As
/// tf.keras.layers.Dropout.
class Dropout : public tandem::Layer {
 public:
  Dropout() = default;  ///< an undefined layer, to be assigned
  /// A layer that zeroes this part of its inputs.
  explicit Dropout(double rate, const SimpleOptions& options = {});
};
/// Flattens all axes but the batch. As tf.keras.layers.Flatten.
class Flatten : public tandem::Layer {
 public:
  /// A layer.
  explicit Flatten(const SimpleOptions& options = {});
};
/// Reshapes examples to `target_shape`, without the batch axis; one size may be -1. As
/// tf.keras.layers.Reshape.
class Reshape : public tandem::Layer {
 public:
  Reshape() = default;  ///< an undefined layer, to be assigned
  /// A layer whose results have this shape.
  explicit Reshape(const Shape& target_shape, const SimpleOptions& options = {});
};
/// Applies an activation by name (nn::activation_from_name). As tf.keras.layers.Activation.
class Activation : public tandem::Layer {
 public:
  Activation() = default;  ///< an undefined layer, to be assigned
  /// A layer that applies the activation of this name.
  explicit Activation(const std::string& activation, const SimpleOptions& options = {});
};
/// Options of ReLU(). As Keras.
struct ReLUOptions {
  std::optional<double> max_value{};  ///< the largest result; default: none
  double negative_slope = 0.0;        ///< slope below the threshold
  double threshold = 0.0;             ///< up from which x is the result
  Shape input_shape{};                ///< shape of one example; for a model's first layer
  DTypePolicy dtype{};                ///< dtypes; default: the process's policy
  std::string name{};                 ///< name in the model; default: by the type
};
/// max_value from there on, x down to the threshold, and negative_slope * (x - threshold) below it:
/// with default options nn::relu. As tf.keras.layers.ReLU.
class ReLU : public tandem::Layer {
 public:
  /// A layer. Throws InvalidArgumentError for negative options.
  explicit ReLU(const ReLUOptions& options = {});
};
/// Options of Softmax(). As Keras.
struct SoftmaxOptions {
  std::int64_t axis = -1;  ///< axis whose elements add up to 1
  Shape input_shape{};     ///< shape of one example; for a model's first layer
  DTypePolicy dtype{};     ///< dtypes; default: the process's policy
  std::string name{};      ///< name in the model; default: by the type
};
/// Applies nn::softmax. As tf.keras.layers.Softmax.
class Softmax : public tandem::Layer {
 public:
  /// A layer.
  explicit Softmax(const SoftmaxOptions& options = {});
};
/// x if x > 0, else negative_slope * x. As tf.keras.layers.LeakyReLU.
class LeakyReLU : public tandem::Layer {
 public:
  /// A layer.
  explicit LeakyReLU(double negative_slope = 0.3, const SimpleOptions& options = {});
};
/// x if x > 0, else alpha * (exp(x) - 1). As tf.keras.layers.ELU.
class ELU : public tandem::Layer {
 public:
  /// A layer.
  explicit ELU(double alpha = 1.0, const SimpleOptions& options = {});
};
/// Adds normal noise of this standard deviation in training. As tf.keras.layers.GaussianNoise.
class GaussianNoise : public tandem::Layer {
 public:
  GaussianNoise() = default;  ///< an undefined layer, to be assigned
  /// A layer.
  explicit GaussianNoise(double stddev, const SimpleOptions& options = {});
};
/// Computes x * scale + offset. As tf.keras.layers.Rescaling.
class Rescaling : public tandem::Layer {
 public:
  Rescaling() = default;  ///< an undefined layer, to be assigned
  /// A layer with this scale and offset.
  explicit Rescaling(double scale, double offset = 0.0, const SimpleOptions& options = {});
  /// The same with an offset of 0.
  Rescaling(double scale, const SimpleOptions& options) : Rescaling(scale, 0.0, options) {}
};
/// Options of Embedding().
struct EmbeddingOptions {
  /// Initializer of the table.
  Initializer embeddings_initializer = initializers::random_uniform();
  Regularizer embeddings_regularizer{};  ///< penalty of the table; default: none
  Shape input_shape{};                   ///< shape of one example; for a model's first layer
  DTypePolicy dtype{};                   ///< dtypes; default: the process's policy
  std::string name{};                    ///< name in the model; default: by the type
};
/// Looks up rows of a table [input_dim, output_dim] by integer inputs. As
/// tf.keras.layers.Embedding.
class Embedding : public tandem::Layer {
 public:
  Embedding() = default;  ///< an undefined layer, to be assigned
  /// A table of `input_dim` rows with `output_dim` elements.
  Embedding(std::int64_t input_dim, std::int64_t output_dim, const EmbeddingOptions& options = {});
};
/// Options of PositionEmbedding().
struct PositionEmbeddingOptions {
  Initializer initializer = initializers::glorot_uniform();  ///< initializer of the vectors
  Shape input_shape{};  ///< shape of one example; for a model's first layer
  DTypePolicy dtype{};  ///< dtypes; default: the process's policy
  std::string name{};   ///< name in the model; default: by the type
};
/// A learned vector per position, [sequence_length, features], broadcast to the shape of the input
/// [..., positions, features], to be added to it. At most `sequence_length` positions. As
/// keras_hub.layers.PositionEmbedding.
class PositionEmbedding : public tandem::Layer {
 public:
  PositionEmbedding() = default;  ///< an undefined layer, to be assigned
  /// A layer for sequences of at most this length.
  explicit PositionEmbedding(std::int64_t sequence_length,
                             const PositionEmbeddingOptions& options = {});
};
/// Sum of several inputs. As tf.keras.layers.Add.
class Add : public tandem::Layer {
 public:
  /// A layer.
  explicit Add(const SimpleOptions& options = {});
};
/// Product of several inputs. As tf.keras.layers.Multiply.
class Multiply : public tandem::Layer {
 public:
  /// A layer.
  explicit Multiply(const SimpleOptions& options = {});
};
/// Difference of two inputs. As tf.keras.layers.Subtract.
class Subtract : public tandem::Layer {
 public:
  /// A layer.
  explicit Subtract(const SimpleOptions& options = {});
};
/// Mean of several inputs. As tf.keras.layers.Average.
class Average : public tandem::Layer {
 public:
  /// A layer.
  explicit Average(const SimpleOptions& options = {});
};
/// The largest of several inputs, element by element. As tf.keras.layers.Maximum.
class Maximum : public tandem::Layer {
 public:
  /// A layer.
  explicit Maximum(const SimpleOptions& options = {});
};
/// Options of Concatenate().
struct ConcatenateOptions {
  std::int64_t axis = -1;  ///< axis along which inputs are joined
  DTypePolicy dtype{};     ///< dtypes; default: the process's policy
  std::string name{};      ///< name in the model; default: by the type
};
/// Concatenates several inputs. As tf.keras.layers.Concatenate.
class Concatenate : public tandem::Layer {
 public:
  /// A layer.
  explicit Concatenate(const ConcatenateOptions& options = {});
};
/// Wraps a function of one tensor; it must not create variables. As tf.keras.layers.Lambda.
class Lambda : public tandem::Layer {
 public:
  Lambda() = default;  ///< an undefined layer, to be assigned
  /// A layer that calls `function`.
  explicit Lambda(std::function<Tensor(const Tensor&)> function, const SimpleOptions& options = {});
};
/// Several layers in sequence as one layer. As torch.nn.Sequential.
class Stack : public tandem::Layer {
 public:
  Stack() = default;  ///< an undefined layer, to be assigned
  /// @{
  /// These layers in sequence. Throws InvalidArgumentError if there are none.
  explicit Stack(const std::vector<tandem::Layer>& layers, const SimpleOptions& options = {});
  explicit Stack(std::initializer_list<tandem::Layer> layers, const SimpleOptions& options = {})
      : Stack(std::vector<tandem::Layer>(layers), options) {}
  /// @}
};

/// Options of layers::Layer::add_weight(). As the arguments of Keras's add_weight.
struct WeightOptions {
  Shape shape{};                                             ///< shape; required
  Initializer initializer = initializers::glorot_uniform();  ///< of the value
  std::optional<DType> dtype{};  ///< default: that of the layer's dtype policy
  bool trainable = true;         ///< whether training updates it
  Regularizer regularizer{};     ///< penalty of the value; default: none
  std::string name{};            ///< default: "weight", "weight_1", ...
};

class CallOfLayer;

/// Base class of your own layers, with Keras's signatures: override build() and call(). As
/// tf.keras.layers.Layer.
/// @code
/// class Linear : public td::layers::Layer {
///  public:
///   explicit Linear(std::int64_t units) : units_(units) {}
///   void build(const td::Shape& input_shape) override {
///     w_ = add_weight({.shape = {input_shape[-1], units_}, .name = "w"});
///   }
///   td::Tensor call(const td::Tensor& inputs) override { return td::matmul(inputs, w_); }
///
///  private:
///   std::int64_t units_;
///   td::Variable w_;
/// };
/// td::Sequential model({Linear(32), td::layers::ReLU(), Linear(1)});
/// @endcode
///
/// An object of the class is called itself (`layer(x)`), or used where a td::Layer is expected,
/// which holds a copy of it. Copies are one layer: they share the variables, the name and the
/// settings, whichever is built first; build() runs once for each copy and add_weight() gives the
/// later ones the variables of the first. All other members are copied. To share them too, make
/// the layer by std::make_shared<Linear>(32).
///
/// Layers that call() uses become child layers when call() first runs, in the order of their first
/// use. When the layer is built and the sizes of its inputs are known, call() runs once on zeros
/// with a batch of one for this. It must use all layers that have variables then, in training and
/// outside it, or children() must list them.
class Layer : public LayerBase {
 public:
  Layer();                                       ///< a layer named by its model
  explicit Layer(const SimpleOptions& options);  ///< a layer with these options
  /// A layer of this name.
  template <std::convertible_to<std::string> Name>
  explicit Layer(const Name& name) : Layer(SimpleOptions{.name = name}) {}

  /// @{
  /// Creates the variables, for one input or several (batch axis -1). Default: none.
  virtual void build(const Shape& input_shape);
  virtual void build(const std::vector<Shape>& input_shapes);
  /// @}
  /// @{
  /// Computes the result, from one input or several. Override one of them. Throws
  /// UnimplementedError.
  virtual Tensor call(const Tensor& inputs);
  virtual Tensor call(const std::vector<Tensor>& inputs);
  /// @}
  /// @{
  /// The same, where `training` is CallOptions::training.
  virtual Tensor call(const Tensor& inputs, bool training);
  virtual Tensor call(const std::vector<Tensor>& inputs, bool training);
  /// @}
  /// The shape of the result, for the input's shape (batch axis -1). Default: that of a call() on
  /// zeros, for which the layer is built.
  virtual Shape compute_output_shape(const Shape& input_shape) const;

  /// @{
  /// As those of a td::Layer.
  Tensor operator()(const Tensor& input) const;
  Tensor operator()(const Tensor& input, const CallOptions& options) const;
  template <std::same_as<bool> Training>
  Tensor operator()(const Tensor& input, Training training) const {
    return (*this)(input, CallOptions{.training = training});
  }
  Tensor operator()(TensorList inputs) const;
  Tensor operator()(TensorList inputs, const CallOptions& options) const;
  void train(bool training = true) { set_training(training); }
  void eval() { set_training(false); }
  /// @}
  /// In a functional model write td::Layer(Linear(32))(x): the model keeps the layer.
  SymbolicInput operator()(const SymbolicInput& input) const = delete;

  /// The name of the class in snake case.
  std::string kind() const override;
  /// The layers that call() has used.
  std::vector<tandem::Layer> children() const override;
  void build(std::span<const Shape> input_shapes) final;                          ///< calls build()
  Tensor call(std::span<const Tensor> inputs, const CallOptions& options) final;  ///< calls call()
  Shape output_shape(
      std::span<const Shape> input_shapes) const final;  ///< calls compute_output_shape()

 protected:
  using LayerBase::add_weight;
  /// Creates a variable, in build(). As Keras's add_weight.
  Variable add_weight(const WeightOptions& options);
  /// The same with the name and the shape as arguments.
  Variable add_weight(const std::string& name, const Shape& shape, WeightOptions options = {}) {
    options.name = name;
    options.shape = shape;
    return add_weight(options);
  }

 private:
  friend class CallOfLayer;
  struct Found;
  void adopt(const tandem::Layer& child);
  void require_known(const tandem::Layer& child);
  bool has(const tandem::Layer& child) const;
  std::function<Tensor(TensorList)> trial() const;

  std::shared_ptr<Found> found_;
};

}  // namespace layers
}  // namespace tandem
