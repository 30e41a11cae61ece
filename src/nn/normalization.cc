// Batch and layer normalisation.
#include <algorithm>

#include "nn/batch_normalization.h"
#include "nn/layer_base.h"
#include "nn/sync_moments.h"
#include "ops/math/element_count.h"
#include "ops/math/of_size.h"
#include "tandem/array.h"
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
    if (gamma_.defined() && x.word(last) >= 0 && x.word(last) != gamma_.shape().word(0))
      reject(fmt::format("an input whose last axis has {} elements", gamma_.shape().word(0)), x);
    return x;
  }

  // Without a variable of its own, in the dtype of the other one.
  Tensor gamma() const { return scale_ ? gamma_.value() : like_other(gamma_, center_, beta_); }
  Tensor beta() const { return center_ ? beta_.value() : like_other(beta_, scale_, gamma_); }

  double epsilon_;
  Variable gamma_;
  Variable beta_;

 private:
  Tensor like_other(const Variable& constant, bool has_other, const Variable& other) const {
    const DType dtype = has_other ? other.dtype() : dtype_policy().variable_dtype();
    const Tensor value = constant.value();
    return value.dtype() == dtype ? value : cast(value, dtype);
  }

  bool scale_;
  bool center_;
};

class BatchNormalizationLayer final : public NormalizationLayer {
 public:
  explicit BatchNormalizationLayer(const BatchNormalizationSettings& settings)
      : NormalizationLayer(settings.kind, settings.options),
        momentum_(settings.options.momentum),
        unbiased_(settings.unbiased),
        relu_(settings.relu),
        synchronized_(settings.synchronized) {
    if (!(momentum_ >= 0.0 && momentum_ <= 1.0))
      fail<InvalidArgumentError>("[{}] expected a momentum in [0, 1], got {}", label(), momentum_);
  }

  void synchronize(const comm::ProcessGroup& group) { synchronized_ = group; }

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

  Tensor run(const Tensor& x, const CallOptions& options) override {
    const Tensor y = normalize(x, options);
    return relu_ ? nn::relu(y) : y;
  }

  // A layer that is not trainable runs in inference mode, as in Keras.
  Tensor normalize(const Tensor& x, const CallOptions& options) const {
    const Shape& shape = x.shape();
    const bool training = options.training && trainable();
    if (training && synchronized_) return normalize_over_ranks(x);
    const bool empty =
        std::find(shape.words().begin(), shape.words().end(), 0) != shape.words().end();
    if (!training || empty)
      return nn::batch_norm_inference(x, gamma(), beta(), mean_, variance_, epsilon_);
    nn::BatchNormResult result = nn::batch_norm_training(x, gamma(), beta(), epsilon_);
    NoGradScope no_grad;
    follow_batch(mean_, result.mean, x.shape());
    follow_batch(variance_, result.variance, x.shape());
    return std::move(result.y);
  }

  // Moving averages change by less than the resolution of 16-bit types.
  DType at_least_float32() const {
    return dtype_policy().variable_dtype() == float64 ? float64 : float32;
  }

  // Checks that there is not one value per channel; there may be none.
  Tensor of_several_values(const Tensor& x) const {
    if (x.shape().fully_defined()) {
      if (x.size() == x.size_word(-1))
        fail<InvalidArgumentError>(
            "[{}] Expected more than 1 value per channel when training, got input size {}", label(),
            x.shape().to_string());
      return x;
    }
    const Tensor rows = reshape(x, {-1, x.dim(-1)});
    const Dim n = rows.dim(0);
    return reshape(of_size(label(), "more than 1 value per channel when training, a shape such as",
                           rows, 0, n + min(n, 1) - min(max(n - 1, 0), 1)),
                   x.shape());
  }

  Tensor normalize_over_ranks(const Tensor& given) const {
    const Tensor x = unbiased_ && sync_size(*synchronized_) == 1 ? of_several_values(given) : given;
    const SyncMoments moments = sync_moments(x, *synchronized_, label());
    Tensor y =
        nn::batch_norm_inference(x, gamma(), beta(), moments.mean, moments.variance, epsilon_);
    NoGradScope no_grad;
    const DType dtype = moments.mean.dtype();
    // If no rank has an example, the moving averages stay what they are.
    const Tensor take = cast(minimum(moments.count, 1.0) * (1.0 - momentum_), dtype);
    const Tensor bessel = cast(moments.count / maximum(moments.count - 1.0, 1.0), dtype);
    follow(mean_, moments.mean, take);
    follow(variance_, unbiased_ ? moments.variance * bessel : moments.variance, take);
    return y;
  }

  void follow_batch(Variable moving, const Tensor& batch, const Shape& x) const {
    const Tensor old = moving.value(), next = old * momentum_ + batch * (1.0 - momentum_);
    if (x.fully_defined()) {
      moving.assign(next);
      return;
    }
    // In a run without examples, the moving averages stay what they are.
    moving.assign(where(greater(element_count(x, float32), 0.0), next, old));
  }
  static void follow(Variable moving, const Tensor& batch, const Tensor& take) {
    const Tensor old = moving.value();
    moving.assign(old + (batch - old) * take);
  }

  double momentum_;
  bool unbiased_;
  bool relu_;
  std::optional<comm::ProcessGroup> synchronized_;
  Variable mean_;
  Variable variance_;
};

class LayerNormalizationLayer final : public NormalizationLayer {
 public:
  explicit LayerNormalizationLayer(const LayerNormalizationOptions& options)
      : NormalizationLayer("layer_normalization", options) {}

 private:
  Tensor run(const Tensor& x, const CallOptions&) override {
    return nn::layer_norm(x, gamma(), beta(), epsilon_);
  }
};

}  // namespace

namespace {

BatchNormalizationSettings settings_of(const BatchNormalizationOptions& options) {
  BatchNormalizationSettings settings{.options = options};
  if (options.synchronized) settings.synchronized.emplace();
  return settings;
}

}  // namespace

BatchNormalization::BatchNormalization(const BatchNormalizationOptions& options)
    : tandem::Layer(make_batch_normalization(settings_of(options))) {}

LayerNormalization::LayerNormalization(const LayerNormalizationOptions& options)
    : tandem::Layer(std::make_shared<LayerNormalizationLayer>(options)) {}

}  // namespace tandem::layers

namespace tandem {

Layer make_batch_normalization(const BatchNormalizationSettings& settings) {
  return std::make_shared<layers::BatchNormalizationLayer>(settings);
}

bool synchronize_batch_normalization(LayerBase& layer, const comm::ProcessGroup& group) {
  auto* normalization = dynamic_cast<layers::BatchNormalizationLayer*>(&layer);
  if (normalization) normalization->synchronize(group);
  return normalization != nullptr;
}

}  // namespace tandem
