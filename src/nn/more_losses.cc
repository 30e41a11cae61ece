// Keras's losses of hinges, ratios, directions and regions, and focal losses.
#include <cmath>

#include "core/status.h"
#include "nn/loss_parts.h"
#include "nn/targets.h"
#include "tandem/losses.h"
#include "tandem/math.h"
#include "tandem/nn.h"

namespace tandem::losses {
namespace {

Tensor normalized(const Tensor& x) {
  constexpr double kSmallest = 1e-12;
  return x * rsqrt(maximum(reduce_sum(square(x), {.axis = Dims{-1}, .keepdims = true}),
                           kSmallest * kSmallest));
}

}  // namespace

Tensor squared_hinge(const Tensor& y_true, const Tensor& predictions) {
  const Tensor y_pred = for_loss(predictions);
  const Tensor signs = signs_of(like_predictions("squared_hinge", y_true, y_pred));
  return mean_of_example(square(nn::relu(subtract(1.0, signs * y_pred))));
}

Tensor categorical_hinge(const Tensor& y_true, const Tensor& predictions) {
  const Tensor y_pred = for_loss(predictions);
  expect_classes("categorical_hinge", y_pred);
  const Tensor target = like_predictions("categorical_hinge", y_true, y_pred);
  const Tensor right = reduce_sum(target * y_pred, {.axis = Dims{-1}});
  const Tensor wrong = reduce_max(subtract(1.0, target) * y_pred, {.axis = Dims{-1}});
  return nn::relu(wrong - right + 1.0);
}

Tensor mean_absolute_percentage_error(const Tensor& y_true, const Tensor& predictions) {
  const Tensor y_pred = for_loss(predictions);
  const Tensor target = like_predictions("mean_absolute_percentage_error", y_true, y_pred);
  return mean_of_example(abs((target - y_pred) / maximum(abs(target), kEpsilon))) * 100.0;
}

Tensor mean_squared_logarithmic_error(const Tensor& y_true, const Tensor& predictions) {
  const Tensor y_pred = for_loss(predictions);
  const Tensor target = like_predictions("mean_squared_logarithmic_error", y_true, y_pred);
  return mean_of_example(
      squared_difference(log1p(maximum(y_pred, kEpsilon)), log1p(maximum(target, kEpsilon))));
}

Tensor log_cosh(const Tensor& y_true, const Tensor& predictions) {
  const Tensor y_pred = for_loss(predictions);
  const Tensor error = y_pred - like_predictions("log_cosh", y_true, y_pred);
  return mean_of_example(error + nn::softplus(error * -2.0) - std::log(2.0));
}

Tensor poisson(const Tensor& y_true, const Tensor& predictions) {
  const Tensor y_pred = for_loss(predictions);
  const Tensor target = like_predictions("poisson", y_true, y_pred);
  return mean_of_example(y_pred - target * log(y_pred + kEpsilon));
}

Tensor cosine_similarity(const Tensor& y_true, const Tensor& predictions) {
  const Tensor y_pred = for_loss(predictions);
  expect_classes("cosine_similarity", y_pred);
  const Tensor target = like_predictions("cosine_similarity", y_true, y_pred);
  return negative(reduce_sum(normalized(target) * normalized(y_pred), {.axis = Dims{-1}}));
}

Tensor dice(const Tensor& y_true, const Tensor& predictions) {
  const Tensor y_pred = for_loss(predictions);
  const Tensor target = like_predictions("dice", y_true, y_pred);
  const Tensor both = reduce_sum(target * y_pred) * 2.0;
  return subtract(1.0, both / (reduce_sum(target) + reduce_sum(y_pred) + kEpsilon));
}

Tensor tversky(const Tensor& y_true, const Tensor& predictions, double alpha, double beta) {
  if (!(alpha >= 0.0 && beta >= 0.0))
    fail<InvalidArgumentError>("[tversky] expected an alpha and beta of 0 or more, got {} and {}",
                               alpha, beta);
  const Tensor y_pred = for_loss(predictions);
  const Tensor target = like_predictions("tversky", y_true, y_pred);
  const Tensor both = reduce_sum(target * y_pred);
  const Tensor positives = reduce_sum(subtract(1.0, target) * y_pred),
               negatives = reduce_sum(target * subtract(1.0, y_pred));
  return subtract(1.0, both / (both + positives * alpha + negatives * beta + kEpsilon));
}

Tensor binary_focal_crossentropy(const Tensor& y_true, const Tensor& predictions,
                                 const BinaryFocalOptions& options) {
  constexpr const char* kName = "binary_focal_crossentropy";
  const Tensor y_pred = for_loss(predictions);
  expect_smoothing(kName, options.label_smoothing);
  const Tensor t = smoothed(like_predictions(kName, y_true, y_pred), options.label_smoothing, 2);
  // The probability of the label, and the crossentropy: without a logarithm of 0 in both ways.
  const Tensor given = options.from_logits ? sigmoid(y_pred) : y_pred;
  const Tensor likely = t * given + subtract(1.0, t) * subtract(1.0, given);
  Tensor loss;
  if (options.from_logits) {
    loss = nn::sigmoid_cross_entropy(t, y_pred);
  } else {
    const Tensor p = inside_unit(y_pred);
    loss = negative(t * log(p) + subtract(1.0, t) * log(subtract(1.0, p)));
  }
  loss = pow(subtract(1.0, likely), options.gamma) * loss;
  if (options.apply_class_balancing)
    loss = (t * options.alpha + subtract(1.0, t) * (1.0 - options.alpha)) * loss;
  return mean_of_example(loss);
}

Tensor categorical_focal_crossentropy(const Tensor& y_true, const Tensor& predictions,
                                      const CategoricalFocalOptions& options) {
  constexpr const char* kName = "categorical_focal_crossentropy";
  const Tensor y_pred = for_loss(predictions);
  expect_smoothing(kName, options.label_smoothing);
  expect_classes(kName, y_pred);
  const Tensor target = smoothed(like_predictions(kName, y_true, y_pred), options.label_smoothing,
                                 y_pred.size_word(-1));
  const Tensor p = inside_unit(
      options.from_logits ? nn::softmax(y_pred)
                          : y_pred / reduce_sum(y_pred, {.axis = Dims{-1}, .keepdims = true}));
  const Tensor weights = pow(subtract(1.0, p), options.gamma) * options.alpha;
  return negative(reduce_sum(weights * target * log(p), {.axis = Dims{-1}}));
}

SquaredHinge::SquaredHinge(const LossOptions& options)
    : Loss(name_or(options.name, "squared_hinge"), squared_hinge, options.reduction) {}
CategoricalHinge::CategoricalHinge(const LossOptions& options)
    : Loss(name_or(options.name, "categorical_hinge"), categorical_hinge, options.reduction) {}
MeanAbsolutePercentageError::MeanAbsolutePercentageError(const LossOptions& options)
    : Loss(name_or(options.name, "mean_absolute_percentage_error"), mean_absolute_percentage_error,
           options.reduction) {}
MeanSquaredLogarithmicError::MeanSquaredLogarithmicError(const LossOptions& options)
    : Loss(name_or(options.name, "mean_squared_logarithmic_error"), mean_squared_logarithmic_error,
           options.reduction) {}
LogCosh::LogCosh(const LossOptions& options)
    : Loss(name_or(options.name, "log_cosh"), log_cosh, options.reduction) {}
Poisson::Poisson(const LossOptions& options)
    : Loss(name_or(options.name, "poisson"), poisson, options.reduction) {}
CosineSimilarity::CosineSimilarity(const LossOptions& options)
    : Loss(name_or(options.name, "cosine_similarity"), cosine_similarity, options.reduction) {}
Dice::Dice(const LossOptions& options)
    : Loss(name_or(options.name, "dice"), dice, options.reduction) {}
Tversky::Tversky(const TverskyOptions& options)
    : Loss(
          name_or(options.name, "tversky"),
          [alpha = options.alpha, beta = options.beta](const Tensor& y_true, const Tensor& y_pred) {
            return tversky(y_true, y_pred, alpha, beta);
          },
          options.reduction) {}
BinaryFocalCrossentropy::BinaryFocalCrossentropy(const BinaryFocalOptions& options)
    : Loss(
          name_or(options.name, "binary_focal_crossentropy"),
          [options](const Tensor& y_true, const Tensor& y_pred) {
            return binary_focal_crossentropy(y_true, y_pred, options);
          },
          CrossentropyOptions{.from_logits = options.from_logits, .reduction = options.reduction}) {
}
CategoricalFocalCrossentropy::CategoricalFocalCrossentropy(const CategoricalFocalOptions& options)
    : Loss(
          name_or(options.name, "categorical_focal_crossentropy"),
          [options](const Tensor& y_true, const Tensor& y_pred) {
            return categorical_focal_crossentropy(y_true, y_pred, options);
          },
          CrossentropyOptions{.from_logits = options.from_logits, .reduction = options.reduction}) {
}

}  // namespace tandem::losses
