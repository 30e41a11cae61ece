#include "models.h"

#include <algorithm>

#include "tandem/errors.h"

namespace tandem::tools {
namespace {

// Without weight decay, which has no effect in as few steps as a laptop trains.
constexpr double kResNetMomentum = 0.9;
constexpr double kBatchNormMomentum = 0.9;

Model make_mlp(const Shape& image, std::int64_t classes) {
  return Sequential({
      layers::Flatten({.input_shape = image}),
      layers::Dense(512, {.activation = "relu"}),
      layers::Dense(512, {.activation = "relu"}),
      layers::Dense(classes),
  });
}

Model make_lenet(const Shape& image, std::int64_t classes) {
  return Sequential({
      layers::Conv2D(32, 3, {.activation = "relu", .input_shape = image}),
      layers::Conv2D(64, 3, {.activation = "relu"}),
      layers::MaxPooling2D(2),
      layers::Dropout(0.25),
      layers::Flatten(),
      layers::Dense(128, {.activation = "relu"}),
      layers::Dropout(0.5),
      layers::Dense(classes),
  });
}

SymbolicInput convolution(const SymbolicInput& x, std::int64_t filters, std::int64_t kernel,
                          std::int64_t stride) {
  const SymbolicInput y = layers::Conv2D(filters, kernel,
                                         {.strides = stride,
                                          .padding = "same",
                                          .use_bias = false,
                                          .kernel_initializer = initializers::he_normal()})(x);
  return layers::BatchNormalization({.momentum = kBatchNormMomentum})(y);
}

// A residual block: two convolutions and a shortcut, which is a projection if the shape changes
// (option B).
SymbolicInput residual_block(const SymbolicInput& x, std::int64_t filters, std::int64_t stride) {
  SymbolicInput y = layers::ReLU()(convolution(x, filters, 3, stride));
  y = convolution(y, filters, 3, 1);
  const SymbolicInput shortcut = stride == 1 ? x : convolution(x, filters, 1, stride);
  return layers::ReLU()(layers::Add()({y, shortcut}));
}

Model make_resnet20(const Shape& image, std::int64_t classes) {
  constexpr int kBlocks = 3;
  const SymbolicInput input = Input(image);
  SymbolicInput x = layers::ReLU()(convolution(input, 16, 3, 1));
  for (const std::int64_t filters : {16, 32, 64})
    for (int block = 0; block < kBlocks; ++block)
      x = residual_block(x, filters, filters > 16 && block == 0 ? 2 : 1);
  return Functional(input, layers::Dense(classes)(layers::GlobalAveragePooling2D()(x)));
}

[[noreturn]] void unknown_model(const std::string& model) {
  throw InvalidArgumentError("[command line] expected --model mlp, lenet or resnet20, got '" +
                             model + "'");
}

}  // namespace

Recipe recipe_for(const std::string& model) {
  if (model == "mlp") return {.optimizer = "adam"};
  if (model == "lenet") return {.learning_rate = 2e-3, .decay = true, .optimizer = "adam"};
  if (model == "resnet20")
    return {.batch = 64, .learning_rate = 0.1, .augment = true, .decay = true, .optimizer = "sgd"};
  unknown_model(model);
}

Model make_model(const std::string& model, const Shape& image, std::int64_t classes) {
  if (model == "mlp") return make_mlp(image, classes);
  if (model == "lenet") return make_lenet(image, classes);
  if (model == "resnet20") return make_resnet20(image, classes);
  unknown_model(model);
}

optimizers::Optimizer make_optimizer(const Recipe& recipe, const std::string& name,
                                     std::optional<double> rate, std::int64_t steps) {
  const bool own = name.empty() || name == recipe.optimizer;
  if (!own) {
    if (rate) return optimizers::from_name(name, *rate);
    return optimizers::from_name(name);
  }
  optimizers::LearningRate schedule = rate.value_or(recipe.learning_rate);
  if (recipe.decay) {
    const std::int64_t warmup = std::max<std::int64_t>(steps / 5, 1);
    schedule = optimizers::schedules::cosine_decay(
        0.0, std::max<std::int64_t>(steps - warmup, 1),
        {.warmup_target = rate.value_or(recipe.learning_rate), .warmup_steps = warmup});
  }
  if (recipe.optimizer == "sgd")
    return optimizers::SGD(
        {.learning_rate = schedule, .momentum = kResNetMomentum, .nesterov = true});
  return optimizers::from_name(recipe.optimizer, schedule);
}

}  // namespace tandem::tools
