/// @file
/// Functions and losses with the names, argument order and defaults of PyTorch: (input, target),
/// and the mean as reduction. Those of Keras, with (y_true, y_pred), are in tandem/losses.h.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "tandem/activations.h"
#include "tandem/losses.h"
#include "tandem/math.h"
#include "tandem/nn.h"
#include "tandem/tensor.h"

namespace tandem::nn {

/// How a loss of PyTorch's order becomes a result: a value, or its name.
class LossReduction {
 public:
  /// The reductions.
  enum Value {
    kNone,       ///< no reduction
    kMean,       ///< the mean over all elements
    kSum,        ///< the sum
    kBatchMean,  ///< the sum divided by the first axis' size; kl_div() only
  };
  LossReduction() = default;  ///< kMean
  /// One of the values.
  LossReduction(Value value) : value_(value) {}  // NOLINT: implicit
  /// "none", "mean", "sum" or "batchmean". Throws InvalidArgumentError for another name.
  LossReduction(const char* name);        // NOLINT: implicit
  Value value() const { return value_; }  ///< the value

 private:
  Value value_ = kMean;
};

/// Functions of torch.nn.functional, as its `F`. Layouts are Tandem's, with channels last, unless
/// said otherwise. Losses throw InvalidArgumentError if input and target differ in shape, where
/// PyTorch warns, and if they are swapped: a target of floating-point numbers for an input of
/// integers.
namespace functional {

/// Options of most losses.
struct LossOptions {
  LossReduction reduction = LossReduction::kMean;  ///< reduction
};
/// Options of cross_entropy().
struct CrossEntropyOptions {
  Tensor weight{};                                 ///< a factor per class [C]; undefined: all 1
  std::int64_t ignore_index = -100;                ///< class index of targets that do not count
  LossReduction reduction = LossReduction::kMean;  ///< reduction
  double label_smoothing = 0.0;                    ///< weight of a uniform distribution, in [0, 1]
};
/// Cross entropy of logits [C], [N, C] or [N, C, d1, ...]: classes are the last of up to two axes,
/// and the second of more. `target`: class indices [N, d1, ...], or probabilities of the input's
/// shape.
///
/// "mean" divides the sum by the sum of the targets' weights: those with ignore_index have none,
/// and if all have it the result is NaN. With probabilities it divides by the number of targets.
/// compile() and replicas take the mean of their own part of the batch. Throws InvalidArgumentError
/// for other shapes, a class out of range (which it names), and a positive ignore_index with
/// probabilities. As torch.nn.functional.cross_entropy.
[[nodiscard]] Tensor cross_entropy(const Tensor& input, const Tensor& target,
                                   const CrossEntropyOptions& options = {});
/// Options of nll_loss(), as those of cross_entropy().
struct NllOptions {
  Tensor weight{};                                 ///< a factor per class [C]; undefined: all 1
  std::int64_t ignore_index = -100;                ///< class index of targets that do not count
  LossReduction reduction = LossReduction::kMean;  ///< reduction
};
/// Minus the log-probability of the target. `input`: log-probabilities in a shape as that of
/// cross_entropy(); `target`: class indices. As torch.nn.functional.nll_loss.
[[nodiscard]] Tensor nll_loss(const Tensor& input, const Tensor& target,
                              const NllOptions& options = {});
/// (input - target)^2. As torch.nn.functional.mse_loss.
[[nodiscard]] Tensor mse_loss(const Tensor& input, const Tensor& target,
                              const LossOptions& options = {});
/// |input - target|. As torch.nn.functional.l1_loss.
[[nodiscard]] Tensor l1_loss(const Tensor& input, const Tensor& target,
                             const LossOptions& options = {});
/// Options of smooth_l1_loss().
struct SmoothL1Options {
  LossReduction reduction = LossReduction::kMean;  ///< reduction
  double beta = 1.0;                               ///< where the loss turns linear
};
/// d^2 / (2 beta) for errors d below beta, else |d| - beta / 2. As
/// torch.nn.functional.smooth_l1_loss.
[[nodiscard]] Tensor smooth_l1_loss(const Tensor& input, const Tensor& target,
                                    const SmoothL1Options& options = {});
/// Options of huber_loss().
struct HuberOptions {
  LossReduction reduction = LossReduction::kMean;  ///< reduction
  double delta = 1.0;                              ///< where the loss turns linear
};
/// d^2 / 2 for errors d below delta, else delta * (|d| - delta / 2). As
/// torch.nn.functional.huber_loss.
[[nodiscard]] Tensor huber_loss(const Tensor& input, const Tensor& target,
                                const HuberOptions& options = {});
/// Options of binary_cross_entropy().
struct BinaryCrossEntropyOptions {
  Tensor weight{};                                 ///< factors that broadcast to the input's shape
  LossReduction reduction = LossReduction::kMean;  ///< reduction
};
/// Binary cross entropy of probabilities; logarithms are limited to -100. As
/// torch.nn.functional.binary_cross_entropy.
[[nodiscard]] Tensor binary_cross_entropy(const Tensor& input, const Tensor& target,
                                          const BinaryCrossEntropyOptions& options = {});
/// Options of binary_cross_entropy_with_logits().
struct LogitsCrossEntropyOptions {
  Tensor weight{};                                 ///< factors that broadcast to the input's shape
  LossReduction reduction = LossReduction::kMean;  ///< reduction
  Tensor pos_weight{};  ///< factors of the positive targets; they broadcast to the input's shape
};
/// Binary cross entropy of logits. As torch.nn.functional.binary_cross_entropy_with_logits.
[[nodiscard]] Tensor binary_cross_entropy_with_logits(
    const Tensor& input, const Tensor& target, const LogitsCrossEntropyOptions& options = {});
/// Options of kl_div().
struct KlDivOptions {
  LossReduction reduction = LossReduction::kMean;  ///< "batchmean" is the mathematical one
  bool log_target = false;                         ///< whether `target` holds logarithms
};
/// target * (log(target) - input); `input` holds log-probabilities. As torch.nn.functional.kl_div.
[[nodiscard]] Tensor kl_div(const Tensor& input, const Tensor& target,
                            const KlDivOptions& options = {});

// The activations that are the same there.
using nn::elu;
using nn::log_softmax;
using nn::relu;
using nn::selu;
using nn::softmax;
using tandem::sigmoid;
using tandem::tanh;
/// Options of scaled_dot_product_attention(). As the arguments of
/// torch.nn.functional.scaled_dot_product_attention.
struct AttentionOptions {
  Tensor attn_mask{};             ///< as nn::AttentionOptions::mask
  double dropout_p = 0.0;         ///< dropout rate of the attention weights
  bool is_causal = false;         ///< query i attends to keys 0 to i only
  std::optional<double> scale{};  ///< scale of the scores; default: 1 / sqrt(depth)
};
/// nn::scaled_dot_product_attention() in PyTorch's layout: [batch, heads, length, depth], also of
/// the result. As torch.nn.functional.scaled_dot_product_attention, of tensors with four axes.
[[nodiscard]] Tensor scaled_dot_product_attention(const Tensor& query, const Tensor& key,
                                                  const Tensor& value,
                                                  const AttentionOptions& options = {});
/// The int64 vectors of classes with 1 at the class. As torch.nn.functional.one_hot, but
/// num_classes is required, and a class outside of [0, num_classes) gives zeros.
[[nodiscard]] Tensor one_hot(const Tensor& classes, Dim num_classes);
[[nodiscard]] Tensor silu(const Tensor& x);  ///< x * sigmoid(x)
/// x if x > 0, else negative_slope * x. The default is PyTorch's.
[[nodiscard]] Tensor leaky_relu(const Tensor& x, double negative_slope = 0.01);
/// nn::dropout() in training, else x.
[[nodiscard]] Tensor dropout(const Tensor& x, double p = 0.5, bool training = true);
/// x . weight^T + bias, with a weight of shape [out, in] as in PyTorch. `bias`: [out] or undefined.
[[nodiscard]] Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias = {});
/// x divided by its p-norm along an axis, which is at least eps. As torch.nn.functional.normalize.
[[nodiscard]] Tensor normalize(const Tensor& x, double p = 2.0, std::int64_t dim = 1,
                               double eps = 1e-12);

}  // namespace functional

/// The base of the losses below: callable with (input, target). Converts to a losses::Loss, for
/// compile(), which calls it with the arguments in the right order.
class LossModule {
 public:
  /// Marks losses whose first argument is the prediction.
  using TakesInputFirst = void;
  /// A loss without a reduction.
  using Function = std::function<Tensor(const Tensor& input, const Tensor& target)>;
  /// The loss of predictions and targets.
  Tensor operator()(const Tensor& input, const Tensor& target) const;
  /// As operator().
  Tensor forward(const Tensor& input, const Tensor& target) const { return (*this)(input, target); }
  const LossModule* operator->() const { return this; }  ///< for loss->forward(), as in libtorch
  operator losses::Loss() const;                         ///< NOLINT: implicit

 protected:
  /// For the types below.
  LossModule(const char* name, Function elements, LossReduction reduction)
      : name_(name), elements_(std::move(elements)), reduction_(reduction) {}

 private:
  const char* name_;
  Function elements_;
  LossReduction reduction_;
};

/// functional::cross_entropy() as an object. As torch.nn.CrossEntropyLoss.
class CrossEntropyLoss : public LossModule {
 public:
  /// With these options.
  explicit CrossEntropyLoss(const functional::CrossEntropyOptions& options = {});
};
/// functional::nll_loss() as an object. As torch.nn.NLLLoss.
class NLLLoss : public LossModule {
 public:
  explicit NLLLoss(const functional::NllOptions& options = {});  ///< with these options
};
/// functional::mse_loss() as an object. As torch.nn.MSELoss.
class MSELoss : public LossModule {
 public:
  explicit MSELoss(const functional::LossOptions& options = {});  ///< with these options
};
/// functional::l1_loss() as an object. As torch.nn.L1Loss.
class L1Loss : public LossModule {
 public:
  explicit L1Loss(const functional::LossOptions& options = {});  ///< with these options
};
/// functional::smooth_l1_loss() as an object. As torch.nn.SmoothL1Loss.
class SmoothL1Loss : public LossModule {
 public:
  explicit SmoothL1Loss(const functional::SmoothL1Options& options = {});  ///< with these options
};
/// functional::huber_loss() as an object. As torch.nn.HuberLoss.
class HuberLoss : public LossModule {
 public:
  explicit HuberLoss(const functional::HuberOptions& options = {});  ///< with these options
};
/// functional::binary_cross_entropy() as an object. As torch.nn.BCELoss.
class BCELoss : public LossModule {
 public:
  /// With these options.
  explicit BCELoss(const functional::BinaryCrossEntropyOptions& options = {});
};
/// functional::binary_cross_entropy_with_logits() as an object. As torch.nn.BCEWithLogitsLoss.
class BCEWithLogitsLoss : public LossModule {
 public:
  /// With these options.
  explicit BCEWithLogitsLoss(const functional::LogitsCrossEntropyOptions& options = {});
};

}  // namespace tandem::nn
