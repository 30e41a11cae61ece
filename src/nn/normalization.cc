// Batch and layer normalisation.
#include <algorithm>

#include "nn/layer_base.h"
#include "tandem/autodiff.h"
#include "tandem/creation.h"
#include "tandem/math.h"

namespace tandem::layers {
namespace {

// The common part of both layers: gamma and beta over the last axis. If one is switched off, the
// operation gets a constant variable instead. Like other variables, it has one copy per replica,
// but it is not listed among the layer's variables.
class NormalizationLayer : public UnaryLayer {
 public:
  bool casts_variables() const final { return false; }

  template <class Options>
  NormalizationLayer(const char* kind, const Options& options)
      : UnaryLayer(kind, options),
        epsilon_(options.epsilon),
        scale_(options.scale),
        center_(options.center) {
    if (!(epsilon_ > 0.0))
      fail<InvalidArgumentError>("[{}] expected a positive epsilon, got {}", label(), epsilon_);
  }

 protected:
  void make_weights(const Shape& x) override {
    static_cast<void>(infer(x));
    const Shape shape{known_size(x, x.rank() - 1, "channels")};
    gamma_ = scale_ ? add_weight("gamma", shape, initializers::ones())
                    : Variable(ones(shape), {.trainable = false});
    beta_ = center_ ? add_weight("beta", shape, initializers::zeros())
                    : Variable(zeros(shape), {.trainable = false});
  }

  Shape infer(const Shape& x) const final {
    if (x.rank() < 2) reject("an input of shape (batch, ..., channels)", x);
    const int last = x.rank() - 1;
    if (gamma_.defined() && x[last] >= 0 && x[last] != gamma_.shape()[0])
      reject(fmt::format("an input whose last axis has {} elements", gamma_.shape()[0]), x);
    return x;
  }

  double epsilon_;
  Variable gamma_;
  Variable beta_;

 private:
  bool scale_;
  bool center_;
};

class BatchNormalizationLayer final : public NormalizationLayer {
 public:
  explicit BatchNormalizationLayer(const BatchNormalizationOptions& options)
      : NormalizationLayer("batch_normalization", options), momentum_(options.momentum) {
    if (!(momentum_ >= 0.0 && momentum_ <= 1.0))
      fail<InvalidArgumentError>("[batch_normalization] expected a momentum in [0, 1], got {}",
                                 momentum_);
  }

 private:
  void make_weights(const Shape& x) override {
    NormalizationLayer::make_weights(x);
    const VariableOptions moment{.trainable = false,
                                 .synchronization = VariableSynchronization::kOnRead,
                                 .aggregation = VariableAggregation::kMean};
    mean_ = add_weight("moving_mean", gamma_.shape(), initializers::zeros(), moment,
                       at_least_float32());
    variance_ = add_weight("moving_variance", gamma_.shape(), initializers::ones(), moment,
                           at_least_float32());
  }

  // A layer that is not trainable runs in inference mode, as in Keras.
  Tensor run(const Tensor& x, const CallOptions& options) override {
    const Shape& shape = x.shape();
    const bool empty = std::find(shape.begin(), shape.end(), 0) != shape.end();
    if (!options.training || !trainable() || empty)
      return nn::batch_norm_inference(x, gamma_, beta_, mean_, variance_, epsilon_);
    nn::BatchNormResult result = nn::batch_norm_training(x, gamma_, beta_, epsilon_);
    NoGradScope no_grad;
    follow(mean_, result.mean);
    follow(variance_, result.variance);
    return std::move(result.y);
  }

  // Moving averages change by less than the resolution of 16-bit types.
  DType at_least_float32() const {
    return dtype_policy().variable_dtype() == float64 ? float64 : float32;
  }

  void follow(Variable& moving, const Tensor& batch) const {
    moving.assign(moving.value() * momentum_ + batch * (1.0 - momentum_));
  }

  double momentum_;
  Variable mean_;
  Variable variance_;
};

class LayerNormalizationLayer final : public NormalizationLayer {
 public:
  explicit LayerNormalizationLayer(const LayerNormalizationOptions& options)
      : NormalizationLayer("layer_normalization", options) {}

 private:
  Tensor run(const Tensor& x, const CallOptions&) override {
    return nn::layer_norm(x, gamma_, beta_, epsilon_);
  }
};

}  // namespace

Layer BatchNormalization(const BatchNormalizationOptions& options) {
  return std::make_shared<BatchNormalizationLayer>(options);
}

Layer LayerNormalization(const LayerNormalizationOptions& options) {
  return std::make_shared<LayerNormalizationLayer>(options);
}

}  // namespace tandem::layers
