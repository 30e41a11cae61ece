// The metrics. Each is computed from a few float64 sums, so that the result does not depend on how
// the examples are split into batches.
#include <cmath>
#include <limits>
#include <utility>

#include "core/dim.h"
#include "core/status.h"
#include "nn/targets.h"
#include "ops/math/element_count.h"
#include "tandem/array.h"
#include "tandem/autodiff.h"
#include "tandem/creation.h"
#include "tandem/losses.h"
#include "tandem/math.h"
#include "tandem/metrics.h"

namespace tandem::metrics {
namespace {

// Values times weights. A weight of zero masks the value, even if it is not finite.
Tensor weighted(std::string_view what, const Tensor& values, const Tensor& sample_weight) {
  const Tensor weights = weights_for(what, sample_weight, values);
  return where(equal(weights, 0.0), zeros_like(values), values * weights);
}

// The first sum divided by the second; 0 if that is 0.
double quotient(const std::vector<Tensor>& sums) {
  const double divisor = sums[1].item<double>();
  return divisor == 0.0 ? 0.0 : sums[0].item<double>() / divisor;
}

// The mean of per-example values: their sum and their count.
class MeanMetric : public MetricBase {
 public:
  using Values = std::function<Tensor(const Tensor& y_true, const Tensor& y_pred)>;
  MeanMetric(const char* what, bool larger_is_better, Values values)
      : what_(what), larger_is_better_(larger_is_better), values_(std::move(values)) {}

  std::vector<Tensor> statistics(const Tensor& y_true, const Tensor& y_pred,
                                 const Tensor& sample_weight) const override {
    NoGradScope no_grad;
    const Tensor values = cast(values_(y_true, y_pred), float64);
    if (!sample_weight.defined())
      return {reduce_sum(values), element_count(values.shape(), float64)};
    const Tensor weights = broadcast_to(weights_for(what_, sample_weight, values), values.shape());
    return {reduce_sum(weighted(what_, values, sample_weight)), reduce_sum(weights)};
  }

  double result(const std::vector<Tensor>& sums) const override { return quotient(sums); }
  std::optional<bool> larger_is_better() const override { return larger_is_better_; }

 private:
  const char* what_;
  bool larger_is_better_;
  Values values_;
};

Tensor sparse_hits(const Tensor& y_true, const Tensor& y_pred) {
  const Tensor labels = class_labels("sparse_categorical_accuracy", y_true, y_pred);
  return equal(cast(labels, int64), argmax(y_pred, -1));
}

Tensor categorical_hits(const Tensor& y_true, const Tensor& y_pred) {
  const Tensor target = like_predictions("categorical_accuracy", y_true, y_pred);
  return equal(argmax(target, -1), argmax(y_pred, -1));
}

// Per example: the fraction of outputs that are on the correct side of the threshold.
Tensor binary_hits(const Tensor& y_true, const Tensor& y_pred, double threshold) {
  const Tensor target = like_predictions("binary_accuracy", y_true, y_pred);
  const Tensor decided = cast(greater(y_pred, threshold), y_pred.dtype());
  return mean_of_example(cast(equal(target, decided), float64));
}

// Chooses the accuracy as Keras does: one output is binary, targets of the predictions' shape are
// categorical, others are sparse.
Tensor hits(const Tensor& y_true, const Tensor& y_pred) {
  if (y_pred.rank() < 2 || y_pred.size_word(-1) == 1) return binary_hits(y_true, y_pred, 0.5);
  const std::int64_t outputs = y_pred.size_word(-1);
  const bool one_hot = may_agree(y_true.shape(), y_pred.shape()) && y_true.size_word(-1) != 1;
  if (!dim::may_equal(outputs, 1))
    return one_hot ? categorical_hits(y_true, y_pred) : sparse_hits(y_true, y_pred);
  // The run decides. The number of outputs is that of the targets, or 1 for both.
  if (!may_agree(y_true.shape(), y_pred.shape()))
    dim::known("accuracy", outputs, "which accuracy it is");
  return where(equal(element_count({outputs}, float64), 1.0), binary_hits(y_true, y_pred, 0.5),
               cast(categorical_hits(y_true, y_pred), float64));
}

// Whether fewer than k classes have a higher score than the label's, which is how TensorFlow's
// in_top_k treats ties. A label with a score that is not finite is never a hit.
Tensor top_k_hits(const char* what, const Tensor& y_true, const Tensor& y_pred, std::int64_t k) {
  const Tensor labels = class_labels(what, y_true, y_pred);
  const Tensor classes = range(y_pred.size_word(-1), {.dtype = labels.dtype()});
  const Tensor labelled = equal(expand_dims(labels, -1), classes);
  const Tensor nowhere =
      full(y_pred.shape(), -std::numeric_limits<double>::infinity(), {.dtype = y_pred.dtype()});
  const Tensor score =
      reduce_max(where(labelled, y_pred, nowhere), {.axis = Dims{-1}, .keepdims = true});
  const Tensor above = reduce_sum(cast(greater(y_pred, score), float32), {.axis = Dims{-1}});
  return logical_and(less(above, static_cast<double>(k)), is_finite(squeeze(score, {-1})));
}

// The fraction of true positives among the predicted positives (precision) or the actual positives
// (recall), over all outputs.
class PositivesMetric : public MetricBase {
 public:
  enum class Among { kPredicted, kActual };
  PositivesMetric(const char* what, double threshold, Among among)
      : what_(what), threshold_(threshold), among_(among) {}

  std::vector<Tensor> statistics(const Tensor& y_true, const Tensor& y_pred,
                                 const Tensor& sample_weight) const override {
    NoGradScope no_grad;
    const Tensor actual = logical_not(equal(like_predictions(what_, y_true, y_pred), 0.0));
    const Tensor predicted = greater(y_pred, threshold_);
    const auto count = [&](const Tensor& condition) {
      const Tensor ones = cast(condition, float64);
      return reduce_sum(sample_weight.defined() ? weighted(what_, ones, sample_weight) : ones);
    };
    return {count(logical_and(actual, predicted)),
            count(among_ == Among::kPredicted ? predicted : actual)};
  }

  double result(const std::vector<Tensor>& sums) const override { return quotient(sums); }
  std::optional<bool> larger_is_better() const override { return true; }

 private:
  const char* what_;
  double threshold_;
  Among among_;
};

// Histograms of the predictions of positive and of negative examples. Bin i counts predictions in
// (i / (n - 1), (i + 1) / (n - 1)], which exceed the thresholds 0 .. i of n.
class AucMetric : public MetricBase {
 public:
  AucMetric(int num_thresholds, bool from_logits)
      : thresholds_(num_thresholds), from_logits_(from_logits) {
    if (num_thresholds < 2)
      fail<InvalidArgumentError>("[auc] expected two or more thresholds, got {}", num_thresholds);
  }

  std::vector<Tensor> statistics(const Tensor& y_true, const Tensor& y_pred,
                                 const Tensor& sample_weight) const override {
    NoGradScope no_grad;
    const Tensor actual = logical_not(equal(like_predictions("auc", y_true, y_pred), 0.0));
    Tensor positive = cast(actual, float64);
    Tensor negative = cast(logical_not(actual), float64);
    if (sample_weight.defined()) {
      positive = weighted("auc", positive, sample_weight);
      negative = weighted("auc", negative, sample_weight);
    }
    const double steps = thresholds_ - 1;
    const Tensor probabilities = from_logits_ ? sigmoid(y_pred) : y_pred;
    const Tensor bin = clip_by_value(ceil(probabilities * steps) - 1.0, 0.0, steps - 1.0);
    const Tensor members =
        one_hot(cast(reshape(bin, {-1}), int32), thresholds_ - 1, {.dtype = float64});
    const auto histogram = [&](const Tensor& weights) {
      return reshape(matmul(reshape(weights, {1, -1}), members), {thresholds_ - 1});
    };
    return {histogram(positive), histogram(negative)};
  }

  // Sums the trapezoids between adjacent thresholds, from the highest one down.
  double result(const std::vector<Tensor>& sums) const override {
    const std::vector<double> positive = sums[0].to_vector<double>();
    const std::vector<double> negative = sums[1].to_vector<double>();
    double true_positives = 0.0;
    double false_positives = 0.0;
    double area = 0.0;
    for (std::size_t i = positive.size(); i-- > 0;) {
      area += negative[i] * (true_positives + positive[i] / 2.0);
      true_positives += positive[i];
      false_positives += negative[i];
    }
    const double all = true_positives * false_positives;
    return all == 0.0 ? 0.0 : area / all;
  }
  std::optional<bool> larger_is_better() const override { return true; }

 private:
  int thresholds_;
  bool from_logits_;
};

// The root of the mean of squared errors.
class RootMeanSquaredMetric final : public MeanMetric {
 public:
  RootMeanSquaredMetric() : MeanMetric("root_mean_squared_error", false, losses::mse) {}
  double result(const std::vector<Tensor>& sums) const override {
    return std::sqrt(MeanMetric::result(sums));
  }
};

// The sum of values.
class SumMetric : public MetricBase {
 public:
  std::vector<Tensor> statistics(const Tensor& values, const Tensor&,
                                 const Tensor& sample_weight) const override {
    NoGradScope no_grad;
    const Tensor wide = cast(values, float64);
    return {reduce_sum(sample_weight.defined() ? weighted("sum", wide, sample_weight) : wide)};
  }
  double result(const std::vector<Tensor>& sums) const override { return sums[0].item<double>(); }
};

std::shared_ptr<MetricBase> fraction_of_hits(const char* what, MeanMetric::Values values) {
  return std::make_shared<MeanMetric>(what, true, std::move(values));
}
std::shared_ptr<MetricBase> mean_error(const char* what, MeanMetric::Values values) {
  return std::make_shared<MeanMetric>(what, false, std::move(values));
}

std::shared_ptr<MetricBase> fraction_in_top_k(const char* what, bool sparse, std::int64_t k) {
  if (k < 1) fail<InvalidArgumentError>("[{}] expected k of 1 or more, got {}", what, k);
  return fraction_of_hits(what, [what, sparse, k](const Tensor& y_true, const Tensor& y_pred) {
    if (sparse) return top_k_hits(what, y_true, y_pred, k);
    return top_k_hits(what, argmax(like_predictions(what, y_true, y_pred), -1), y_pred, k);
  });
}

}  // namespace

Accuracy::Accuracy(MetricName name)
    : Metric(std::move(name).take(), fraction_of_hits("accuracy", hits)) {}
SparseCategoricalAccuracy::SparseCategoricalAccuracy(MetricName name)
    : Metric(std::move(name).take(), fraction_of_hits("sparse_categorical_accuracy", sparse_hits)) {
}
CategoricalAccuracy::CategoricalAccuracy(MetricName name)
    : Metric(std::move(name).take(), fraction_of_hits("categorical_accuracy", categorical_hits)) {}
RootMeanSquaredError::RootMeanSquaredError(MetricName name)
    : Metric(std::move(name).take(), std::make_shared<RootMeanSquaredMetric>()) {}
MeanSquaredError::MeanSquaredError(MetricName name)
    : Metric(std::move(name).take(), mean_error("mean_squared_error", losses::mse)) {}
MeanAbsoluteError::MeanAbsoluteError(MetricName name)
    : Metric(std::move(name).take(), mean_error("mean_absolute_error", losses::mae)) {}

BinaryAccuracy::BinaryAccuracy(double threshold, std::string name)
    : Metric(std::move(name),
             fraction_of_hits("binary_accuracy",
                              [threshold](const Tensor& y_true, const Tensor& y_pred) {
                                return binary_hits(y_true, y_pred, threshold);
                              })) {}

SparseTopKCategoricalAccuracy::SparseTopKCategoricalAccuracy(std::int64_t k, std::string name)
    : Metric(std::move(name), fraction_in_top_k("sparse_top_k_categorical_accuracy", true, k)) {}
TopKCategoricalAccuracy::TopKCategoricalAccuracy(std::int64_t k, std::string name)
    : Metric(std::move(name), fraction_in_top_k("top_k_categorical_accuracy", false, k)) {}

Precision::Precision(double threshold, std::string name)
    : Metric(std::move(name), std::make_shared<PositivesMetric>(
                                  "precision", threshold, PositivesMetric::Among::kPredicted)) {}

Recall::Recall(double threshold, std::string name)
    : Metric(std::move(name), std::make_shared<PositivesMetric>("recall", threshold,
                                                                PositivesMetric::Among::kActual)) {}

AUC::AUC(int num_thresholds, std::string name)
    : AUC({.num_thresholds = num_thresholds, .name = std::move(name)}) {}
AUC::AUC(const AUCOptions& options)
    : Metric(options.name,
             std::make_shared<AucMetric>(options.num_thresholds, options.from_logits)) {}

Mean::Mean(MetricName name)
    : Metric(std::move(name).take(),
             mean_error("mean", [](const Tensor& values, const Tensor&) { return values; })) {}
void Mean::update_state(double value) { update_state(constant(value, {.dtype = float64})); }

Sum::Sum(MetricName name) : Metric(std::move(name).take(), std::make_shared<SumMetric>()) {}
void Sum::update_state(double value) { update_state(constant(value, {.dtype = float64})); }

}  // namespace tandem::metrics
