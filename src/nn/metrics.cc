// The metrics. Each is computed from a few float64 sums, so that the result does not depend on how
// the examples are split into batches.
#include "tandem/metrics.h"

#include <cstring>
#include <limits>
#include <map>
#include <mutex>

#include "device/device_manager.h"
#include "nn/naming.h"
#include "nn/targets.h"
#include "ops/math/element_count.h"
#include "runtime/placement.h"
#include "runtime/replica_context.h"
#include "runtime/replica_invariance.h"
#include "runtime/variable_impl.h"
#include "sync/tree_sum.h"
#include "tandem/array.h"
#include "tandem/autodiff.h"
#include "tandem/creation.h"
#include "tandem/losses.h"
#include "tandem/math.h"

namespace tandem::metrics {
namespace {

// Values times weights. A weight of zero masks the value, even if it is not finite.
Tensor weighted(std::string_view what, const Tensor& values, const Tensor& sample_weight) {
  const Tensor weights = weights_for(what, sample_weight, values);
  return where(equal(weights, 0.0), zeros_like(values), values * weights);
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

  double result(const std::vector<Tensor>& sums) const override {
    const double count = sums[1].item<double>();
    return count == 0.0 ? 0.0 : sums[0].item<double>() / count;
  }
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
  if (y_pred.rank() < 2 || y_pred.dim(-1) == 1) return binary_hits(y_true, y_pred, 0.5);
  if (may_agree(y_true.shape(), y_pred.shape()) && y_true.dim(-1) != 1)
    return categorical_hits(y_true, y_pred);
  return sparse_hits(y_true, y_pred);
}

// Whether fewer than k classes have a higher score than the label's, which is how TensorFlow's
// in_top_k treats ties. A label with a score that is not finite is never a hit.
Tensor top_k_hits(const Tensor& y_true, const Tensor& y_pred, std::int64_t k) {
  const Tensor labels = class_labels("sparse_top_k_categorical_accuracy", y_true, y_pred);
  const Tensor classes = range(y_pred.dim(-1), {.dtype = labels.dtype()});
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

  double result(const std::vector<Tensor>& sums) const override {
    const double all = sums[1].item<double>();
    return all == 0.0 ? 0.0 : sums[0].item<double>() / all;
  }
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
  explicit AucMetric(int num_thresholds) : thresholds_(num_thresholds) {
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
    const Tensor bin = clip_by_value(ceil(y_pred * steps) - 1.0, 0.0, steps - 1.0);
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
};

Metric fraction_of_hits(std::string name, const char* what, MeanMetric::Values values) {
  return {std::move(name), std::make_shared<MeanMetric>(what, true, std::move(values))};
}
Metric mean_error(std::string name, const char* what, MeanMetric::Values values) {
  return {std::move(name), std::make_shared<MeanMetric>(what, false, std::move(values))};
}

}  // namespace

// The sums so far. Each device that contributes statistics has its own, so that adding neither
// waits for a device nor copies between devices. In the replica-invariant mode, each part has its
// own.
struct Metric::State {
  std::string name;
  std::shared_ptr<const MetricBase> base;
  std::shared_ptr<WorkerCollectives>
      workers;  // the other processes with sums; null if there are none
  mutable std::mutex mutex;
  // By part (ReplicaContext::part) and device.
  std::map<std::pair<int, std::string>, std::vector<Tensor>> sums;
};

Metric::Metric(std::string name, std::shared_ptr<const MetricBase> base)
    : state_(std::make_shared<State>()) {
  state_->name = std::move(name);
  state_->base = std::move(base);
  if (const VariableCreator* creator = VariableCreator::current())
    state_->workers = creator->workers();
}

Metric::Metric(const char* name) : Metric(from_name(name)) {}
Metric::Metric(const std::string& name) : Metric(from_name(name)) {}

namespace {

template <class T>
T& defined_state(const std::shared_ptr<T>& state) {
  if (!state) throw FailedPreconditionError("[Metric] an undefined metric was used");
  return *state;
}

}  // namespace

const std::string& Metric::name() const { return defined_state(state_).name; }
const MetricBase& Metric::base() const { return *defined_state(state_).base; }

void Metric::update(const Tensor& y_true, const Tensor& y_pred, const Tensor& sample_weight) {
  OnDevice on(impl_of(y_pred).device());
  std::vector<Tensor> statistics = this->statistics(y_true, y_pred, sample_weight);
  if (const ReplicaContext* context = ReplicaContext::current(); context && context->is_padding())
    for (Tensor& statistic : statistics) statistic = zeros_like(statistic);
  add_statistics(statistics);
}

std::vector<Tensor> Metric::statistics(const Tensor& y_true, const Tensor& y_pred,
                                       const Tensor& sample_weight) const {
  return base().statistics(y_true, at_least_float32(y_pred), sample_weight);
}

void Metric::add_statistics(const std::vector<Tensor>& statistics) {
  State& state = defined_state(state_);
  if (statistics.empty()) return;
  NoGradScope no_grad;
  OnDevice on(impl_of(statistics.front()).device());
  const ReplicaContext* context = ReplicaContext::current();
  const int part = context ? context->part() : -1;
  const std::lock_guard lock(state.mutex);
  std::vector<Tensor>& sums =
      state.sums[{part, part < 0 ? statistics.front().device() : std::string()}];
  sums.resize(statistics.size());
  for (std::size_t i = 0; i < statistics.size(); ++i) {
    const Tensor addend = cast(statistics[i].detach(), float64);
    sums[i] = sums[i].defined() ? sums[i] + addend : addend;
  }
}

namespace {

// The sums over all workers. The workers exchange the shapes of their sums first, since a worker
// whose metric was never updated does not know them.
std::vector<Tensor> over_workers(WorkerCollectives& workers, std::vector<Tensor> mine,
                                 const std::string& name) {
  const std::string what = "result of metric " + name;
  std::string shapes;
  for (const Tensor& sum : mine) {
    const Dims sizes = sum.shape().dims();
    shapes.push_back(static_cast<char>(sizes.size()));
    shapes.append(reinterpret_cast<const char*>(sizes.begin()),
                  static_cast<std::size_t>(sizes.size()) * sizeof(std::int64_t));
  }
  for (const std::string& theirs : workers.gather_bytes(shapes, what)) {
    if (!mine.empty()) break;
    for (std::size_t at = 0; at < theirs.size();) {
      Dims sizes;
      const auto rank = static_cast<std::size_t>(theirs[at++]);
      for (std::size_t axis = 0; axis < rank; ++axis, at += sizeof(std::int64_t)) {
        std::int64_t size = 0;
        std::memcpy(&size, theirs.data() + at, sizeof(size));
        sizes.push_back(size);
      }
      mine.push_back(zeros(Shape(sizes), {.dtype = float64}));
    }
  }
  const ReduceOp op = invariant_parts() > 0 ? ReduceOp::kTreeSum : ReduceOp::kSum;
  for (Tensor& sum : mine) sum = workers.all_reduce(sum, op, what);
  return mine;
}

}  // namespace

double Metric::result() const {
  const State& state = defined_state(state_);
  NoGradScope no_grad;
  OnDevice on(DeviceManager::get().host());
  const std::lock_guard lock(state.mutex);
  std::vector<Tensor> totals;
  if (!state.sums.empty()) {
    const std::size_t size = state.sums.begin()->second.size();
    for (std::size_t i = 0; i < size; ++i) {
      std::vector<Tensor> values;
      for (const auto& [part_and_device, sums] : state.sums) values.push_back(sums[i].cpu());
      totals.push_back(sum_of_copies(values));
    }
  }
  if (state.workers) totals = over_workers(*state.workers, std::move(totals), state.name);
  return totals.empty() ? 0.0 : state.base->result(totals);
}

void Metric::reset() {
  State& state = defined_state(state_);
  const std::lock_guard lock(state.mutex);
  state.sums.clear();
}

Metric Accuracy(std::string name) { return fraction_of_hits(std::move(name), "accuracy", hits); }

Metric SparseCategoricalAccuracy(std::string name) {
  return fraction_of_hits(std::move(name), "sparse_categorical_accuracy", sparse_hits);
}

Metric CategoricalAccuracy(std::string name) {
  return fraction_of_hits(std::move(name), "categorical_accuracy", categorical_hits);
}

Metric BinaryAccuracy(double threshold, std::string name) {
  return fraction_of_hits(std::move(name), "binary_accuracy",
                          [threshold](const Tensor& y_true, const Tensor& y_pred) {
                            return binary_hits(y_true, y_pred, threshold);
                          });
}

Metric SparseTopKCategoricalAccuracy(std::int64_t k, std::string name) {
  if (k < 1)
    fail<InvalidArgumentError>(
        "[sparse_top_k_categorical_accuracy] expected k of 1 or more, got {}", k);
  return fraction_of_hits(
      std::move(name), "sparse_top_k_categorical_accuracy",
      [k](const Tensor& y_true, const Tensor& y_pred) { return top_k_hits(y_true, y_pred, k); });
}

Metric MeanSquaredError(std::string name) {
  return mean_error(std::move(name), "mean_squared_error", losses::mse);
}

Metric MeanAbsoluteError(std::string name) {
  return mean_error(std::move(name), "mean_absolute_error", losses::mae);
}

Metric Precision(double threshold, std::string name) {
  return {std::move(name), std::make_shared<PositivesMetric>("precision", threshold,
                                                             PositivesMetric::Among::kPredicted)};
}

Metric Recall(double threshold, std::string name) {
  return {std::move(name),
          std::make_shared<PositivesMetric>("recall", threshold, PositivesMetric::Among::kActual)};
}

Metric AUC(int num_thresholds, std::string name) {
  return {std::move(name), std::make_shared<AucMetric>(num_thresholds)};
}

Metric from_name(std::string_view name) {
  using Factory = Metric (*)(std::string name);
  static constexpr NamedEntry<Factory> kTable[] = {
      {"accuracy", Accuracy},
      {"acc", Accuracy},
      {"sparse_categorical_accuracy", SparseCategoricalAccuracy},
      {"categorical_accuracy", CategoricalAccuracy},
      {"binary_accuracy", [](std::string n) { return BinaryAccuracy(0.5, std::move(n)); }},
      {"sparse_top_k_categorical_accuracy",
       [](std::string n) { return SparseTopKCategoricalAccuracy(5, std::move(n)); }},
      {"mean_squared_error", MeanSquaredError},
      {"mse", MeanSquaredError},
      {"mean_absolute_error", MeanAbsoluteError},
      {"mae", MeanAbsoluteError},
      {"precision", [](std::string n) { return Precision(0.5, std::move(n)); }},
      {"recall", [](std::string n) { return Recall(0.5, std::move(n)); }},
      {"auc", [](std::string n) { return AUC(200, std::move(n)); }},
  };
  return find_named(std::span<const NamedEntry<Factory>>(kTable), "metrics",
                    name)(std::string(name));
}

}  // namespace tandem::metrics
