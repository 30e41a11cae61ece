// Layers: callables with variables, the parts of models.
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

#include "tandem/initializers.h"
#include "tandem/nn.h"
#include "tandem/tensor.h"
#include "tandem/variable.h"

namespace tandem {

struct CallOptions {
  bool training = false;  // dropout drops, batch normalisation uses the batch's moments
};

class Layer;
class SymbolicInput;  // tandem/model.h

// What users derive from to write a layer or a model of their own. A layer makes its variables in
// build(), which runs once, before the first call, with the shape of what comes in (batch axis -1).
//
// Thread safety: replicas may call a layer side by side. Everything that sets it up (names, paths,
// variables) belongs to one thread; a layer that has variables must be built before replicas call
// it.
class LayerBase {
 public:
  explicit LayerBase(std::string name) : name_(std::move(name)) {}
  virtual ~LayerBase() = default;
  LayerBase(const LayerBase&) = delete;
  LayerBase& operator=(const LayerBase&) = delete;

  // The type's name in snake case ("dense"), from which unique names in a model are made.
  virtual std::string kind() const = 0;
  // Makes the variables, with add_weight(). The default makes those of the layers inside, by
  // call()ing this one on zeros (float32, a batch of one) wherever the sizes are known.
  virtual void build(std::span<const Shape> input_shapes);
  virtual Tensor call(std::span<const Tensor> inputs, const CallOptions& options) = 0;
  // The shape of the result for inputs of these shapes (batch axis -1), for summaries and symbolic
  // calls. Throws InvalidArgumentError "[dense] expected ..., got ...", naming the layer. May be
  // asked before the layer is built.
  virtual Shape output_shape(std::span<const Shape> input_shapes) const = 0;
  // The layers inside this one, in the order in which their variables are listed.
  virtual std::vector<Layer> children() const;

  // Empty until the layer is given a name or becomes part of a model.
  const std::string& name() const { return name_; }
  // The name, or the kind while there is none; for messages.
  std::string label() const { return name_.empty() ? kind() : name_; }
  void set_name(std::string name) { name_ = std::move(name); }
  bool built() const { return built_.load(std::memory_order_acquire); }
  // The shape of one example that the layer was told to expect, without the batch axis; unset if
  // not.
  const Shape& declared_input_shape() const { return declared_input_shape_; }
  void declare_input_shape(const Shape& shape) { declared_input_shape_ = shape; }
  bool trainable() const { return trainable_; }
  /// Also of the layers inside, as in Keras: what freezes a model freezes all of its layers.
  void set_trainable(bool trainable);
  // This layer's own variables, its children's not included.
  const std::vector<Variable>& own_variables() const { return variables_; }
  // Where the layer is in its model ("block_1/dense"): what the names of its variables begin with.
  // Empty for the model itself, whose own variables are named by its label().
  const std::string& path() const { return path_; }
  void set_path(std::string path) { path_ = std::move(path); }

  // Builds once: gives the children unique names and their paths, runs build(), built() from then
  // on. Throws InvalidArgumentError when the shapes are not those that the layer was declared for,
  // and when two children were given one name.
  void ensure_built(std::span<const Shape> input_shapes);

 protected:
  // A new variable of this layer, named "path/name", through the open strategy scope; refused
  // inside a strategy's replicas (FailedPreconditionError).
  Variable add_weight(const std::string& name, const Shape& shape, const Initializer& initializer,
                      VariableOptions options = {});

 private:
  std::string name_;
  std::string path_;
  Shape declared_input_shape_;
  std::vector<Variable> variables_;
  std::mutex build_mutex_;
  std::atomic<bool> built_ = false;
  bool trainable_ = true;
};

// A shared handle on a layer; a layer used twice shares its variables.
class Layer {
 public:
  Layer() = default;
  template <std::derived_from<LayerBase> L>
  Layer(std::shared_ptr<L> layer)
      : layer_(std::move(layer)) {}  // NOLINT: from make_shared<MyLayer>()

  bool defined() const { return layer_ != nullptr; }
  LayerBase& base() const;  // FailedPreconditionError when undefined
  const std::shared_ptr<LayerBase>& shared() const { return layer_; }
  const std::string& name() const { return base().name(); }
  bool trainable() const { return base().trainable(); }
  /// Whether training changes the layer and the layers inside it.
  void set_trainable(bool trainable) const { base().set_trainable(trainable); }

  /// Errors of operations inside the call name the innermost layer ("[block/dense_1] ...") and say
  /// what it was called with.
  Tensor operator()(const Tensor& input, const CallOptions& options = {}) const;
  /// layer(x, true): layer(x, {.training = true}).
  template <std::same_as<bool> Training>
  Tensor operator()(const Tensor& input, Training training) const {
    return (*this)(input, CallOptions{.training = training});
  }
  Tensor operator()(TensorList inputs, const CallOptions& options = {}) const;
  // In a functional model: the symbolic result of calling this layer on symbolic inputs.
  SymbolicInput operator()(const SymbolicInput& input) const;
  SymbolicInput operator()(const std::vector<SymbolicInput>& inputs) const;

  // All variables, children's included, in the order of creation; and the trainable ones.
  std::vector<Variable> variables() const;
  std::vector<Variable> trainable_variables() const;
  std::vector<Variable> non_trainable_variables() const;

 private:
  std::shared_ptr<LayerBase> layer_;
};

namespace layers {

struct DenseOptions {
  std::string activation{};
  bool use_bias = true;
  Initializer kernel_initializer = initializers::glorot_uniform();
  Initializer bias_initializer = initializers::zeros();
  Shape input_shape{};
  std::string name{};
};
// activation(x . kernel + bias) over the last axis.
Layer Dense(std::int64_t units, const DenseOptions& options = {});
/// Dense(10, "relu")
template <std::convertible_to<std::string> Activation>
Layer Dense(std::int64_t units, const Activation& activation) {
  return Dense(units, DenseOptions{.activation = activation});
}

struct Conv2DOptions {
  std::string activation{};
  nn::Pair strides = 1;
  std::string padding = "valid";
  nn::Pair dilation_rate = 1;
  std::int64_t groups = 1;
  bool use_bias = true;
  Initializer kernel_initializer = initializers::glorot_uniform();
  Initializer bias_initializer = initializers::zeros();
  Shape input_shape{};
  std::string name{};
};
Layer Conv2D(std::int64_t filters, nn::Pair kernel_size, const Conv2DOptions& options = {});
/// Conv2D(32, 3, "relu")
template <std::convertible_to<std::string> Activation>
Layer Conv2D(std::int64_t filters, nn::Pair kernel_size, const Activation& activation) {
  return Conv2D(filters, kernel_size, Conv2DOptions{.activation = activation});
}

struct DepthwiseConv2DOptions {
  std::string activation{};
  nn::Pair strides = 1;
  std::string padding = "valid";
  nn::Pair dilation_rate = 1;
  std::int64_t depth_multiplier = 1;
  bool use_bias = true;
  Initializer kernel_initializer = initializers::glorot_uniform();
  Initializer bias_initializer = initializers::zeros();
  Shape input_shape{};
  std::string name{};
};
Layer DepthwiseConv2D(nn::Pair kernel_size, const DepthwiseConv2DOptions& options = {});

struct Pooling2DOptions {
  std::optional<nn::Pair> strides{};  // not given: the window
  std::string padding = "valid";
  Shape input_shape{};
  std::string name{};
};
Layer MaxPooling2D(nn::Pair pool_size = 2, const Pooling2DOptions& options = {});
Layer AveragePooling2D(nn::Pair pool_size = 2, const Pooling2DOptions& options = {});

struct GlobalPooling2DOptions {
  bool keepdims = false;
  Shape input_shape{};
  std::string name{};
};
Layer GlobalAveragePooling2D(const GlobalPooling2DOptions& options = {});
Layer GlobalMaxPooling2D(const GlobalPooling2DOptions& options = {});

struct BatchNormalizationOptions {
  double momentum = 0.99;
  double epsilon = 1e-3;
  bool center = true;
  bool scale = true;
  Shape input_shape{};
  std::string name{};
};
// Over all axes but the last. The moving moments are on-read variables, averaged over replicas.
Layer BatchNormalization(const BatchNormalizationOptions& options = {});

struct LayerNormalizationOptions {
  double epsilon = 1e-3;
  bool center = true;
  bool scale = true;
  Shape input_shape{};
  std::string name{};
};
Layer LayerNormalization(const LayerNormalizationOptions& options = {});  // over the last axis

struct MultiHeadAttentionOptions {
  std::int64_t value_dim = 0;  // of a head; 0: key_dim
  double dropout = 0.0;        // of the weights, in training
  bool use_bias = true;
  bool use_causal_mask = false;  // a position sees itself and those before it
  Initializer kernel_initializer = initializers::glorot_uniform();
  Initializer bias_initializer = initializers::zeros();
  Shape input_shape{};
  std::string name{};
};
// Keras' layer, over sequences [batch, positions, features]: query, key and value are projected to
// `num_heads` heads of `key_dim` and `value_dim`, attended (nn::scaled_dot_product_attention), and
// projected to as many features as the query has. Called with {query}, which then is key and value
// too; {query, value}; {query, value, key}; or {query, value, key, attention_mask}, the mask bool
// or 1 and 0, [batch, queries, keys] or [batch, heads, queries, keys], broadcast, true where a
// query may see a key. Variables have Keras' names and shapes: "query/kernel" [features, num_heads,
// key_dim], "query/bias" [num_heads, key_dim], "key/...", "value/...", "attention_output/kernel"
// [num_heads, value_dim, features], "attention_output/bias".
Layer MultiHeadAttention(std::int64_t num_heads, std::int64_t key_dim,
                         const MultiHeadAttentionOptions& options = {});

struct SimpleOptions {
  Shape input_shape{};
  std::string name{};
};
Layer Dropout(double rate, const SimpleOptions& options = {});
Layer Flatten(const SimpleOptions& options = {});
// The shape of one example, without the batch axis; one size may be -1.
Layer Reshape(const Shape& target_shape, const SimpleOptions& options = {});
Layer Activation(const std::string& activation, const SimpleOptions& options = {});
Layer ReLU(const SimpleOptions& options = {});
Layer Softmax(const SimpleOptions& options = {});
Layer Rescaling(double scale, double offset = 0.0, const SimpleOptions& options = {});
Layer ZeroPadding2D(nn::Pair padding = 1, const SimpleOptions& options = {});
struct EmbeddingOptions {
  Initializer embeddings_initializer = initializers::random_uniform();
  Shape input_shape{};
  std::string name{};
};
Layer Embedding(std::int64_t input_dim, std::int64_t output_dim,
                const EmbeddingOptions& options = {});
struct PositionEmbeddingOptions {
  Initializer initializer = initializers::glorot_uniform();
  Shape input_shape{};
  std::string name{};
};
// As in KerasHub: a learned vector a position, [sequence_length, features], in the shape of the
// input [..., positions, features], to be added to it. At most `sequence_length` positions.
Layer PositionEmbedding(std::int64_t sequence_length, const PositionEmbeddingOptions& options = {});
// Of several inputs, in functional models.
Layer Add(const SimpleOptions& options = {});
Layer Multiply(const SimpleOptions& options = {});
struct ConcatenateOptions {
  std::int64_t axis = -1;
  std::string name{};
};
Layer Concatenate(const ConcatenateOptions& options = {});
// A function of one tensor as a layer. It must not make variables.
Layer Lambda(std::function<Tensor(const Tensor&)> function, const SimpleOptions& options = {});
// Layers one behind the other, as one layer.
Layer Stack(const std::vector<Layer>& layers, const SimpleOptions& options = {});

}  // namespace layers
}  // namespace tandem
