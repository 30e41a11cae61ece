/// @file
/// Metrics: measures of training and evaluation besides the loss. As tf.keras.metrics.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/tensor.h"

/// Metrics. As tf.keras.metrics.
namespace tandem::metrics {

/// Definition of a metric: statistics per batch that are summed, and the result computed from the
/// sums. The result is therefore independent of how examples are split over batches, replicas and
/// ranks. Thread-safe.
class MetricBase {
 public:
  virtual ~MetricBase() = default;
  /// Statistics of a batch: float32 or float64 tensors whose shapes do not depend on the batch.
  /// `y_pred`: not of 16 bits. `sample_weight`: undefined, or one value per example.
  virtual std::vector<Tensor> statistics(const Tensor& y_true, const Tensor& y_pred,
                                         const Tensor& sample_weight) const = 0;
  /// The metric's value for the sums of statistics.
  virtual double result(const std::vector<Tensor>& sums) const = 0;
  /// Whether a larger value is better, for callbacks with mode "auto"; none: they need a mode.
  virtual std::optional<bool> larger_is_better() const { return std::nullopt; }
};

/// A metric with its accumulated state. A shared handle. update() is thread-safe, so that replicas
/// may share a metric. As tf.keras.metrics.Metric.
class Metric {
 public:
  Metric() = default;
  /// A custom metric.
  Metric(std::string name, std::shared_ptr<const MetricBase> base);
  /// @{
  /// The metric of this name: "accuracy" (sparse, categorical or binary, by the shapes of its
  /// arguments), "mse", "mae", "auc", ... Throws InvalidArgumentError that lists the names.
  Metric(const char* name);         // NOLINT: a name stands for the metric
  Metric(const std::string& name);  // NOLINT
  /// @}

  const std::string& name() const;  ///< name
  const MetricBase& base() const;   ///< definition
  /// Adds the statistics of a batch. As update_state() in Keras.
  void update(const Tensor& y_true, const Tensor& y_pred, const Tensor& sample_weight = {});
  /// The statistics of a batch by base(). Predictions of 16 bits are cast to float32, as in Keras.
  std::vector<Tensor> statistics(const Tensor& y_true, const Tensor& y_pred,
                                 const Tensor& sample_weight) const;
  /// Adds statistics().
  void add_statistics(const std::vector<Tensor>& statistics);
  /// The value over all batches since the last reset; 0 before the first update. For a metric
  /// created in the scope of a multi-process strategy: over all processes, which must all call it.
  double result() const;
  /// Discards the accumulated statistics. As reset_state() in Keras.
  void reset();

 private:
  struct State;
  std::shared_ptr<State> state_;
};

/// Sparse, categorical or binary accuracy, by the shapes of the arguments. As the name "accuracy"
/// in Keras.
Metric Accuracy(std::string name = "accuracy");
/// Fraction of examples whose largest prediction is the label; labels are class indices.
Metric SparseCategoricalAccuracy(std::string name = "sparse_categorical_accuracy");
/// Fraction of examples whose largest prediction is the label; labels are one-hot.
Metric CategoricalAccuracy(std::string name = "categorical_accuracy");
/// Fraction of predictions on the label's side of `threshold`.
Metric BinaryAccuracy(double threshold = 0.5, std::string name = "binary_accuracy");
/// Fraction of examples whose label is among the k largest predictions.
Metric SparseTopKCategoricalAccuracy(std::int64_t k = 5,
                                     std::string name = "sparse_top_k_categorical_accuracy");
Metric MeanSquaredError(std::string name = "mean_squared_error");  ///< mean of (y_true - y_pred)^2
Metric MeanAbsoluteError(std::string name = "mean_absolute_error");  ///< mean of |y_true - y_pred|
/// True positives / predicted positives.
Metric Precision(double threshold = 0.5, std::string name = "precision");
/// True positives / actual positives.
Metric Recall(double threshold = 0.5, std::string name = "recall");
/// Area under the ROC curve, approximated with `num_thresholds` thresholds as in Keras.
Metric AUC(int num_thresholds = 200, std::string name = "auc");

/// The metric of this name with default options. Throws InvalidArgumentError that lists the names.
Metric from_name(std::string_view name);

}  // namespace tandem::metrics
