// Dense, a matrix product over the last axis, and Embedding, a table lookup.
#include "nn/layer_base.h"
#include "tandem/math.h"

namespace tandem::layers {
namespace {

class DenseLayer final : public UnaryLayer {
 public:
  DenseLayer(std::int64_t units, const DenseOptions& options)
      : UnaryLayer("dense", options),
        units_(units),
        options_(options),
        activation_(nn::activation_from_name(options.activation)) {
    if (units <= 0)
      fail<InvalidArgumentError>("[dense] expected a positive number of units, got {}", units);
  }
  bool makes_logits() const override { return activation_ == nn::Activation::kLinear; }

 private:
  void make_weights(const Shape& x) override {
    static_cast<void>(infer(x));
    kernel_ = add_weight("kernel", {known_size(x, x.rank() - 1, "features"), units_},
                         options_.kernel_initializer);
    regularize(kernel_, options_.kernel_regularizer);
    if (!options_.use_bias) return;
    bias_ = add_weight("bias", {units_}, options_.bias_initializer);
    regularize(bias_, options_.bias_regularizer);
  }

  Tensor run(const Tensor& x, const CallOptions&) override {
    return nn::dense(x, kernel_, options_.use_bias ? bias_.value() : Tensor(), activation_);
  }

  Shape infer(const Shape& x) const override {
    if (x.rank() < 2) reject("an input of shape (batch, ..., features)", x);
    const int last = x.rank() - 1;
    if (kernel_.defined() && x.word(last) >= 0 && x.word(last) != kernel_.shape().word(0))
      reject(fmt::format("an input whose last axis has {} elements", kernel_.shape().word(0)), x);
    Shape result = x;
    result.set(last, units_);
    return result;
  }

  std::int64_t units_;
  DenseOptions options_;
  nn::Activation activation_;
  Variable kernel_;
  Variable bias_;
};

class EmbeddingLayer final : public UnaryLayer {
 public:
  bool casts_inputs() const override { return false; }  // indices may be floating

  EmbeddingLayer(std::int64_t input_dim, std::int64_t output_dim, const EmbeddingOptions& options)
      : UnaryLayer("embedding", options),
        table_shape_{input_dim, output_dim},
        initializer_(options.embeddings_initializer),
        regularizer_(options.embeddings_regularizer) {
    if (input_dim <= 0 || output_dim <= 0)
      fail<InvalidArgumentError>("[embedding] expected positive sizes, got {} and {}", input_dim,
                                 output_dim);
  }

 private:
  void make_weights(const Shape&) override {
    table_ = add_weight("embeddings", table_shape_, initializer_);
    regularize(table_, regularizer_);
  }

  Tensor run(const Tensor& x, const CallOptions&) override {
    const bool indices = x.dtype() == int32 || x.dtype() == int64;
    return nn::embedding_lookup(table_, indices ? x : cast(x, int32));
  }

  Shape infer(const Shape& x) const override {
    Dims sizes = x.words();
    sizes.push_back(table_shape_[1]);
    return Shape(sizes);
  }

  Shape table_shape_;
  Initializer initializer_;
  Regularizer regularizer_;
  Variable table_;
};

}  // namespace

Dense::Dense(std::int64_t units, const DenseOptions& options)
    : tandem::Layer(std::make_shared<DenseLayer>(units, options)) {}

Embedding::Embedding(std::int64_t input_dim, std::int64_t output_dim,
                     const EmbeddingOptions& options)
    : tandem::Layer(std::make_shared<EmbeddingLayer>(input_dim, output_dim, options)) {}

}  // namespace tandem::layers
