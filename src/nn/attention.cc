// MultiHeadAttention, and PositionEmbedding, which adds positions to its inputs.
#include "nn/key_value_cache.h"
#include "nn/layer_base.h"
#include "tandem/array.h"
#include "tandem/math.h"

namespace tandem::layers {
namespace {

constexpr const char* kSequenceAxes = "(batch, positions, features)";

// Projects features to [heads, depth]. The variables have Keras's shapes; the matrix product uses
// them flattened.
struct Projection {
  Variable kernel, bias;

  Tensor to_heads(const Tensor& x) const {
    const Shape& size = kernel.shape();
    const Tensor y =
        nn::dense(x, reshape(kernel, {size.word(0), size.word(1) * size.word(2)}),
                  bias.defined() ? reshape(bias, {size.word(1) * size.word(2)}) : Tensor());
    return reshape(y, {x.shape().word(0), x.shape().word(1), size.word(1), size.word(2)});
  }
  Tensor from_heads(const Tensor& x) const {
    const Shape& size = kernel.shape();
    return nn::dense(
        reshape(x, {x.shape().word(0), x.shape().word(1), size.word(0) * size.word(1)}),
        reshape(kernel, {size.word(0) * size.word(1), size.word(2)}),
        bias.defined() ? bias.value() : Tensor());
  }
};

class MultiHeadAttentionLayer final : public KindLayer {
 public:
  MultiHeadAttentionLayer(std::int64_t num_heads, std::int64_t key_dim,
                          const MultiHeadAttentionOptions& options)
      : KindLayer("multi_head_attention", options),
        heads_(num_heads),
        key_dim_(key_dim),
        value_dim_(options.value_dim == 0 ? key_dim : options.value_dim),
        options_(options) {
    if (num_heads <= 0 || key_dim <= 0 || value_dim_ <= 0)
      fail<InvalidArgumentError>(
          "[{}] expected positive num_heads, key_dim and value_dim, got {}, {} and {}", label(),
          num_heads, key_dim, value_dim_);
    if (!(options.dropout >= 0.0 && options.dropout < 1.0))
      fail<InvalidArgumentError>("[{}] expected a dropout in [0, 1), got {}", label(),
                                 options.dropout);
  }

  void build(std::span<const Shape> input_shapes) override {
    static_cast<void>(output_shape(input_shapes));
    const Shape &query = input_shapes[0], &value = value_of(input_shapes);
    const std::int64_t features = known_features(query);
    query_ = make("query", {features, heads_, key_dim_}, {heads_, key_dim_});
    key_ =
        make("key", {known_features(key_of(input_shapes)), heads_, key_dim_}, {heads_, key_dim_});
    value_ = make("value", {known_features(value), heads_, value_dim_}, {heads_, value_dim_});
    output_ = make("attention_output", {heads_, value_dim_, features}, {features});
  }

  Tensor call(std::span<const Tensor> inputs, const CallOptions& options) override {
    check(inputs.size(), [&](std::size_t i) -> const Shape& { return inputs[i].shape(); });
    nn::AttentionOptions attention{.causal = options_.use_causal_mask,
                                   .dropout_rate = options.training ? options_.dropout : 0.0};
    if (KeyValueCache::Impl* const cache = KeyValueCache::Impl::open())
      return call_with(*cache, inputs);
    if (inputs.size() == 4) attention.mask = mask_of(inputs[3]);
    return output_.from_heads(
        nn::scaled_dot_product_attention(query_.to_heads(inputs[0]), key_.to_heads(key_of(inputs)),
                                         value_.to_heads(value_of(inputs)), attention));
  }

  Shape output_shape(std::span<const Shape> input_shapes) const override {
    check(input_shapes.size(), [&](std::size_t i) -> const Shape& { return input_shapes[i]; });
    return input_shapes[0];
  }

 private:
  template <class T>
  static const T& value_of(std::span<const T> inputs) {
    return inputs[inputs.size() > 1 ? 1 : 0];
  }
  template <class T>
  static const T& key_of(std::span<const T> inputs) {
    return inputs.size() > 2 ? inputs[2] : value_of(inputs);
  }

  // `inputs`: positions that follow those of the cache.
  Tensor call_with(KeyValueCache::Impl& cache, std::span<const Tensor> inputs) {
    if (inputs.size() != 1 || !options_.use_causal_mask)
      fail<InvalidArgumentError>(
          "[{}] expected one input and use_causal_mask in a call with a KeyValueCache, got {} "
          "input{}, {} use_causal_mask",
          label(), inputs.size(), inputs.size() == 1 ? "" : "s",
          options_.use_causal_mask ? "with" : "without");
    const Tensor& x = inputs[0];
    if (x.shape().word(0) < 0 || x.shape().word(1) < 0)
      reject("a known batch and number of positions in a call with a KeyValueCache", x.shape());
    const auto attended = cache.add(*this, key_.to_heads(x), value_.to_heads(x));
    return output_.from_heads(nn::scaled_dot_product_attention(
        query_.to_heads(x), attended.keys, attended.values, {.mask = attended.mask}));
  }

  static Tensor mask_of(const Tensor& given) {
    const Tensor mask = given.dtype() == bool_ ? given : cast(given, bool_);
    return mask.rank() == 3 ? expand_dims(mask, 1) : mask;  // the same for every head
  }

  std::int64_t known_features(const Shape& x) const {
    if (x.word(2) < 0) reject("a known number of features", x);
    return x.word(2);
  }

  Projection make(const std::string& name, const Shape& kernel, const Shape& bias) {
    Projection made;
    made.kernel = add_weight(name + "/kernel", kernel, options_.kernel_initializer);
    if (options_.use_bias) made.bias = add_weight(name + "/bias", bias, options_.bias_initializer);
    return made;
  }

  // Checks the shapes that depend on the layer, so that errors name it. The operation checks the
  // rest.
  template <class ShapeAt>
  void check(std::size_t count, const ShapeAt& shape_at) const {
    if (count < 1 || count > 4)
      fail<InvalidArgumentError>(
          "[{}] expected 1 to 4 inputs {{query, value, key, attention_mask}}, got {}", label(),
          count);
    const Projection* const projections[] = {&query_, &value_, &key_};
    for (std::size_t i = 0; i < std::min<std::size_t>(count, 3); ++i) {
      const Shape& x = shape_at(i);
      if (x.rank() != 3) reject(std::string("inputs of shape ") + kSequenceAxes, x);
      const Variable& kernel = projections[i]->kernel;
      if (kernel.defined() && x.word(2) >= 0 && x.word(2) != kernel.shape().word(0))
        reject(fmt::format("an input whose last axis has {} elements", kernel.shape().word(0)), x);
    }
  }

  std::int64_t heads_, key_dim_, value_dim_;
  MultiHeadAttentionOptions options_;
  Projection query_, key_, value_, output_;
};

class PositionEmbeddingLayer final : public UnaryLayer {
 public:
  PositionEmbeddingLayer(std::int64_t sequence_length, const PositionEmbeddingOptions& options)
      : UnaryLayer("position_embedding", options),
        length_(sequence_length),
        initializer_(options.initializer) {
    if (sequence_length <= 0)
      fail<InvalidArgumentError>("[{}] expected a positive sequence length, got {}", label(),
                                 sequence_length);
  }

 private:
  void make_weights(const Shape& x) override {
    static_cast<void>(infer(x));
    table_ =
        add_weight("embeddings", {length_, known_size(x, x.rank() - 1, "features")}, initializer_);
  }

  Tensor run(const Tensor& x, const CallOptions&) override {
    const Shape& shape = x.shape();
    const std::int64_t positions = shape.word(-2);
    const Tensor table = table_.value();
    if (KeyValueCache::Impl* const cache = KeyValueCache::Impl::open())
      return broadcast_to(gather(table, cache->next_positions(*this, positions)), shape);
    return broadcast_to(positions == length_ ? table : slice_rows(table, 0, positions), shape);
  }

  Shape infer(const Shape& x) const override {
    if (x.rank() < 3) reject("an input of shape (batch, ..., positions, features)", x);
    if (x.word(-2) > length_) reject(fmt::format("at most {} positions", length_), x);
    if (table_.defined() && x.word(-1) >= 0 && x.word(-1) != table_.shape().word(1))
      reject(fmt::format("an input whose last axis has {} elements", table_.shape().word(1)), x);
    return x;
  }

  std::int64_t length_;
  Initializer initializer_;
  Variable table_;
};

}  // namespace

MultiHeadAttention::MultiHeadAttention(std::int64_t num_heads, std::int64_t key_dim,
                                       const MultiHeadAttentionOptions& options)
    : tandem::Layer(std::make_shared<MultiHeadAttentionLayer>(num_heads, key_dim, options)) {}

PositionEmbedding::PositionEmbedding(std::int64_t sequence_length,
                                     const PositionEmbeddingOptions& options)
    : tandem::Layer(std::make_shared<PositionEmbeddingLayer>(sequence_length, options)) {}

}  // namespace tandem::layers
