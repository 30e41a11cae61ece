// Losses: as functions of one value an example, and as objects that average them.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "tandem/tensor.h"

namespace tandem::losses {

// kAuto is kSumOverBatchSize, except inside a strategy's replicas, where it is an error: what to
// divide by is not the loss's to know there (nn::compute_average_loss; fit does it by itself).
enum class Reduction { kAuto, kNone, kSum, kSumOverBatchSize };

// Of y_true and y_pred, in this order. A value; thread-safe.
class Loss {
 public:
  using Function = std::function<Tensor(const Tensor& y_true, const Tensor& y_pred)>;
  Loss() = default;
  Loss(std::string name, Function per_example, Reduction reduction = Reduction::kAuto)
      : name_(std::move(name)), per_example_(std::move(per_example)), reduction_(reduction) {}
  // By name: "mse", "sparse_categorical_crossentropy", ... Throws InvalidArgumentError naming them
  // all.
  Loss(const char* name);         // NOLINT: a name stands for the loss
  Loss(const std::string& name);  // NOLINT

  bool defined() const { return static_cast<bool>(per_example_); }
  const std::string& name() const { return name_; }
  Reduction reduction() const { return reduction_; }
  // One value an example: shape (batch) or (batch, ...) for losses over positions.
  Tensor per_example(const Tensor& y_true, const Tensor& y_pred) const;
  // Reduced to a scalar (kNone: per example). `sample_weight`: undefined, or one value an example.
  Tensor operator()(const Tensor& y_true, const Tensor& y_pred,
                    const Tensor& sample_weight = {}) const;

 private:
  std::string name_;
  Function per_example_;
  Reduction reduction_ = Reduction::kAuto;
};

struct CrossentropyOptions {
  bool from_logits = false;
  double label_smoothing = 0.0;  // dense labels only
  Reduction reduction = Reduction::kAuto;
};
struct LossOptions {
  Reduction reduction = Reduction::kAuto;
};
Loss SparseCategoricalCrossentropy(const CrossentropyOptions& options = {});
Loss CategoricalCrossentropy(const CrossentropyOptions& options = {});
Loss BinaryCrossentropy(const CrossentropyOptions& options = {});
Loss MeanSquaredError(const LossOptions& options = {});
Loss MeanAbsoluteError(const LossOptions& options = {});
struct HuberOptions {
  double delta = 1.0;
  Reduction reduction = Reduction::kAuto;
};
Loss Huber(const HuberOptions& options = {});
Loss KLDivergence(const LossOptions& options = {});
Loss Hinge(const LossOptions& options = {});

// One value an example: the mean over the last axis where there is one to average.
Tensor mse(const Tensor& y_true, const Tensor& y_pred);
Tensor mae(const Tensor& y_true, const Tensor& y_pred);
Tensor huber(const Tensor& y_true, const Tensor& y_pred, double delta = 1.0);
Tensor hinge(const Tensor& y_true, const Tensor& y_pred);
Tensor kl_divergence(const Tensor& y_true, const Tensor& y_pred);
Tensor binary_crossentropy(const Tensor& y_true, const Tensor& y_pred,
                           const CrossentropyOptions& options = {});
Tensor categorical_crossentropy(const Tensor& y_true, const Tensor& y_pred,
                                const CrossentropyOptions& options = {});
Tensor sparse_categorical_crossentropy(const Tensor& y_true, const Tensor& y_pred,
                                       const CrossentropyOptions& options = {});

Loss from_name(std::string_view name);

}  // namespace tandem::losses
