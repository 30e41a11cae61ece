// Metrics: what is told of training besides the loss.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/tensor.h"

namespace tandem::metrics {

// The arithmetic of a metric: statistics of a batch that add up, and what they amount to. Because
// they add up, any split of the examples over batches, replicas or ranks gives the same result.
// Thread-safe.
class MetricBase {
 public:
  virtual ~MetricBase() = default;
  // float32 or float64 tensors, of shapes that do not depend on the batch. `sample_weight`:
  // undefined, or one value an example.
  virtual std::vector<Tensor> statistics(const Tensor& y_true, const Tensor& y_pred,
                                         const Tensor& sample_weight) const = 0;
  virtual double result(const std::vector<Tensor>& sums) const = 0;
};

// A shared handle with a state of its own. update() is thread-safe: the replicas of a strategy
// may share one.
class Metric {
 public:
  Metric() = default;
  Metric(std::string name, std::shared_ptr<const MetricBase> base);
  // By name: "accuracy" (which becomes sparse, categorical or binary by the shapes it meets),
  // "mse", "mae", "auc", ... Throws InvalidArgumentError naming them all.
  Metric(const char* name);         // NOLINT: a name stands for the metric
  Metric(const std::string& name);  // NOLINT

  const std::string& name() const;
  const MetricBase& base() const;
  void update(const Tensor& y_true, const Tensor& y_pred, const Tensor& sample_weight = {});
  // Adds statistics that base() made.
  void add_statistics(const std::vector<Tensor>& statistics);
  // 0 before the first update. Of a metric that was made in the scope of a strategy whose replicas
  // are in several processes: over all of them; each must call it.
  double result() const;
  void reset();

 private:
  struct State;
  std::shared_ptr<State> state_;
};

Metric Accuracy(std::string name = "accuracy");
Metric SparseCategoricalAccuracy(std::string name = "sparse_categorical_accuracy");
Metric CategoricalAccuracy(std::string name = "categorical_accuracy");
Metric BinaryAccuracy(double threshold = 0.5, std::string name = "binary_accuracy");
Metric SparseTopKCategoricalAccuracy(std::int64_t k = 5,
                                     std::string name = "sparse_top_k_categorical_accuracy");
Metric MeanSquaredError(std::string name = "mean_squared_error");
Metric MeanAbsoluteError(std::string name = "mean_absolute_error");
Metric Precision(double threshold = 0.5, std::string name = "precision");
Metric Recall(double threshold = 0.5, std::string name = "recall");
// The area under the ROC curve, from a histogram of `num_thresholds` thresholds as in Keras.
Metric AUC(int num_thresholds = 200, std::string name = "auc");

Metric from_name(std::string_view name);

}  // namespace tandem::metrics
