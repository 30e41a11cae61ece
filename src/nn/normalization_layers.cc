// Normalization per example, dropout of channels, and small layers.
#include "tandem/normalization_layers.h"
#include "nn/layer_base.h"
#include "nn/targets.h"
#include "tandem/array.h"
#include "tandem/creation.h"
#include "tandem/functional.h"
#include "tandem/math.h"

namespace tandem::layers {
namespace {

Tensor as_dtype(const Tensor& x, DType dtype) { return x.dtype() == dtype ? x : cast(x, dtype); }

// Layers that compute in float32 or float64, with variables [channels] of their own dtype.
class ChannelsLayer : public UnaryLayer {
 public:
  template <class Options>
  ChannelsLayer(const char* kind, double epsilon, const Options& options)
      : UnaryLayer(kind, options), epsilon_(epsilon) {
    if (!(epsilon > 0.0))
      fail<InvalidArgumentError>("[{}] expected a positive epsilon, got {}", label(), epsilon);
  }
  bool casts_variables() const final { return false; }

 protected:
  Shape infer(const Shape& x) const override {
    if (x.rank() < 2) reject("an input of shape (batch, ..., channels)", x);
    const std::int64_t channels = x.word(x.rank() - 1);
    if (channels_ >= 0 && channels >= 0 && channels != channels_)
      reject(fmt::format("an input whose last axis has {} elements", channels_), x);
    return x;
  }

  double epsilon_;
  std::int64_t channels_ = -1;
};

class GroupNormalizationLayer final : public ChannelsLayer {
 public:
  GroupNormalizationLayer(std::int64_t groups, const GroupNormalizationOptions& options)
      : ChannelsLayer("group_normalization", options.epsilon, options),
        groups_(groups),
        center_(options.center),
        scale_(options.scale) {
    if (groups < 1 && groups != -1)
      fail<InvalidArgumentError>("[{}] expected a positive number of groups, or -1, got {}",
                                 label(), groups);
  }

 private:
  void make_weights(const Shape& x) override {
    static_cast<void>(infer(x));
    channels_ = known_size(x, x.rank() - 1, "channels");
    if (scale_) gamma_ = add_weight("gamma", {channels_}, initializers::ones());
    if (center_) beta_ = add_weight("beta", {channels_}, initializers::zeros());
  }

  Tensor run(const Tensor& x, const CallOptions&) override {
    const Tensor wide = at_least_float32(x);
    const std::int64_t groups = groups_ == -1 ? channels_ : groups_;
    Dims sizes, axes;
    for (int axis = 0; axis + 1 < x.rank(); ++axis) {
      sizes.push_back(x.size_word(axis));
      if (axis > 0) axes.push_back(axis);
    }
    sizes.push_back(groups);
    sizes.push_back(channels_ / groups);
    axes.push_back(x.rank());
    const Tensor grouped = reshape(wide, Shape(sizes));
    const nn::Moments moments = nn::moments(grouped, axes, true);
    Tensor y = reshape((grouped - moments.mean) * rsqrt(moments.variance + epsilon_), x.shape());
    if (scale_) y = y * as_dtype(gamma_, y.dtype());
    if (center_) y = y + as_dtype(beta_, y.dtype());
    return as_dtype(y, x.dtype());
  }

  Shape infer(const Shape& x) const override {
    const Shape result = ChannelsLayer::infer(x);
    const std::int64_t channels = x.word(x.rank() - 1);
    if (groups_ > 0 && channels >= 0 && channels % groups_ != 0)
      reject(fmt::format("a number of channels that {} groups divide", groups_), x);
    return result;
  }

  std::int64_t groups_;
  bool center_, scale_;
  Variable gamma_, beta_;
};

class RMSNormalizationLayer final : public ChannelsLayer {
 public:
  explicit RMSNormalizationLayer(const RMSNormalizationOptions& options)
      : ChannelsLayer("rms_normalization", options.epsilon, options) {}

 private:
  void make_weights(const Shape& x) override {
    static_cast<void>(infer(x));
    channels_ = known_size(x, x.rank() - 1, "channels");
    factor_ = add_weight("scale", {channels_}, initializers::ones());
  }
  Tensor run(const Tensor& x, const CallOptions&) override {
    const Tensor wide = at_least_float32(x);
    const Tensor squares = reduce_mean(square(wide), {.axis = Dims{-1}, .keepdims = true});
    return as_dtype(wide * rsqrt(squares + epsilon_) * as_dtype(factor_, wide.dtype()), x.dtype());
  }

  Variable factor_;
};

class PReLULayer final : public UnaryLayer {
 public:
  explicit PReLULayer(const PReLUOptions& options)
      : UnaryLayer("prelu", options), options_(options) {}

 private:
  void make_weights(const Shape& x) override {
    Shape shape = infer(x).without_leading(1);
    for (const std::int64_t axis : options_.shared_axes) shape.set(static_cast<int>(axis) - 1, 1);
    if (!shape.fully_defined()) reject("known sizes of the axes that are not shared", x);
    alpha_ = add_weight("alpha", shape, options_.alpha_initializer);
    regularize(alpha_, options_.alpha_regularizer);
  }
  Tensor run(const Tensor& x, const CallOptions&) override {
    return nn::relu(x) - alpha_.value() * nn::relu(negative(x));
  }
  Shape infer(const Shape& x) const override {
    if (x.rank() < 2) reject("an input of shape (batch, ...)", x);
    for (const std::int64_t axis : options_.shared_axes)
      if (axis < 1 || axis >= x.rank())
        reject(fmt::format("an input with an axis {} besides the batch, which is shared", axis), x);
    return x;
  }

  PReLUOptions options_;
  Variable alpha_;
};

// A layer without variables, of inputs of one rank (0: any with a batch).
class FunctionLayer final : public UnaryLayer {
 public:
  using Function = std::function<Tensor(const Tensor& x, const CallOptions& options)>;
  using ShapeRule = std::function<Shape(const Shape& x)>;
  struct Input {
    int rank;
    const char* axes;
  };
  FunctionLayer(const char* kind, Input input, Function function, ShapeRule rule,
                const SimpleOptions& options)
      : UnaryLayer(kind, options),
        input_(input),
        function_(std::move(function)),
        rule_(std::move(rule)) {}

 private:
  Tensor run(const Tensor& x, const CallOptions& options) override { return function_(x, options); }
  Shape infer(const Shape& x) const override {
    if (input_.rank > 0) expect_rank(x, input_.rank, input_.axes);
    return rule_(x);
  }

  Input input_;
  Function function_;
  ShapeRule rule_;
};

tandem::Layer function_layer(const char* kind, FunctionLayer::Input input,
                             FunctionLayer::Function function, FunctionLayer::ShapeRule rule,
                             const SimpleOptions& options) {
  return std::make_shared<FunctionLayer>(kind, input, std::move(function), std::move(rule),
                                         options);
}

Shape same(const Shape& x) { return x; }

// Dropout with one choice for all positions.
FunctionLayer::Function drop_channels(const char* kind, double rate) {
  if (!(rate >= 0.0 && rate < 1.0))
    fail<InvalidArgumentError>("[{}] expected a rate in [0, 1), got {}", kind, rate);
  return [rate](const Tensor& x, const CallOptions& call) {
    if (!call.training || rate == 0.0) return x;
    Dims begin, size;
    for (int axis = 0; axis < x.rank(); ++axis) {
      begin.push_back(0);
      size.push_back(axis == 0 || axis == x.rank() - 1 ? -1 : 1);
    }
    return x * nn::dropout(ones_like(slice(x, begin, size)), rate);
  };
}

tandem::Layer permute(const std::vector<std::int64_t>& dims, const SimpleOptions& options) {
  Dims order{0};
  std::vector<bool> seen(dims.size() + 1, false);
  for (const std::int64_t axis : dims) {
    const bool valid = axis >= 1 && axis <= static_cast<std::int64_t>(dims.size()) &&
                       !seen[static_cast<std::size_t>(axis)];
    if (!valid)
      fail<InvalidArgumentError>("[permute] expected each of the axes 1 to {} once, got {}",
                                 dims.size(), axis);
    seen[static_cast<std::size_t>(axis)] = true;
    order.push_back(axis);
  }
  return function_layer(
      "permute", {static_cast<int>(order.size()), "(batch, ...) with the permuted axes"},
      [order](const Tensor& x, const CallOptions&) { return transpose(x, order); },
      [order](const Shape& x) {
        Dims sizes;
        for (const std::int64_t axis : order) sizes.push_back(x.word(static_cast<int>(axis)));
        return Shape(sizes);
      },
      options);
}

tandem::Layer repeat_vector(std::int64_t n, const SimpleOptions& options) {
  if (n <= 0) fail<InvalidArgumentError>("[repeat_vector] expected a positive number, got {}", n);
  return function_layer(
      "repeat_vector", {2, "(batch, features)"},
      [n](const Tensor& x, const CallOptions&) {
        return tile(expand_dims(x, 1), Dims{1, n, 1});
      },
      [n](const Shape& x) {
        return Shape{x.word(0), n, x.word(1)};
      },
      options);
}

}  // namespace

GroupNormalization::GroupNormalization(std::int64_t groups,
                                       const GroupNormalizationOptions& options)
    : tandem::Layer(std::make_shared<GroupNormalizationLayer>(groups, options)) {}

RMSNormalization::RMSNormalization(const RMSNormalizationOptions& options)
    : tandem::Layer(std::make_shared<RMSNormalizationLayer>(options)) {}

UnitNormalization::UnitNormalization(const SimpleOptions& options)
    : tandem::Layer(function_layer(
          "unit_normalization", {0, ""},
          [](const Tensor& x, const CallOptions&) {
            return as_dtype(nn::functional::normalize(at_least_float32(x), 2.0, -1), x.dtype());
          },
          same, options)) {}

SpatialDropout1D::SpatialDropout1D(double rate, const SimpleOptions& options)
    : tandem::Layer(function_layer("spatial_dropout1d", {3, "(batch, positions, channels)"},
                                   drop_channels("spatial_dropout1d", rate), same, options)) {}

SpatialDropout2D::SpatialDropout2D(double rate, const SimpleOptions& options)
    : tandem::Layer(function_layer("spatial_dropout2d", {4, kImageAxes},
                                   drop_channels("spatial_dropout2d", rate), same, options)) {}

PReLU::PReLU(const PReLUOptions& options) : tandem::Layer(std::make_shared<PReLULayer>(options)) {}

Identity::Identity(const SimpleOptions& options)
    : tandem::Layer(function_layer(
          "identity", {0, ""}, [](const Tensor& x, const CallOptions&) { return x; }, same,
          options)) {}

Permute::Permute(const std::vector<std::int64_t>& dims, const SimpleOptions& options)
    : tandem::Layer(permute(dims, options)) {}

RepeatVector::RepeatVector(std::int64_t n, const SimpleOptions& options)
    : tandem::Layer(repeat_vector(n, options)) {}

}  // namespace tandem::layers
