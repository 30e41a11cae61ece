/// @file
/// Losses: functions with one value per example, and objects that reduce them. As tf.keras.losses.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "tandem/own_copy.h"
#include "tandem/tensor.h"

/// Losses. As tf.keras.losses.
namespace tandem::losses {

/// How the values of a batch become the result of a Loss. As tf.keras.losses.Reduction.
enum class Reduction {
  /// kSumOverBatchSize. Throws inside a strategy's replicas, where the loss does not know the
  /// global batch size: use nn::compute_average_loss() there (fit() does).
  kAuto,
  kNone,                                    ///< no reduction: one value per example
  kSum,                                     ///< the sum over examples
  kSumOverBatchSize,                        ///< the mean over examples
  AUTO = kAuto,                             ///< as kAuto
  NONE = kNone,                             ///< as kNone
  SUM = kSum,                               ///< as kSum
  SUM_OVER_BATCH_SIZE = kSumOverBatchSize,  ///< as kSumOverBatchSize
  None = kNone,                             ///< as kNone
  Sum = kSum,                               ///< as kSum
  SumOverBatchSize = kSumOverBatchSize,     ///< as kSumOverBatchSize
};

/// A Reduction in options, also by its name in Keras.
class ReductionOption {
 public:
  ReductionOption() = default;  ///< kAuto
  /// This reduction.
  ReductionOption(Reduction reduction) : reduction_(reduction) {}  // NOLINT: stands for it
  /// "none", "sum", "mean" or "sum_over_batch_size". Throws InvalidArgumentError for another name.
  ReductionOption(const char* name);  // NOLINT: stands for it
  /// The reduction.
  operator Reduction() const { return reduction_; }  // NOLINT: stands for it

 private:
  Reduction reduction_ = Reduction::kAuto;
};

class Loss;
struct BinaryFocalOptions;
struct CategoricalFocalOptions;
struct CrossentropyOptions;

namespace detail {

/// A class of a user's that derives from Loss. The library's own only construct a Loss.
template <class L>
concept OwnLoss = std::derived_from<L, Loss> && !std::same_as<L, Loss> && !requires {
  requires std::same_as<typename L::OfTandem, L>;
};
/// A callable (y_true, y_pred). Those of nn, which take (input, target), convert by themselves.
template <class F>
concept LossFunction = !std::derived_from<F, Loss> && !requires {
  typename F::TakesInputFirst;
}
&&std::is_invocable_r_v<Tensor, F&, const Tensor&, const Tensor&>;

}  // namespace detail

/// A loss function and its reduction. A value; thread-safe. Arguments are (y_true, y_pred), in
/// Keras's order; PyTorch's is the opposite. As tf.keras.losses.Loss.
///
/// A loss of your own is a function, or a class that overrides call():
/// @code
/// class Weighted : public td::losses::Loss {
///  public:
///   explicit Weighted(float weight) : weight_(weight) {}
///   td::Tensor call(const td::Tensor& y_true, const td::Tensor& y_pred) override {
///     return weight_ * td::losses::mse(y_true, y_pred);
///   }
///
///  private:
///   float weight_;
/// };
/// model.compile({.loss = Weighted(2.0f)});
/// @endcode
/// A Loss that is made of such an object holds a copy of it, or shares it with a shared_ptr.
class Loss {
 public:
  /// Computes one value per example, or a scalar: the mean over the examples (the sum with
  /// Reduction::kSum).
  using Function = std::function<Tensor(const Tensor& y_true, const Tensor& y_pred)>;
  Loss() = default;
  virtual ~Loss() = default;
  /// @{
  /// Copies compute the same.
  Loss(const Loss&) = default;
  Loss(Loss&&) noexcept = default;
  Loss& operator=(const Loss&) = default;
  Loss& operator=(Loss&&) noexcept = default;
  /// @}
  /// A custom loss.
  Loss(std::string name, Function per_example, Reduction reduction = Reduction::kAuto)
      : name_(std::move(name)), per_example_(std::move(per_example)), reduction_(reduction) {}
  /// @{
  /// The loss of this name ("mse", "sparse_categorical_crossentropy", ...) with default options, or
  /// the base of a class of your own with this name. A name that is neither throws
  /// InvalidArgumentError that lists the names when the loss is used or compiled.
  Loss(const char* name);         // NOLINT: a name stands for the loss
  Loss(const std::string& name);  // NOLINT
  /// @}
  /// The base of a class of your own.
  Loss(std::string name, Reduction reduction) : name_(std::move(name)), reduction_(reduction) {}
  /// A function, or another callable.
  template <class F>
  requires detail::LossFunction<F> Loss(F function)  // NOLINT: implicit
      : Loss("loss", Function(std::move(function))) {}
  /// A function of this namespace with options, such as binary_crossentropy, which gets the default
  /// ones.
  template <class Options>
  Loss(Tensor (*function)(const Tensor&, const Tensor&, const Options&))  // NOLINT: implicit
      : Loss("loss", [function](const Tensor& y_true, const Tensor& y_pred) {
          return function(y_true, y_pred, Options());
        }) {
    static_assert(std::is_same_v<Options, CrossentropyOptions> ||
                      std::is_same_v<Options, BinaryFocalOptions> ||
                      std::is_same_v<Options, CategoricalFocalOptions>,
                  "a loss takes (y_true, y_pred), and the functions of nn::functional take (input, "
                  "target): use a class, such as nn::MSELoss(), or a function of losses");
  }
  /// @{
  /// An object of a class that derives from Loss: a copy of it, or the one of the pointer.
  template <class L>
  requires detail::OwnLoss<std::remove_cvref_t<L>> Loss(L&& own)  // NOLINT: implicit
      : Loss(static_cast<const Loss&>(own)) {
    if (const tandem::detail::OwnCopy copy(&own); copy.outermost())
      hold(std::make_shared<std::remove_cvref_t<L>>(std::forward<L>(own)));
  }
  template <class L>
  requires detail::OwnLoss<std::remove_cvref_t<L>> Loss& operator=(L&& own) {
    return *this = Loss(std::forward<L>(own));
  }
  template <std::derived_from<Loss> L>
  Loss(std::shared_ptr<L> own) {  // NOLINT: implicit
    hold(std::move(own));
  }
  /// @}

  /// Overridden by classes of your own, with or without `const`: one value per example, or a
  /// scalar, as Function. Replicas call it concurrently. Throws FailedPreconditionError if there is
  /// no loss.
  /// @{
  virtual Tensor call(const Tensor& y_true, const Tensor& y_pred);
  virtual Tensor call(const Tensor& y_true, const Tensor& y_pred) const;
  /// @}

  /// False for a default-constructed loss.
  bool defined() const { return own_ || per_example_ || !name_.empty(); }
  const std::string& name() const { return name_; }   ///< name
  Reduction reduction() const { return reduction_; }  ///< reduction
  /// Whether predictions are probabilities: a crossentropy without from_logits.
  bool expects_probabilities() const { return expects_probabilities_; }
  /// Throws InvalidArgumentError that lists the names if name() is not the name of a loss.
  void require_known() const;
  /// One value per example: shape [batch], or [batch, ...] for losses over positions. Throws
  /// InvalidArgumentError if the arguments are swapped: integers as y_pred, and others as y_true.
  Tensor per_example(const Tensor& y_true, const Tensor& y_pred) const;
  /// The reduced loss: a scalar, or one value per example with kNone. `sample_weight`: undefined,
  /// or one value per example.
  Tensor operator()(const Tensor& y_true, const Tensor& y_pred,
                    const Tensor& sample_weight = {}) const;

 protected:
  /// A crossentropy.
  Loss(std::string name, Function per_example, const CrossentropyOptions& options);

 private:
  void hold(std::shared_ptr<Loss> own);

  std::string name_;
  Function per_example_;
  Reduction reduction_ = Reduction::kAuto;
  bool expects_probabilities_ = false;
  std::shared_ptr<Loss> own_;  // an object of a derived class
};

/// Options of crossentropy losses.
struct CrossentropyOptions {
  bool from_logits = false;      ///< whether y_pred holds logits instead of probabilities
  double label_smoothing = 0.0;  ///< smoothing of labels; not for sparse ones
  /// The class of labels that do not count; for sparse labels. Their values are 0, and means are
  /// over the others of the batch, or of a replica's part of it. 0 if none is left.
  std::optional<std::int64_t> ignore_class{};
  ReductionOption reduction{};  ///< reduction
  std::string name{};           ///< default: that of the loss
};
/// Options of losses.
struct LossOptions {
  ReductionOption reduction{};  ///< reduction
  std::string name{};           ///< default: that of the loss
};
/// Crossentropy of class indices: y_true has one axis less than y_pred. As
/// tf.keras.losses.SparseCategoricalCrossentropy.
class SparseCategoricalCrossentropy : public Loss {
 public:
  using OfTandem = SparseCategoricalCrossentropy;  ///< for Tandem's own code
  explicit SparseCategoricalCrossentropy(
      const CrossentropyOptions& options = {});  ///< with these options
  /// {.from_logits = from_logits}.
  template <std::same_as<bool> Bool>
  explicit SparseCategoricalCrossentropy(Bool from_logits)
      : SparseCategoricalCrossentropy(CrossentropyOptions{.from_logits = from_logits}) {}
};
/// Crossentropy of probabilities (one-hot) in y_pred's shape. As
/// tf.keras.losses.CategoricalCrossentropy.
class CategoricalCrossentropy : public Loss {
 public:
  using OfTandem = CategoricalCrossentropy;  ///< for Tandem's own code
  explicit CategoricalCrossentropy(
      const CrossentropyOptions& options = {});  ///< with these options
  /// {.from_logits = from_logits}.
  template <std::same_as<bool> Bool>
  explicit CategoricalCrossentropy(Bool from_logits)
      : CategoricalCrossentropy(CrossentropyOptions{.from_logits = from_logits}) {}
};
/// Crossentropy of 0 or 1 in y_pred's shape. As tf.keras.losses.BinaryCrossentropy.
class BinaryCrossentropy : public Loss {
 public:
  using OfTandem = BinaryCrossentropy;                                   ///< for Tandem's own code
  explicit BinaryCrossentropy(const CrossentropyOptions& options = {});  ///< with these options
  /// {.from_logits = from_logits}.
  template <std::same_as<bool> Bool>
  explicit BinaryCrossentropy(Bool from_logits)
      : BinaryCrossentropy(CrossentropyOptions{.from_logits = from_logits}) {}
};
/// Mean of (y_true - y_pred)^2. As Keras.
class MeanSquaredError : public Loss {
 public:
  using OfTandem = MeanSquaredError;                           ///< for Tandem's own code
  explicit MeanSquaredError(const LossOptions& options = {});  ///< with these options
};
/// Mean of |y_true - y_pred|. As Keras.
class MeanAbsoluteError : public Loss {
 public:
  using OfTandem = MeanAbsoluteError;                           ///< for Tandem's own code
  explicit MeanAbsoluteError(const LossOptions& options = {});  ///< with these options
};
/// Options of Huber.
struct HuberOptions {
  double delta = 1.0;           ///< where the loss turns from quadratic to linear
  ReductionOption reduction{};  ///< reduction
  std::string name{};           ///< default: that of the loss
};
/// Quadratic for errors up to delta, linear beyond. As tf.keras.losses.Huber.
class Huber : public Loss {
 public:
  using OfTandem = Huber;                            ///< for Tandem's own code
  explicit Huber(const HuberOptions& options = {});  ///< with these options
  /// With this delta.
  explicit Huber(double delta) : Huber(HuberOptions{.delta = delta}) {}
};
/// Sum of y_true * log(y_true / y_pred). As Keras.
class KLDivergence : public Loss {
 public:
  using OfTandem = KLDivergence;                           ///< for Tandem's own code
  explicit KLDivergence(const LossOptions& options = {});  ///< with these options
};
/// Mean of max(1 - y_true * y_pred, 0); labels 0 become -1. As Keras.
class Hinge : public Loss {
 public:
  using OfTandem = Hinge;                           ///< for Tandem's own code
  explicit Hinge(const LossOptions& options = {});  ///< with these options
};

/// Mean of (max(1 - y_true * y_pred, 0))^2; labels 0 become -1. As Keras.
class SquaredHinge : public Loss {
 public:
  using OfTandem = SquaredHinge;                           ///< for Tandem's own code
  explicit SquaredHinge(const LossOptions& options = {});  ///< with these options
};
/// max(n - p + 1, 0), where p is the prediction of the class that y_true (one-hot) has, and n the
/// largest of the others, at least 0. As Keras.
class CategoricalHinge : public Loss {
 public:
  using OfTandem = CategoricalHinge;                           ///< for Tandem's own code
  explicit CategoricalHinge(const LossOptions& options = {});  ///< with these options
};
/// Mean of 100 * |y_true - y_pred| / max(|y_true|, 1e-7). As Keras.
class MeanAbsolutePercentageError : public Loss {
 public:
  using OfTandem = MeanAbsolutePercentageError;                           ///< for Tandem's own code
  explicit MeanAbsolutePercentageError(const LossOptions& options = {});  ///< with these options
};
/// Mean of (log(y_true + 1) - log(y_pred + 1))^2, of numbers of at least 1e-7. As Keras.
class MeanSquaredLogarithmicError : public Loss {
 public:
  using OfTandem = MeanSquaredLogarithmicError;                           ///< for Tandem's own code
  explicit MeanSquaredLogarithmicError(const LossOptions& options = {});  ///< with these options
};
/// Mean of log(cosh(y_pred - y_true)), without overflow. As Keras.
class LogCosh : public Loss {
 public:
  using OfTandem = LogCosh;                           ///< for Tandem's own code
  explicit LogCosh(const LossOptions& options = {});  ///< with these options
};
/// Mean of y_pred - y_true * log(y_pred + 1e-7). As Keras.
class Poisson : public Loss {
 public:
  using OfTandem = Poisson;                           ///< for Tandem's own code
  explicit Poisson(const LossOptions& options = {});  ///< with these options
};
/// Minus the cosine of the angle of y_true and y_pred over the last axis: -1 for equal directions.
/// As Keras.
class CosineSimilarity : public Loss {
 public:
  using OfTandem = CosineSimilarity;                           ///< for Tandem's own code
  explicit CosineSimilarity(const LossOptions& options = {});  ///< with these options
};
/// 1 - 2 * sum(y_true * y_pred) / (sum(y_true) + sum(y_pred) + 1e-7), over the whole batch: every
/// replica over its own part. For segmentation. As Keras, without `axis`.
class Dice : public Loss {
 public:
  using OfTandem = Dice;                           ///< for Tandem's own code
  explicit Dice(const LossOptions& options = {});  ///< with these options
};
/// Options of Tversky. As Keras, without `axis`.
struct TverskyOptions {
  double alpha = 0.5;           ///< weight of false positives
  double beta = 0.5;            ///< weight of false negatives
  ReductionOption reduction{};  ///< reduction
  std::string name{};           ///< default: that of the loss
};
/// 1 - t / (t + alpha * p + beta * n + 1e-7) with the sums t of true positives, p of false
/// positives and n of false negatives over the whole batch, as Dice. As Keras.
class Tversky : public Loss {
 public:
  using OfTandem = Tversky;                              ///< for Tandem's own code
  explicit Tversky(const TverskyOptions& options = {});  ///< with these options
};
/// Connectionist temporal classification of logits y_pred [batch, time, classes] and class indices
/// y_true [batch, labels], which class 0 pads: an example has as many labels as elements that are
/// not 0. Class 0 is the blank. One value per example, not divided by its number of labels; other
/// properties are those of nn::functional::ctc_loss(). As Keras.
class CTC : public Loss {
 public:
  using OfTandem = CTC;                           ///< for Tandem's own code
  explicit CTC(const LossOptions& options = {});  ///< with these options
};
/// Options of BinaryFocalCrossentropy. As Keras.
struct BinaryFocalOptions {
  bool apply_class_balancing = false;  ///< whether `alpha` weighs the classes
  double alpha = 0.25;                 ///< weight of class 1; that of class 0 is 1 - alpha
  double gamma = 2.0;                  ///< exponent of the weight of examples that are not certain
  bool from_logits = false;            ///< whether y_pred holds logits instead of probabilities
  double label_smoothing = 0.0;        ///< smoothing of labels
  ReductionOption reduction{};         ///< reduction
  std::string name{};                  ///< default: that of the loss
};
/// BinaryCrossentropy times (1 - p)^gamma, where p is the probability of the label (Lin et al.,
/// 2017). As Keras.
class BinaryFocalCrossentropy : public Loss {
 public:
  using OfTandem = BinaryFocalCrossentropy;  ///< for Tandem's own code
  explicit BinaryFocalCrossentropy(const BinaryFocalOptions& options = {});  ///< with these options
};
/// Options of CategoricalFocalCrossentropy. As Keras.
struct CategoricalFocalOptions {
  double alpha = 0.25;           ///< factor of the loss
  double gamma = 2.0;            ///< exponent of the weight of examples that are not certain
  bool from_logits = false;      ///< whether y_pred holds logits instead of probabilities
  double label_smoothing = 0.0;  ///< smoothing of labels
  ReductionOption reduction{};   ///< reduction
  std::string name{};            ///< default: that of the loss
};
/// CategoricalCrossentropy, each class times alpha * (1 - p)^gamma, where p is its probability. As
/// Keras.
class CategoricalFocalCrossentropy : public Loss {
 public:
  using OfTandem = CategoricalFocalCrossentropy;  ///< for Tandem's own code
  /// With these options.
  explicit CategoricalFocalCrossentropy(const CategoricalFocalOptions& options = {});
};

/// @{
/// The losses above as functions: one value per example, with the last axis reduced; dice() and
/// tversky() give a scalar. As their namesakes in tf.keras.losses.
[[nodiscard]] Tensor mse(const Tensor& y_true, const Tensor& y_pred);
[[nodiscard]] Tensor mae(const Tensor& y_true, const Tensor& y_pred);
[[nodiscard]] Tensor huber(const Tensor& y_true, const Tensor& y_pred, double delta = 1.0);
[[nodiscard]] Tensor hinge(const Tensor& y_true, const Tensor& y_pred);
[[nodiscard]] Tensor kl_divergence(const Tensor& y_true, const Tensor& y_pred);
[[nodiscard]] Tensor squared_hinge(const Tensor& y_true, const Tensor& y_pred);
[[nodiscard]] Tensor categorical_hinge(const Tensor& y_true, const Tensor& y_pred);
[[nodiscard]] Tensor mean_absolute_percentage_error(const Tensor& y_true, const Tensor& y_pred);
[[nodiscard]] Tensor mean_squared_logarithmic_error(const Tensor& y_true, const Tensor& y_pred);
[[nodiscard]] Tensor log_cosh(const Tensor& y_true, const Tensor& y_pred);
[[nodiscard]] Tensor poisson(const Tensor& y_true, const Tensor& y_pred);
[[nodiscard]] Tensor cosine_similarity(const Tensor& y_true, const Tensor& y_pred);
[[nodiscard]] Tensor ctc(const Tensor& y_true, const Tensor& y_pred);
[[nodiscard]] Tensor dice(const Tensor& y_true, const Tensor& y_pred);
[[nodiscard]] Tensor tversky(const Tensor& y_true, const Tensor& y_pred, double alpha = 0.5,
                             double beta = 0.5);
[[nodiscard]] Tensor binary_focal_crossentropy(const Tensor& y_true, const Tensor& y_pred,
                                               const BinaryFocalOptions& options = {});
[[nodiscard]] Tensor categorical_focal_crossentropy(const Tensor& y_true, const Tensor& y_pred,
                                                    const CategoricalFocalOptions& options = {});
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
