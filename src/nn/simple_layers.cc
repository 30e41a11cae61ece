// Layers with one input and without variables.
#include "nn/layer_base.h"
#include "nn/trial.h"
#include "tandem/array.h"
#include "tandem/creation.h"
#include "tandem/math.h"
#include "tandem/random.h"

namespace tandem::layers {
namespace {

// A layer that keeps its input's shape.
class ElementwiseLayer final : public UnaryLayer {
 public:
  using Function = std::function<Tensor(const Tensor& x, const CallOptions& options)>;
  ElementwiseLayer(const char* kind, Function function, const SimpleOptions& options)
      : UnaryLayer(kind, options), function_(std::move(function)) {}

 private:
  Tensor run(const Tensor& x, const CallOptions& options) override { return function_(x, options); }
  Shape infer(const Shape& x) const override { return x; }

  Function function_;
};

class FlattenLayer final : public UnaryLayer {
 public:
  explicit FlattenLayer(const SimpleOptions& options) : UnaryLayer("flatten", options) {}

 private:
  Tensor run(const Tensor& x, const CallOptions&) override { return reshape(x, infer(x.shape())); }

  Shape infer(const Shape& x) const override {
    if (x.rank() < 1) reject("an input with a batch axis", x);
    std::int64_t features = 1;
    for (int axis = 1; axis < x.rank(); ++axis)
      features = x.word(axis) < 0 || features < 0 ? -1 : features * x.word(axis);
    return {x.word(0), features};
  }
};

class ReshapeLayer final : public UnaryLayer {
 public:
  ReshapeLayer(const Shape& target, const SimpleOptions& options)
      : UnaryLayer("reshape", options), target_(target) {
    for (int axis = 0; axis < target.rank(); ++axis) {
      const bool open = target.word(axis) == -1;
      if (target.word(axis) < -1 || (open && open_axis_ >= 0))
        fail<InvalidArgumentError>("[reshape] expected sizes of which at most one is -1, got {}",
                                   target.to_string());
      if (open)
        open_axis_ = axis;
      else
        fixed_elements_ *= target.word(axis);
    }
  }

 private:
  Tensor run(const Tensor& x, const CallOptions&) override { return reshape(x, infer(x.shape())); }

  Shape infer(const Shape& x) const override {
    if (x.rank() < 1) reject("an input with a batch axis", x);
    Shape example = target_;
    const Shape features = x.without_leading(1);
    if (features.fully_defined()) {
      const std::int64_t elements = features.num_elements();
      const bool fits = open_axis_ < 0 ? elements == fixed_elements_
                                       : fixed_elements_ > 0 && elements % fixed_elements_ == 0;
      if (!fits) reject("an example that fits the target shape " + target_.to_string(), x);
      if (open_axis_ >= 0) example.set(open_axis_, elements / fixed_elements_);
    }
    return example.with_leading(x.word(0));
  }

  Shape target_;
  int open_axis_ = -1;
  std::int64_t fixed_elements_ = 1;
};

class LambdaLayer final : public UnaryLayer {
 public:
  LambdaLayer(std::function<Tensor(const Tensor&)> function, const SimpleOptions& options)
      : UnaryLayer("lambda", options), function_(std::move(function)) {
    if (!function_) fail<InvalidArgumentError>("[lambda] expected a function, got an empty one");
  }
  bool runs_user_code() const override { return true; }

 private:
  Tensor run(const Tensor& x, const CallOptions&) override { return function_(x); }

  Shape infer(const Shape& x) const override {
    const Shape result =
        shape_of_call({&x, 1}, [&](TensorList inputs) { return function_(inputs.front()); });
    if (!result.known()) reject("an input whose sizes are known except for the batch", x);
    return result;
  }

  void make_weights(const Shape&) override {}
  void check(const Shape&) const override {}

  std::function<Tensor(const Tensor&)> function_;
};

tandem::Layer elementwise(const char* kind, ElementwiseLayer::Function function,
                          const SimpleOptions& options) {
  return std::make_shared<ElementwiseLayer>(kind, std::move(function), options);
}

ElementwiseLayer::Function drop(double rate) {
  if (!(rate >= 0.0 && rate < 1.0))
    fail<InvalidArgumentError>("[dropout] expected a rate in [0, 1), got {}", rate);
  return [rate](const Tensor& x, const CallOptions& call) {
    return call.training && rate > 0.0 ? nn::dropout(x, rate) : x;
  };
}

ElementwiseLayer::Function activate(const std::string& activation) {
  const nn::Activation function = nn::activation_from_name(activation);
  return [function](const Tensor& x, const CallOptions&) { return nn::activate(x, function); };
}

ElementwiseLayer::Function limited_relu(const ReLUOptions& options) {
  const double limit = options.max_value.value_or(0.0), slope = options.negative_slope,
               threshold = options.threshold;
  if (!(limit >= 0.0 && slope >= 0.0 && threshold >= 0.0))
    fail<InvalidArgumentError>(
        "[relu] expected max_value, negative_slope and threshold of 0 or more, got {}, {} and {}",
        limit, slope, threshold);
  return [=, limited = options.max_value.has_value()](const Tensor& x, const CallOptions&) {
    if (threshold == 0.0) {
      if (slope == 0.0 && limited && limit == 6.0) return nn::relu6(x);
      const Tensor y = slope == 0.0 ? nn::relu(x) : nn::leaky_relu(x, slope);
      return limited ? minimum(y, limit) : y;
    }
    const Tensor below = slope == 0.0 ? zeros_like(x) : (x - threshold) * slope;
    const Tensor y = where(less(x, threshold), below, x);
    return limited ? minimum(y, limit) : y;
  };
}

ElementwiseLayer::Function rescale(double scale, double offset) {
  return [scale, offset](const Tensor& x, const CallOptions&) {
    const Tensor scaled = (is_floating(x.dtype()) ? x : cast(x, float32)) * scale;
    return offset == 0.0 ? scaled : scaled + offset;
  };
}

}  // namespace

const char* ActivationName::unknown() {
  throw InvalidArgumentError(
      "[activation] expected a function such as nn::relu that has a name as an activation: call "
      "any other in a layer of your own");
}

Dropout::Dropout(double rate, const SimpleOptions& options)
    : tandem::Layer(elementwise("dropout", drop(rate), options)) {}

Activation::Activation(const std::string& activation, const SimpleOptions& options)
    : tandem::Layer(elementwise("activation", activate(activation), options)) {}

ReLU::ReLU(const ReLUOptions& options)
    : tandem::Layer(elementwise(
          "relu", limited_relu(options),
          {.input_shape = options.input_shape, .dtype = options.dtype, .name = options.name})) {}

Softmax::Softmax(const SoftmaxOptions& options)
    : tandem::Layer(elementwise(
          "softmax",
          [axis = options.axis](const Tensor& x, const CallOptions&) {
            return nn::softmax(x, axis);
          },
          {.input_shape = options.input_shape, .dtype = options.dtype, .name = options.name})) {}

LeakyReLU::LeakyReLU(double negative_slope, const SimpleOptions& options)
    : tandem::Layer(elementwise(
          "leaky_relu",
          [negative_slope](const Tensor& x, const CallOptions&) {
            return nn::leaky_relu(x, negative_slope);
          },
          options)) {}

ELU::ELU(double alpha, const SimpleOptions& options)
    : tandem::Layer(elementwise(
          "elu", [alpha](const Tensor& x, const CallOptions&) { return nn::elu(x, alpha); },
          options)) {}

GaussianNoise::GaussianNoise(double stddev, const SimpleOptions& options)
    : tandem::Layer(elementwise(
          "gaussian_noise",
          [stddev](const Tensor& x, const CallOptions& call) {
            if (!call.training) return x;
            return x + random::normal(x.shape(), 0.0, stddev, {.dtype = x.dtype()});
          },
          options)) {
  if (!(stddev >= 0.0))
    fail<InvalidArgumentError>("[gaussian_noise] expected a deviation of 0 or more, got {}",
                               stddev);
}

Rescaling::Rescaling(double scale, double offset, const SimpleOptions& options)
    : tandem::Layer(elementwise("rescaling", rescale(scale, offset), options)) {}

Flatten::Flatten(const SimpleOptions& options)
    : tandem::Layer(std::make_shared<FlattenLayer>(options)) {}

Reshape::Reshape(const Shape& target_shape, const SimpleOptions& options)
    : tandem::Layer(std::make_shared<ReshapeLayer>(target_shape, options)) {}

Lambda::Lambda(std::function<Tensor(const Tensor&)> function, const SimpleOptions& options)
    : tandem::Layer(std::make_shared<LambdaLayer>(std::move(function), options)) {}

}  // namespace tandem::layers
