/// @file
/// Metrics: measures of training and evaluation besides the loss. As tf.keras.metrics.
#pragma once

#include <compare>
#include <concepts>
#include <cstdint>
#include <iosfwd>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "tandem/initializers.h"
#include "tandem/own_copy.h"
#include "tandem/tensor.h"
#include "tandem/variable.h"

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

/// Options of Metric::add_weight().
struct MetricWeightOptions {
  std::string name{};                ///< name, for messages
  Shape shape = Shape::scalar();     ///< shape
  Initializer initializer{"zeros"};  ///< initial value
  DType dtype = float32;             ///< dtype
};
/// Options of Metric::add_variable(): as MetricWeightOptions, in the order of Keras 3.
struct MetricVariableOptions {
  Shape shape = Shape::scalar();     ///< shape
  Initializer initializer{"zeros"};  ///< initial value
  DType dtype = float32;             ///< dtype
  std::string name{};                ///< name, for messages
};

/// The value of a metric: a double, which item() gives as another type, too. In the train_step() or
/// test_step() of a model it stands for the value over the batches, replicas and processes, which
/// is not known yet: the step returns it. Reading it there throws FailedPreconditionError.
class Result {
 public:
  /// Holds this value.
  Result(double value) : value_(value) {}  // NOLINT: stands for it
  /// For Tandem's own code: stands for a value.
  explicit Result(Tensor stand_in) : stand_in_(std::move(stand_in)) {}
  /// The value.
  operator double() const { return value(); }  // NOLINT: stands for it
  /// The value as a float64 scalar.
  template <std::same_as<Tensor> T>
  operator T() const {  // NOLINT: stands for it
    return tensor();
  }
  /// The value as a T, as Tensor::item().
  template <class T = double>
  T item() const {
    return static_cast<T>(value());
  }
  /// The value as a T.
  template <class T = double>
  T numpy() const {
    return static_cast<T>(value());
  }
  double value() const;   ///< the value
  Tensor tensor() const;  ///< the value as a float64 scalar

  /// @{
  /// Computes with the value, and not with tensors.
  template <std::convertible_to<double> N>
  friend double operator+(const Result& a, const N& b) {
    return a.value() + static_cast<double>(b);
  }
  template <std::convertible_to<double> N>
  friend double operator-(const Result& a, const N& b) {
    return a.value() - static_cast<double>(b);
  }
  template <std::convertible_to<double> N>
  friend double operator*(const Result& a, const N& b) {
    return a.value() * static_cast<double>(b);
  }
  template <std::convertible_to<double> N>
  friend double operator/(const Result& a, const N& b) {
    return a.value() / static_cast<double>(b);
  }
  template <tandem::detail::Arithmetic N>
  friend double operator+(N a, const Result& b) {
    return static_cast<double>(a) + b.value();
  }
  template <tandem::detail::Arithmetic N>
  friend double operator-(N a, const Result& b) {
    return static_cast<double>(a) - b.value();
  }
  template <tandem::detail::Arithmetic N>
  friend double operator*(N a, const Result& b) {
    return static_cast<double>(a) * b.value();
  }
  template <tandem::detail::Arithmetic N>
  friend double operator/(N a, const Result& b) {
    return static_cast<double>(a) / b.value();
  }
  template <std::convertible_to<double> N>
  friend bool operator==(const Result& a, const N& b) {
    return a.value() == static_cast<double>(b);
  }
  template <std::convertible_to<double> N>
  friend std::partial_ordering operator<=>(const Result& a, const N& b) {
    return a.value() <=> static_cast<double>(b);
  }
  /// @}

 private:
  double value_ = 0.0;
  Tensor stand_in_;  // undefined if the value is known
};

/// Prints the value.
std::ostream& operator<<(std::ostream& out, const Result& result);

class Metric;

// Metric::result() hides the functions that classes of users override.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Woverloaded-virtual"

namespace detail {

/// The part of Metric whose result() a class of your own overrides, with or without `const`.
class MetricResult {
 public:
  virtual ~MetricResult() = default;
  /// @{
  /// The value of a metric of your own.
  virtual Tensor result();
  virtual Tensor result() const;
  /// @}

 private:
  friend class tandem::metrics::Metric;
  MetricResult() = default;
  MetricResult(const MetricResult&) = default;
  MetricResult(MetricResult&&) noexcept = default;
  MetricResult& operator=(const MetricResult&) = default;
  MetricResult& operator=(MetricResult&&) noexcept = default;
};

/// A class of a user's that derives from Metric. The library's own only construct a Metric.
template <class M>
concept OwnMetric = std::derived_from<M, Metric> && !std::same_as<M, Metric> && !requires {
  requires std::same_as<typename M::OfTandem, M>;
};

}  // namespace detail

/// A metric with its accumulated state. A shared handle. update() is thread-safe, so that replicas
/// may share a metric. As tf.keras.metrics.Metric.
///
/// In a td::function an update happens in each run. The value is not known while it is traced:
/// result() and reset_state() there throw FailedPreconditionError, call them outside of it. An
/// update in the graph of a session throws UnimplementedError.
///
/// A metric of your own is a class that overrides update_state() and result(), and keeps its state
/// in variables of add_weight() or in other metrics:
/// @code
/// class TruePositives : public td::metrics::Metric {
///  public:
///   explicit TruePositives(std::string name = "true_positives") : Metric(name) {
///     count_ = add_weight({.name = "count"});
///   }
///   void update_state(const td::Tensor& y_true, const td::Tensor& y_pred,
///                     const td::Tensor& sample_weight = {}) override {
///     count_.assign_add(td::reduce_sum(y_true * td::cast(y_pred > 0.5, td::float32)));
///   }
///   td::Tensor result() override { return count_; }
///
///  private:
///   td::Variable count_;
/// };
/// model.compile({.loss = "mse", .metrics = {TruePositives()}});
/// @endcode
/// As in Keras, the state is SUMMED over batches, replicas and ranks: update_state() adds to it, by
/// a number that depends on the batch alone. fit() and evaluate() call it for each batch, perhaps
/// concurrently, with copies of the variables that are 0, so it changes nothing else; they call
/// result() with the sums. The variables of the object itself change only where you call
/// update_state(). A Metric that is made of such an object holds a copy of it, which has the same
/// variables, or shares it with a shared_ptr.
class Metric : public detail::MetricResult {
 public:
  Metric() = default;
  /// A custom metric.
  Metric(std::string name, std::shared_ptr<const MetricBase> base);
  /// @{
  /// The metric of this name: "accuracy" (sparse, categorical or binary, by the shapes of its
  /// arguments), "mse", "mae", "auc", ..., or the base of a class of your own with this name. A
  /// name that is neither throws InvalidArgumentError that lists the names when the metric is used
  /// or compiled.
  Metric(const char* name);         // NOLINT: a name stands for the metric
  Metric(const std::string& name);  // NOLINT
  /// @}
  /// @{
  /// An object of a class that derives from Metric: a copy of it, or the one of the pointer.
  template <class M>
  requires detail::OwnMetric<std::remove_cvref_t<M>> Metric& operator=(M&& own) {
    return *this = Metric(std::forward<M>(own));
  }
  template <class M>
  requires detail::OwnMetric<std::remove_cvref_t<M>> Metric(M&& own)  // NOLINT: implicit
      : Metric(static_cast<const Metric&>(own)) {
    if (const tandem::detail::OwnCopy copy(&own); copy.outermost())
      hold(std::make_shared<std::remove_cvref_t<M>>(std::forward<M>(own)));
  }
  template <std::derived_from<Metric> M>
  Metric(std::shared_ptr<M> own) {  // NOLINT: implicit
    hold(std::move(own), detail::OwnMetric<M>);
  }
  /// @}

  const std::string& name() const;  ///< name
  /// Definition. Throws InvalidArgumentError that lists the names for an unknown name.
  const MetricBase& base() const;
  /// Adds the statistics of a batch. As update_state() in Keras.
  void update(const Tensor& y_true, const Tensor& y_pred, const Tensor& sample_weight = {});
  /// @{
  /// As update(). A class of your own overrides one of them; the one without weights throws
  /// InvalidArgumentError where there are some.
  virtual void update_state(const Tensor& y_true, const Tensor& y_pred);
  virtual void update_state(const Tensor& y_true, const Tensor& y_pred,
                            const Tensor& sample_weight);
  /// @}
  /// Calls update_state() and returns the value. As calling a metric in Keras.
  double operator()(const Tensor& y_true, const Tensor& y_pred, const Tensor& sample_weight = {});
  /// The statistics of a batch by base(). Predictions of 16 bits are cast to float32, as in Keras.
  std::vector<Tensor> statistics(const Tensor& y_true, const Tensor& y_pred,
                                 const Tensor& sample_weight) const;
  /// Adds statistics().
  void add_statistics(const std::vector<Tensor>& statistics);
  /// The value over all batches since the last reset; 0 before the first update. For a metric
  /// created in the scope of a multi-process strategy: over all processes, which must all call it.
  ///
  /// A template, so that it differs from what a class of your own overrides: `Tensor result()`.
  template <class = void>
  Result result() const {
    return value_or_stand_in();
  }
  /// Discards the accumulated statistics. As reset_state() in Keras.
  void reset();
  /// As reset(). For an object of a class of your own, gives the variables of add_weight() their
  /// initial values.
  virtual void reset_state();
  void reset_states() { reset_state(); }  ///< as reset_state(), its earlier name in Keras

  /// For Tandem's own code.
  struct State;

 protected:
  /// @{
  /// A variable of a class of your own, which is summed over the replicas where each has its own.
  /// As Keras's add_weight and add_variable.
  Variable add_weight(const MetricWeightOptions& options);
  template <std::convertible_to<std::string> Name>
  Variable add_weight(const Name& name, const Shape& shape = Shape::scalar(),
                      const Initializer& initializer = "zeros") {
    return add_weight(
        MetricWeightOptions{.name = name, .shape = shape, .initializer = initializer});
  }
  Variable add_variable(const MetricVariableOptions& options) {
    return add_weight({.name = options.name,
                       .shape = options.shape,
                       .initializer = options.initializer,
                       .dtype = options.dtype});
  }
  /// @}

 private:
  friend class detail::MetricResult;
  double value() const;
  Result value_or_stand_in() const;
  // `own`: of a class that is not Tandem's.
  void hold(std::shared_ptr<Metric> object, bool own = true);

  std::shared_ptr<State> state_;
};

/// The name of a metric, as an argument. Takes what converts to a std::string, but not options in
/// braces, which a std::string would take, too.
class MetricName {
 public:
  /// A name.
  template <std::convertible_to<std::string> S>
  MetricName(S&& name) : name_(std::forward<S>(name)) {}  // NOLINT: implicit
  std::string take() && { return std::move(name_); }      ///< the name

 private:
  std::string name_;
};

/// Options of most metrics.
struct MetricOptions {
  std::string name{};  ///< default: the type in snake case
};
/// Sparse, categorical or binary accuracy, by the shapes of the arguments. As the name "accuracy"
/// in Keras.
class Accuracy : public Metric {
 public:
  using OfTandem = Accuracy;  ///< for Tandem's own code
  /// With this name, in Metric::name() and in logs.
  explicit Accuracy(MetricName name = "accuracy");
  /// With options.
  explicit Accuracy(const MetricOptions& options)
      : Accuracy(options.name.empty() ? MetricName("accuracy") : MetricName(options.name)) {}
};
/// Fraction of examples whose largest prediction is the label; labels are class indices.
class SparseCategoricalAccuracy : public Metric {
 public:
  using OfTandem = SparseCategoricalAccuracy;  ///< for Tandem's own code
  /// With this name, in Metric::name() and in logs.
  explicit SparseCategoricalAccuracy(MetricName name = "sparse_categorical_accuracy");
  /// With options.
  explicit SparseCategoricalAccuracy(const MetricOptions& options)
      : SparseCategoricalAccuracy(options.name.empty() ? "sparse_categorical_accuracy"
                                                       : options.name) {}
};
/// Fraction of examples whose largest prediction is the label; labels are one-hot.
class CategoricalAccuracy : public Metric {
 public:
  using OfTandem = CategoricalAccuracy;  ///< for Tandem's own code
  /// With this name, in Metric::name() and in logs.
  explicit CategoricalAccuracy(MetricName name = "categorical_accuracy");
  /// With options.
  explicit CategoricalAccuracy(const MetricOptions& options)
      : CategoricalAccuracy(options.name.empty() ? MetricName("categorical_accuracy")
                                                 : MetricName(options.name)) {}
};
/// Options of BinaryAccuracy.
struct BinaryAccuracyOptions {
  std::string name = "binary_accuracy";  ///< name
  double threshold = 0.5;                ///< a prediction above it is 1
};
/// Fraction of predictions on the label's side of `threshold`.
class BinaryAccuracy : public Metric {
 public:
  using OfTandem = BinaryAccuracy;  ///< for Tandem's own code
  /// With this threshold and name.
  explicit BinaryAccuracy(double threshold = 0.5, std::string name = "binary_accuracy");
  explicit BinaryAccuracy(MetricName name)
      : BinaryAccuracy(0.5, std::move(name).take()) {}  ///< named
  /// With options.
  explicit BinaryAccuracy(const BinaryAccuracyOptions& options)
      : BinaryAccuracy(options.threshold, options.name) {}
};
/// Options of SparseTopKCategoricalAccuracy.
struct SparseTopKCategoricalAccuracyOptions {
  std::int64_t k = 5;                                      ///< number of predictions
  std::string name = "sparse_top_k_categorical_accuracy";  ///< name
};
/// Fraction of examples whose label is among the k largest predictions.
class SparseTopKCategoricalAccuracy : public Metric {
 public:
  using OfTandem = SparseTopKCategoricalAccuracy;  ///< for Tandem's own code
  /// With this k and name. Throws InvalidArgumentError for a k below 1.
  explicit SparseTopKCategoricalAccuracy(std::int64_t k = 5,
                                         std::string name = "sparse_top_k_categorical_accuracy");
  /// With options.
  explicit SparseTopKCategoricalAccuracy(const SparseTopKCategoricalAccuracyOptions& options)
      : SparseTopKCategoricalAccuracy(options.k, options.name) {}
};
/// Options of TopKCategoricalAccuracy.
struct TopKCategoricalAccuracyOptions {
  std::int64_t k = 5;                               ///< number of predictions
  std::string name = "top_k_categorical_accuracy";  ///< name
};
/// The same where labels are one-hot.
class TopKCategoricalAccuracy : public Metric {
 public:
  using OfTandem = TopKCategoricalAccuracy;  ///< for Tandem's own code
  /// With this k and name. Throws InvalidArgumentError for a k below 1.
  explicit TopKCategoricalAccuracy(std::int64_t k = 5,
                                   std::string name = "top_k_categorical_accuracy");
  /// With options.
  explicit TopKCategoricalAccuracy(const TopKCategoricalAccuracyOptions& options)
      : TopKCategoricalAccuracy(options.k, options.name) {}
};
/// Mean of (y_true - y_pred)^2.
class MeanSquaredError : public Metric {
 public:
  using OfTandem = MeanSquaredError;  ///< for Tandem's own code
  /// With this name, in Metric::name() and in logs.
  explicit MeanSquaredError(MetricName name = "mean_squared_error");
  /// With options.
  explicit MeanSquaredError(const MetricOptions& options)
      : MeanSquaredError(options.name.empty() ? MetricName("mean_squared_error")
                                              : MetricName(options.name)) {}
};
/// Square root of the mean of (y_true - y_pred)^2.
class RootMeanSquaredError : public Metric {
 public:
  using OfTandem = RootMeanSquaredError;  ///< for Tandem's own code
  /// With this name, in Metric::name() and in logs.
  explicit RootMeanSquaredError(MetricName name = "root_mean_squared_error");
  /// With options.
  explicit RootMeanSquaredError(const MetricOptions& options)
      : RootMeanSquaredError(options.name.empty() ? MetricName("root_mean_squared_error")
                                                  : MetricName(options.name)) {}
};
/// Mean of |y_true - y_pred|.
class MeanAbsoluteError : public Metric {
 public:
  using OfTandem = MeanAbsoluteError;  ///< for Tandem's own code
  /// With this name, in Metric::name() and in logs.
  explicit MeanAbsoluteError(MetricName name = "mean_absolute_error");
  /// With options.
  explicit MeanAbsoluteError(const MetricOptions& options)
      : MeanAbsoluteError(options.name.empty() ? MetricName("mean_absolute_error")
                                               : MetricName(options.name)) {}
};
/// Options of Precision.
struct PrecisionOptions {
  double thresholds = 0.5;         ///< a prediction above it is positive
  std::string name = "precision";  ///< name
};
/// True positives / predicted positives.
class Precision : public Metric {
 public:
  using OfTandem = Precision;  ///< for Tandem's own code
  /// With this threshold and name.
  explicit Precision(double threshold = 0.5, std::string name = "precision");
  /// With options.
  explicit Precision(const PrecisionOptions& options)
      : Precision(options.thresholds, options.name) {}
};
/// Options of Recall.
struct RecallOptions {
  double thresholds = 0.5;      ///< a prediction above it is positive
  std::string name = "recall";  ///< name
};
/// True positives / actual positives.
class Recall : public Metric {
 public:
  using OfTandem = Recall;  ///< for Tandem's own code
  /// With this threshold and name.
  explicit Recall(double threshold = 0.5, std::string name = "recall");
  /// With options.
  explicit Recall(const RecallOptions& options) : Recall(options.thresholds, options.name) {}
};
/// Options of AUC.
struct AUCOptions {
  int num_thresholds = 200;  ///< number of thresholds
  std::string name = "auc";  ///< name
  bool from_logits = false;  ///< whether predictions are logits, of which sigmoid is taken
};
/// Area under the ROC curve, approximated with `num_thresholds` thresholds as in Keras.
class AUC : public Metric {
 public:
  using OfTandem = AUC;  ///< for Tandem's own code
  /// With this number and name. Throws InvalidArgumentError for a number below 2.
  explicit AUC(int num_thresholds = 200, std::string name = "auc");
  /// With options.
  explicit AUC(const AUCOptions& options);
};

/// The mean of values, such as the losses of an own loop. As tf.keras.metrics.Mean.
class Mean : public Metric {
 public:
  using OfTandem = Mean;  ///< for Tandem's own code
  /// With this name.
  explicit Mean(MetricName name = "mean");
  /// With options.
  explicit Mean(const MetricOptions& options)
      : Mean(options.name.empty() ? MetricName("mean") : MetricName(options.name)) {}
  /// Adds all elements of `values`. `sample_weight`: undefined, or a weight for each element, or
  /// for each position of the first axis.
  void update_state(const Tensor& values, const Tensor& sample_weight = {}) {
    update(values, values, sample_weight);
  }
  void update_state(double value);  ///< adds one value
  /// Adds the value of another metric.
  void update_state(const Result& value) { update_state(value.value()); }
  /// Calls update_state() and returns the mean.
  template <class Values>
  double operator()(const Values& values) {
    update_state(values);
    return result();
  }
};
/// The sum of values. As tf.keras.metrics.Sum.
class Sum : public Metric {
 public:
  using OfTandem = Sum;  ///< for Tandem's own code
  /// With this name.
  explicit Sum(MetricName name = "sum");
  /// With options.
  explicit Sum(const MetricOptions& options)
      : Sum(options.name.empty() ? MetricName("sum") : MetricName(options.name)) {}
  /// As Mean::update_state().
  void update_state(const Tensor& values, const Tensor& sample_weight = {}) {
    update(values, values, sample_weight);
  }
  void update_state(double value);  ///< adds one value
  /// Adds the value of another metric.
  void update_state(const Result& value) { update_state(value.value()); }
  /// Calls update_state() and returns the sum.
  template <class Values>
  double operator()(const Values& values) {
    update_state(values);
    return result();
  }
};
#pragma GCC diagnostic pop

/// The metric of this name with default options. Throws InvalidArgumentError that lists the names.
Metric from_name(std::string_view name);

}  // namespace tandem::metrics
