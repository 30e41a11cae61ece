/// @file
/// Losses: functions with one value per example, and objects that reduce them. As tf.keras.losses.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "tandem/tensor.h"

/// Losses. As tf.keras.losses.
namespace tandem::losses {

/// divide by is not the loss's to know there (nn::compute_average_loss; fit does it by itself).
/// How the values of a batch become the result of a Loss. As tf.keras.losses.Reduction.
enum class Reduction {
  /// kSumOverBatchSize. Throws inside a strategy's replicas, where the loss does not know the
  /// global batch size: use nn::compute_average_loss() there (fit() does).
  kAuto,
  kNone,              ///< no reduction: one value per example
  kSum,               ///< the sum over examples
  kSumOverBatchSize,  ///< the mean over examples
};

/// A loss function and its reduction. A value; thread-safe. Arguments are (y_true, y_pred), in
/// Keras's order; PyTorch's is the opposite. As tf.keras.losses.Loss.
class Loss {
 public:
  /// Computes one value per example.
  using Function = std::function<Tensor(const Tensor& y_true, const Tensor& y_pred)>;
  Loss() = default;
  /// A custom loss.
  Loss(std::string name, Function per_example, Reduction reduction = Reduction::kAuto)
      : name_(std::move(name)), per_example_(std::move(per_example)), reduction_(reduction) {}
  /// @{
  /// The loss of this name ("mse", "sparse_categorical_crossentropy", ...) with default options.
  /// Throws InvalidArgumentError that lists the names.
  Loss(const char* name);         // NOLINT: a name stands for the loss
  Loss(const std::string& name);  // NOLINT
  /// @}

  /// False for a default-constructed loss.
  bool defined() const { return static_cast<bool>(per_example_); }
  const std::string& name() const { return name_; }   ///< name
  Reduction reduction() const { return reduction_; }  ///< reduction
  /// One value per example: shape [batch], or [batch, ...] for losses over positions.
  Tensor per_example(const Tensor& y_true, const Tensor& y_pred) const;
  /// The reduced loss: a scalar, or one value per example with kNone. `sample_weight`: undefined,
  /// or one value per example.
  Tensor operator()(const Tensor& y_true, const Tensor& y_pred,
                    const Tensor& sample_weight = {}) const;

 private:
  std::string name_;
  Function per_example_;
  Reduction reduction_ = Reduction::kAuto;
};

/// Options of crossentropy losses.
struct CrossentropyOptions {
  bool from_logits = false;                ///< whether y_pred holds logits instead of probabilities
  double label_smoothing = 0.0;            ///< smoothing of labels; not for sparse ones
  Reduction reduction = Reduction::kAuto;  ///< reduction
};
/// Options of losses.
struct LossOptions {
  Reduction reduction = Reduction::kAuto;  ///< reduction
};
/// @{
/// Crossentropy losses. As their namesakes in tf.keras.losses.
///
/// Sparse: y_true holds class indices, one axis less than y_pred. Categorical: y_true holds
/// probabilities (one-hot) in y_pred's shape. Binary: y_true holds 0 or 1 in y_pred's shape.
Loss SparseCategoricalCrossentropy(const CrossentropyOptions& options = {});
Loss CategoricalCrossentropy(const CrossentropyOptions& options = {});
Loss BinaryCrossentropy(const CrossentropyOptions& options = {});
/// @}
Loss MeanSquaredError(const LossOptions& options = {});   ///< mean of (y_true - y_pred)^2. As Keras
Loss MeanAbsoluteError(const LossOptions& options = {});  ///< mean of |y_true - y_pred|. As Keras
/// Options of Huber().
struct HuberOptions {
  double delta = 1.0;                      ///< where the loss turns from quadratic to linear
  Reduction reduction = Reduction::kAuto;  ///< reduction
};
/// Quadratic for errors up to delta, linear beyond. As tf.keras.losses.Huber.
Loss Huber(const HuberOptions& options = {});
/// Sum of y_true * log(y_true / y_pred). As Keras.
Loss KLDivergence(const LossOptions& options = {});
/// Mean of max(1 - y_true * y_pred, 0); labels 0 become -1. As Keras.
Loss Hinge(const LossOptions& options = {});

/// @{
/// The losses above as functions: one value per example, with the last axis reduced. As their
/// namesakes in tf.keras.losses.
[[nodiscard]] Tensor mse(const Tensor& y_true, const Tensor& y_pred);
[[nodiscard]] Tensor mae(const Tensor& y_true, const Tensor& y_pred);
[[nodiscard]] Tensor huber(const Tensor& y_true, const Tensor& y_pred, double delta = 1.0);
[[nodiscard]] Tensor hinge(const Tensor& y_true, const Tensor& y_pred);
[[nodiscard]] Tensor kl_divergence(const Tensor& y_true, const Tensor& y_pred);
[[nodiscard]] Tensor binary_crossentropy(const Tensor& y_true, const Tensor& y_pred,
                                         const CrossentropyOptions& options = {});
[[nodiscard]] Tensor categorical_crossentropy(const Tensor& y_true, const Tensor& y_pred,
                                              const CrossentropyOptions& options = {});
[[nodiscard]] Tensor sparse_categorical_crossentropy(const Tensor& y_true, const Tensor& y_pred,
                                                     const CrossentropyOptions& options = {});
/// @}

/// The loss of this name with default options. Throws InvalidArgumentError that lists the names.
Loss from_name(std::string_view name);

}  // namespace tandem::losses
