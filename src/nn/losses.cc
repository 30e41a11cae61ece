#include "tandem/losses.h"

#include <algorithm>
#include <iterator>

#include "core/status.h"
#include "nn/loss_parts.h"
#include "nn/naming.h"
#include "nn/targets.h"
#include "ops/math/element_count.h"
#include "runtime/replica_context.h"
#include "tandem/array.h"
#include "tandem/creation.h"
#include "tandem/math.h"
#include "tandem/nn.h"

namespace tandem::losses {
namespace {

void expect_no_ignored(const char* what, const CrossentropyOptions& options) {
  if (options.ignore_class)
    fail<InvalidArgumentError>("[{}] expected no ignore_class, which needs sparse labels; got {}",
                               what, *options.ignore_class);
}

}  // namespace

Tensor mse(const Tensor& y_true, const Tensor& predictions) {
  const Tensor y_pred = for_loss(predictions);
  const Tensor target = like_predictions("mean_squared_error", y_true, y_pred);
  return mean_of_example(squared_difference(y_pred, target));
}

Tensor mae(const Tensor& y_true, const Tensor& predictions) {
  const Tensor y_pred = for_loss(predictions);
  const Tensor target = like_predictions("mean_absolute_error", y_true, y_pred);
  return mean_of_example(abs(y_pred - target));
}

Tensor huber(const Tensor& y_true, const Tensor& predictions, double delta) {
  const Tensor y_pred = for_loss(predictions);
  if (!(delta > 0.0))
    fail<InvalidArgumentError>("[huber] expected a positive delta, got {}", delta);
  const Tensor error = abs(y_pred - like_predictions("huber", y_true, y_pred));
  // The quadratic part up to delta and the linear one beyond, without a branch.
  const Tensor quadratic = minimum(error, delta);
  return mean_of_example(square(quadratic) * 0.5 + (error - quadratic) * delta);
}

Tensor hinge(const Tensor& y_true, const Tensor& predictions) {
  const Tensor y_pred = for_loss(predictions);
  const Tensor signs = signs_of(like_predictions("hinge", y_true, y_pred));
  return mean_of_example(nn::relu(subtract(1.0, signs * y_pred)));
}

Tensor kl_divergence(const Tensor& y_true, const Tensor& predictions) {
  const Tensor y_pred = for_loss(predictions);
  expect_classes("kl_divergence", y_pred);
  const Tensor target =
      clip_by_value(like_predictions("kl_divergence", y_true, y_pred), kEpsilon, 1.0);
  return reduce_sum(target * log(target / clip_by_value(y_pred, kEpsilon, 1.0)),
                    {.axis = Dims{-1}});
}

Tensor binary_crossentropy(const Tensor& y_true, const Tensor& predictions,
                           const CrossentropyOptions& options) {
  const Tensor y_pred = for_loss(predictions);
  expect_smoothing("binary_crossentropy", options.label_smoothing);
  expect_no_ignored("binary_crossentropy", options);
  const Tensor target =
      smoothed(like_predictions("binary_crossentropy", y_true, y_pred), options.label_smoothing, 2);
  if (options.from_logits) return mean_of_example(nn::sigmoid_cross_entropy(target, y_pred));
  // Computed in float32, since 16-bit types round 1 - epsilon to 1, and log(1 - p) would be
  // infinite.
  const DType wide = size_of(y_pred.dtype()) == 2 ? float32 : y_pred.dtype();
  const Tensor p = inside_unit(cast(y_pred, wide)), t = cast(target, wide);
  const Tensor likelihood = t * log(p) + subtract(1.0, t) * log(subtract(1.0, p));
  return cast(mean_of_example(negative(likelihood)), y_pred.dtype());
}

Tensor categorical_crossentropy(const Tensor& y_true, const Tensor& predictions,
                                const CrossentropyOptions& options) {
  const Tensor y_pred = for_loss(predictions);
  expect_smoothing("categorical_crossentropy", options.label_smoothing);
  expect_no_ignored("categorical_crossentropy", options);
  expect_classes("categorical_crossentropy", y_pred);
  const Tensor target = smoothed(like_predictions("categorical_crossentropy", y_true, y_pred),
                                 options.label_smoothing, y_pred.size_word(-1));
  if (options.from_logits) return nn::softmax_cross_entropy(target, y_pred);
  const Tensor total = reduce_sum(y_pred, {.axis = Dims{-1}, .keepdims = true});
  return negative(reduce_sum(target * log(inside_unit(y_pred / total)), {.axis = Dims{-1}}));
}

Tensor sparse_categorical_crossentropy(const Tensor& y_true, const Tensor& predictions,
                                       const CrossentropyOptions& options) {
  const Tensor y_pred = for_loss(predictions);
  if (options.label_smoothing != 0.0)
    fail<InvalidArgumentError>(
        "[sparse_categorical_crossentropy] expected no label smoothing, which needs dense labels; "
        "got {}",
        options.label_smoothing);
  expect_classes("sparse_categorical_crossentropy", y_pred);
  const Tensor labels = class_labels("sparse_categorical_crossentropy", y_true, y_pred);
  const Tensor logits = options.from_logits ? y_pred : log(inside_unit(y_pred));
  if (!options.ignore_class) return nn::sparse_softmax_cross_entropy(labels, logits);
  const Tensor kept = not_equal(labels, static_cast<double>(*options.ignore_class));
  return where(kept, nn::sparse_softmax_cross_entropy(where(kept, labels, 0.0), logits), 0.0);
}

namespace {

// The values of an object: those that the labels of `ignored` leave are scaled so that the mean
// over all is theirs, unless the reduction is another.
Tensor mean_of_kept(const Tensor& values, const Tensor& y_true, const Tensor& y_pred,
                    const CrossentropyOptions& options) {
  if (!options.ignore_class || options.reduction == Reduction::kNone ||
      options.reduction == Reduction::kSum)
    return values;
  const Tensor labels = class_labels("sparse_categorical_crossentropy", y_true, y_pred);
  const Tensor kept =
      cast(not_equal(labels, static_cast<double>(*options.ignore_class)), values.dtype());
  const Tensor count = element_count(values.shape(), values.dtype());
  return values * (count / maximum(reduce_sum(kept), 1.0));
}

using Factory = Loss (*)();
constexpr NamedEntry<Factory> kTable[] = {
    {"sparse_categorical_crossentropy", []() -> Loss { return SparseCategoricalCrossentropy(); }},
    {"categorical_crossentropy", []() -> Loss { return CategoricalCrossentropy(); }},
    {"binary_crossentropy", []() -> Loss { return BinaryCrossentropy(); }},
    {"mean_squared_error", []() -> Loss { return MeanSquaredError(); }},
    {"mse", []() -> Loss { return MeanSquaredError(); }},
    {"mean_absolute_error", []() -> Loss { return MeanAbsoluteError(); }},
    {"mae", []() -> Loss { return MeanAbsoluteError(); }},
    {"huber", []() -> Loss { return Huber(); }},
    {"kl_divergence", []() -> Loss { return KLDivergence(); }},
    {"hinge", []() -> Loss { return Hinge(); }},
    {"squared_hinge", []() -> Loss { return SquaredHinge(); }},
    {"categorical_hinge", []() -> Loss { return CategoricalHinge(); }},
    {"mean_absolute_percentage_error", []() -> Loss { return MeanAbsolutePercentageError(); }},
    {"mape", []() -> Loss { return MeanAbsolutePercentageError(); }},
    {"mean_squared_logarithmic_error", []() -> Loss { return MeanSquaredLogarithmicError(); }},
    {"msle", []() -> Loss { return MeanSquaredLogarithmicError(); }},
    {"log_cosh", []() -> Loss { return LogCosh(); }},
    {"poisson", []() -> Loss { return Poisson(); }},
    {"cosine_similarity", []() -> Loss { return CosineSimilarity(); }},
    {"ctc", []() -> Loss { return CTC(); }},
    {"dice", []() -> Loss { return Dice(); }},
    {"tversky", []() -> Loss { return Tversky(); }},
    {"binary_focal_crossentropy", []() -> Loss { return BinaryFocalCrossentropy(); }},
    {"categorical_focal_crossentropy", []() -> Loss { return CategoricalFocalCrossentropy(); }},
};

// A scalar loss as one value for each example of `y_pred`, whose mean (with `sum`: whose sum) it
// is.
Tensor for_each_example(const Tensor& loss, const Tensor& y_pred, bool sum) {
  Dims others;
  for (int axis = 1; axis < y_pred.rank(); ++axis) others.push_back(axis);
  Tensor zeros = cast(zeros_like(y_pred), loss.dtype());
  if (!others.empty()) zeros = reduce_sum(zeros, {.axis = others});
  return (sum ? loss / element_count({y_pred.size_word(0)}, loss.dtype()) : loss) + zeros;
}

}  // namespace

Loss from_name(std::string_view name) {
  return find_named(std::span<const NamedEntry<Factory>>(kTable), "losses", name)();
}

ReductionOption::ReductionOption(const char* name) {
  const std::string_view text = name;
  if (text == "none")
    reduction_ = Reduction::kNone;
  else if (text == "sum")
    reduction_ = Reduction::kSum;
  else if (text == "mean" || text == "sum_over_batch_size")
    reduction_ = Reduction::kSumOverBatchSize;
  else
    fail<InvalidArgumentError>(
        "[losses] expected the reduction \"none\", \"sum\", \"mean\" or \"sum_over_batch_size\", "
        "got \"{}\"",
        name);
}

Loss::Loss(const char* name) : Loss(std::string(name)) {}
Loss::Loss(const std::string& name) : name_(name) {
  // Another name may be that of a derived class.
  if (std::ranges::find(kTable, std::string_view(name), &NamedEntry<Factory>::name) !=
      std::end(kTable))
    *this = from_name(name);
}

Loss::Loss(std::string name, Function per_example, const CrossentropyOptions& options)
    : Loss(std::move(name), std::move(per_example), options.reduction) {
  expects_probabilities_ = !options.from_logits;
}

void Loss::require_known() const {
  if (!own_ && !per_example_ && !name_.empty()) static_cast<void>(from_name(name_));
}

void Loss::hold(std::shared_ptr<Loss> own) {
  if (!own) throw InvalidArgumentError("[Loss] expected a loss, got a null pointer");
  if (own->own_) own = own->own_;
  name_ = name_or(own->name_, "loss");
  reduction_ = own->reduction_;
  own_ = std::move(own);
}

Tensor Loss::call(const Tensor& y_true, const Tensor& y_pred) {
  return std::as_const(*this).call(y_true, y_pred);
}

Tensor Loss::call(const Tensor& y_true, const Tensor& y_pred) const {
  require_known();
  if (!per_example_) throw FailedPreconditionError("[Loss] an undefined loss was used");
  return per_example_(y_true, y_pred);
}

Tensor Loss::per_example(const Tensor& y_true, const Tensor& y_pred) const {
  if (own_) return own_->per_example(y_true, y_pred);
  if (!is_floating(y_pred.dtype()) && is_floating(y_true.dtype()))
    fail<InvalidArgumentError>(
        "[{}] expected floating-point predictions as the second argument, got {} there and {} as "
        "the first: the order is (y_true, y_pred)",
        name_, name_of(y_pred.dtype()), name_of(y_true.dtype()));
  // A derived class may override the one without const.
  const Tensor values = const_cast<Loss*>(this)->call(y_true, at_least_float32(y_pred));
  if (values.rank() > 0 || y_pred.rank() == 0) return values;
  return for_each_example(values, y_pred, reduction_ == Reduction::kSum);
}

Tensor Loss::operator()(const Tensor& y_true, const Tensor& y_pred,
                        const Tensor& sample_weight) const {
  const bool mean = reduction_ == Reduction::kAuto || reduction_ == Reduction::kSumOverBatchSize;
  const ReplicaContext* replica = ReplicaContext::current();
  if (mean && replica && !replica->averages_gradients())
    fail<InvalidArgumentError>(
        "[{}] Please use Reduction::kSum or Reduction::kNone for loss reduction when losses are "
        "used in a strategy's replicas, because the mean is over the global batch. Average with "
        "nn::compute_average_loss(loss.per_example(...)), or let fit() do it.",
        name_);
  Tensor values = per_example(y_true, y_pred);
  if (sample_weight.defined()) values = values * weights_for(name_, sample_weight, values);
  if (reduction_ == Reduction::kNone) return values;
  return mean ? reduce_mean(values) : reduce_sum(values);
}

SparseCategoricalCrossentropy::SparseCategoricalCrossentropy(const CrossentropyOptions& options)
    : Loss(
          name_or(options.name, "sparse_categorical_crossentropy"),
          [options](const Tensor& y_true, const Tensor& y_pred) {
            return mean_of_kept(sparse_categorical_crossentropy(y_true, y_pred, options), y_true,
                                y_pred, options);
          },
          options) {}

CategoricalCrossentropy::CategoricalCrossentropy(const CrossentropyOptions& options)
    : Loss(
          name_or(options.name, "categorical_crossentropy"),
          [options](const Tensor& y_true, const Tensor& y_pred) {
            return categorical_crossentropy(y_true, y_pred, options);
          },
          options) {}

BinaryCrossentropy::BinaryCrossentropy(const CrossentropyOptions& options)
    : Loss(
          name_or(options.name, "binary_crossentropy"),
          [options](const Tensor& y_true, const Tensor& y_pred) {
            return binary_crossentropy(y_true, y_pred, options);
          },
          options) {}

MeanSquaredError::MeanSquaredError(const LossOptions& options)
    : Loss(name_or(options.name, "mean_squared_error"), mse, options.reduction) {}

MeanAbsoluteError::MeanAbsoluteError(const LossOptions& options)
    : Loss(name_or(options.name, "mean_absolute_error"), mae, options.reduction) {}

Huber::Huber(const HuberOptions& options)
    : Loss(
          name_or(options.name, "huber"),
          [delta = options.delta](const Tensor& y_true, const Tensor& y_pred) {
            return huber(y_true, y_pred, delta);
          },
          options.reduction) {}

KLDivergence::KLDivergence(const LossOptions& options)
    : Loss(name_or(options.name, "kl_divergence"), kl_divergence, options.reduction) {}

Hinge::Hinge(const LossOptions& options)
    : Loss(name_or(options.name, "hinge"), hinge, options.reduction) {}

}  // namespace tandem::losses
