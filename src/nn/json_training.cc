// Optimizers, their schedules and losses of JSON text.
#include "nn/json_options.h"

namespace tandem {

using optimizers::LearningRate;
using optimizers::Optimizer;
namespace schedules = optimizers::schedules;

namespace {

// ExponentialDecay or InverseTimeDecay.
template <class Decay>
LearningRate decay(JsonOptions& json) {
  schedules::DecayOptions options;
  options.initial_learning_rate = json.required<double>("initial_learning_rate");
  options.decay_steps = json.required<std::int64_t>("decay_steps");
  options.decay_rate = json.required<double>("decay_rate");
  json.read("staircase", options.staircase);
  return Decay(options);
}

LearningRate piecewise_constant_decay(JsonOptions& json) {
  auto boundaries = json.required<std::vector<std::int64_t>>("boundaries");
  auto values = json.required<std::vector<double>>("values");
  return schedules::PiecewiseConstantDecay(std::move(boundaries), std::move(values));
}

LearningRate polynomial_decay(JsonOptions& json) {
  schedules::PolynomialDecayOptions options;
  options.initial_learning_rate = json.required<double>("initial_learning_rate");
  options.decay_steps = json.required<std::int64_t>("decay_steps");
  json.read("end_learning_rate", options.end_learning_rate);
  json.read("power", options.power);
  json.read("cycle", options.cycle);
  return schedules::PolynomialDecay(options);
}

LearningRate cosine_decay(JsonOptions& json) {
  schedules::CosineDecayOptions options;
  options.initial_learning_rate = json.required<double>("initial_learning_rate");
  options.decay_steps = json.required<std::int64_t>("decay_steps");
  json.read("alpha", options.alpha);
  json.read("warmup_target", options.warmup_target);
  json.read("warmup_steps", options.warmup_steps);
  return schedules::CosineDecay(options);
}

using MakeSchedule = LearningRate (*)(JsonOptions&);
constexpr NamedEntry<MakeSchedule> kSchedules[] = {
    {"exponential_decay", decay<schedules::ExponentialDecay>},
    {"inverse_time_decay", decay<schedules::InverseTimeDecay>},
    {"piecewise_constant_decay", piecewise_constant_decay},
    {"polynomial_decay", polynomial_decay},
    {"cosine_decay", cosine_decay},
};

template <class Made, class Options>
Optimizer optimizer(JsonOptions& json) {
  return made_with<Made, Options>(json);
}

using MakeOptimizer = Optimizer (*)(JsonOptions&);
constexpr NamedEntry<MakeOptimizer> kOptimizers[] = {
    {"sgd", optimizer<optimizers::SGD, optimizers::SGDOptions>},
    {"adam", optimizer<optimizers::Adam, optimizers::AdamOptions>},
    {"adamw", optimizer<optimizers::AdamW, optimizers::AdamWOptions>},
    {"rmsprop", optimizer<optimizers::RMSprop, optimizers::RMSpropOptions>},
    {"adagrad", optimizer<optimizers::Adagrad, optimizers::AdagradOptions>},
    {"lamb", optimizer<optimizers::LAMB, optimizers::LAMBOptions>},
};

template <class Made, class Options = losses::LossOptions>
losses::Loss loss(JsonOptions& json) {
  return made_with<Made, Options>(json);
}

using MakeLoss = losses::Loss (*)(JsonOptions&);
using losses::CrossentropyOptions;
constexpr NamedEntry<MakeLoss> kLosses[] = {
    {"sparse_categorical_crossentropy",
     loss<losses::SparseCategoricalCrossentropy, CrossentropyOptions>},
    {"categorical_crossentropy", loss<losses::CategoricalCrossentropy, CrossentropyOptions>},
    {"binary_crossentropy", loss<losses::BinaryCrossentropy, CrossentropyOptions>},
    {"mean_squared_error", loss<losses::MeanSquaredError>},
    {"mse", loss<losses::MeanSquaredError>},
    {"mean_absolute_error", loss<losses::MeanAbsoluteError>},
    {"mae", loss<losses::MeanAbsoluteError>},
    {"huber", loss<losses::Huber, losses::HuberOptions>},
    {"kl_divergence", loss<losses::KLDivergence>},
    {"hinge", loss<losses::Hinge>},
    {"squared_hinge", loss<losses::SquaredHinge>},
    {"categorical_hinge", loss<losses::CategoricalHinge>},
    {"mean_absolute_percentage_error", loss<losses::MeanAbsolutePercentageError>},
    {"mape", loss<losses::MeanAbsolutePercentageError>},
    {"mean_squared_logarithmic_error", loss<losses::MeanSquaredLogarithmicError>},
    {"msle", loss<losses::MeanSquaredLogarithmicError>},
    {"log_cosh", loss<losses::LogCosh>},
    {"poisson", loss<losses::Poisson>},
    {"cosine_similarity", loss<losses::CosineSimilarity>},
    {"ctc", loss<losses::CTC>},
    {"dice", loss<losses::Dice>},
    {"tversky", loss<losses::Tversky, losses::TverskyOptions>},
    {"binary_focal_crossentropy",
     loss<losses::BinaryFocalCrossentropy, losses::BinaryFocalOptions>},
    {"categorical_focal_crossentropy",
     loss<losses::CategoricalFocalCrossentropy, losses::CategoricalFocalOptions>},
};

}  // namespace

void from_json(const Json& json, const std::string& path, LearningRate& value) {
  if (json.is_object())
    value = typed_from_json(std::span(kSchedules), json, path);
  else
    value = json.number();
}

Optimizer optimizer_from_json(const Json& json, const std::string& path) {
  return typed_from_json(std::span(kOptimizers), json, path);
}

losses::Loss loss_from_json(const Json& json, const std::string& path) {
  return typed_from_json(std::span(kLosses), json, path);
}

}  // namespace tandem
