/// @file
/// Losses of distances, margins and counts, with PyTorch's names, argument order and defaults. The
/// most common losses are in tandem/functional.h.
#pragma once

#include <cstdint>

#include "tandem/functional.h"
#include "tandem/tensor.h"

namespace tandem::nn {

namespace functional {

/// The cosine of the angle of x1 and x2, which broadcast, along an axis; norms are at least eps. As
/// torch.nn.functional.cosine_similarity.
[[nodiscard]] Tensor cosine_similarity(const Tensor& x1, const Tensor& x2, std::int64_t dim = 1,
                                       double eps = 1e-8);
/// Options of pairwise_distance().
struct DistanceOptions {
  double p = 2.0;        ///< order of the norm
  double eps = 1e-6;     ///< added to differences
  bool keepdim = false;  ///< whether the last axis remains, of size 1
};
/// The norm of x1 - x2 + eps over the last axis. As torch.nn.functional.pairwise_distance.
[[nodiscard]] Tensor pairwise_distance(const Tensor& x1, const Tensor& x2,
                                       const DistanceOptions& options = {});

/// Options of gaussian_nll_loss().
struct GaussianNllOptions {
  bool full = false;                               ///< whether to add the constant log(2 pi) / 2
  double eps = 1e-6;                               ///< the smallest variance
  LossReduction reduction = LossReduction::kMean;  ///< reduction
};
/// (log(var) + (input - target)^2 / var) / 2. `var`: of the input's shape, also with sizes of 1,
/// or without its last axis. As torch.nn.functional.gaussian_nll_loss.
[[nodiscard]] Tensor gaussian_nll_loss(const Tensor& input, const Tensor& target, const Tensor& var,
                                       const GaussianNllOptions& options = {});
/// Options of poisson_nll_loss().
struct PoissonNllOptions {
  bool log_input = true;                           ///< whether `input` is a logarithm
  bool full = false;                               ///< whether to add Stirling's approximation
  double eps = 1e-8;                               ///< added to `input` in logarithms
  LossReduction reduction = LossReduction::kMean;  ///< reduction
};
/// exp(input) - target * input, or input - target * log(input + eps). Stirling's approximation is
/// target * log(target) - target + log(2 pi target) / 2 for targets above 1. As
/// torch.nn.functional.poisson_nll_loss.
[[nodiscard]] Tensor poisson_nll_loss(const Tensor& input, const Tensor& target,
                                      const PoissonNllOptions& options = {});

/// Options of losses with a margin.
struct MarginOptions {
  double margin = 0.0;                             ///< the margin
  LossReduction reduction = LossReduction::kMean;  ///< reduction
};
/// 1 - cos(x1, x2) where the target is 1, max(cos(x1, x2) - margin, 0) where it is -1. x1 and x2
/// are [batch, features] or [features], the target is [batch] or a scalar. As
/// torch.nn.functional.cosine_embedding_loss.
[[nodiscard]] Tensor cosine_embedding_loss(const Tensor& x1, const Tensor& x2, const Tensor& target,
                                           const MarginOptions& options = {});
/// max(margin - target * (x1 - x2), 0): x1 is to be larger where the target is 1, x2 where it is
/// -1. As torch.nn.functional.margin_ranking_loss.
[[nodiscard]] Tensor margin_ranking_loss(const Tensor& x1, const Tensor& x2, const Tensor& target,
                                         const MarginOptions& options = {});
/// Options of hinge_embedding_loss().
struct HingeEmbeddingOptions {
  double margin = 1.0;                             ///< the margin
  LossReduction reduction = LossReduction::kMean;  ///< reduction
};
/// The input where the target is 1, max(margin - input, 0) where it is -1. As
/// torch.nn.functional.hinge_embedding_loss.
[[nodiscard]] Tensor hinge_embedding_loss(const Tensor& input, const Tensor& target,
                                          const HingeEmbeddingOptions& options = {});
/// Log(1 + exp(-target * input)), with targets 1 and -1. As torch.nn.functional.soft_margin_loss.
[[nodiscard]] Tensor soft_margin_loss(const Tensor& input, const Tensor& target,
                                      const LossOptions& options = {});
/// Options of triplet_margin_loss().
struct TripletMarginOptions {
  double margin = 1.0;  ///< how much further away the negative example is to be
  double p = 2.0;       ///< order of the norm
  double eps = 1e-6;    ///< as DistanceOptions::eps
  bool swap = false;    ///< whether the negative one's distance is the smaller of those to both
  LossReduction reduction = LossReduction::kMean;  ///< reduction
};
/// max(d(anchor, positive) - d(anchor, negative) + margin, 0), where d is pairwise_distance(). As
/// torch.nn.functional.triplet_margin_loss.
[[nodiscard]] Tensor triplet_margin_loss(const Tensor& anchor, const Tensor& positive,
                                         const Tensor& negative,
                                         const TripletMarginOptions& options = {});
/// Options of multi_margin_loss().
struct MultiMarginOptions {
  std::int64_t p = 1;                              ///< exponent, 1 or 2
  double margin = 1.0;                             ///< the margin
  Tensor weight{};                                 ///< a factor per class [C]; undefined: all 1
  LossReduction reduction = LossReduction::kMean;  ///< reduction
};
/// The sum over the other classes i of max(margin - input[target] + input[i], 0)^p, divided by the
/// number of classes. `input`: [batch, C] or [C]; `target`: class indices. As
/// torch.nn.functional.multi_margin_loss.
[[nodiscard]] Tensor multi_margin_loss(const Tensor& input, const Tensor& target,
                                       const MultiMarginOptions& options = {});
/// Options of ctc_loss().
struct CtcOptions {
  std::int64_t blank = 0;                          ///< class between labels
  LossReduction reduction = LossReduction::kMean;  ///< reduction
  bool zero_infinity = false;  ///< whether examples without a path have loss and gradient 0
};
/// Connectionist temporal classification (Graves et al., 2006): minus the log-probability of all
/// paths over time that give the labels, after equal neighbours are merged and blanks removed.
///
/// `log_probs`: [T, N, C], or [T, C] for one example, from log_softmax(); `targets`: class indices
/// other than blank, [N, S], or all examples' one after the other in a vector; `input_lengths` and
/// `target_lengths`: integers [N], the examples' steps and labels, or scalars for one example.
/// "mean" divides each loss by the number of its labels (at least 1), and takes the mean.
///
/// Labels that the steps cannot hold have an infinite loss, and a gradient of NaN, or 0 where the
/// loss's own gradient is 0. The gradient is that of log_probs, without that of a log_softmax()
/// which PyTorch adds to it: the logits' gradients are the same. It has no gradient of its own: a
/// second derivative throws UnimplementedError. Computed on the host. Throws
/// InvalidArgumentError for other shapes or dtypes, a blank, label or length out of range, and a
/// label that is blank. As torch.nn.functional.ctc_loss.
[[nodiscard]] Tensor ctc_loss(const Tensor& log_probs, const Tensor& targets,
                              const Tensor& input_lengths, const Tensor& target_lengths,
                              const CtcOptions& options = {});
/// Options of multilabel_soft_margin_loss().
struct MultiLabelSoftMarginOptions {
  Tensor weight{};                                 ///< a factor per class [C]; undefined: all 1
  LossReduction reduction = LossReduction::kMean;  ///< reduction
};
/// The mean over the last axis, of classes, of binary_cross_entropy_with_logits(). As
/// torch.nn.functional.multilabel_soft_margin_loss.
[[nodiscard]] Tensor multilabel_soft_margin_loss(const Tensor& input, const Tensor& target,
                                                 const MultiLabelSoftMarginOptions& options = {});

}  // namespace functional

/// functional::kl_div() as an object. As torch.nn.KLDivLoss.
class KLDivLoss : public LossModule {
 public:
  explicit KLDivLoss(const functional::KlDivOptions& options = {});  ///< with these options
};
/// functional::poisson_nll_loss() as an object. As torch.nn.PoissonNLLLoss.
class PoissonNLLLoss : public LossModule {
 public:
  /// With these options.
  explicit PoissonNLLLoss(const functional::PoissonNllOptions& options = {});
};
/// functional::hinge_embedding_loss() as an object. As torch.nn.HingeEmbeddingLoss.
class HingeEmbeddingLoss : public LossModule {
 public:
  /// With these options.
  explicit HingeEmbeddingLoss(const functional::HingeEmbeddingOptions& options = {});
};
/// functional::soft_margin_loss() as an object. As torch.nn.SoftMarginLoss.
class SoftMarginLoss : public LossModule {
 public:
  explicit SoftMarginLoss(const functional::LossOptions& options = {});  ///< with these options
};
/// functional::multi_margin_loss() as an object. As torch.nn.MultiMarginLoss.
class MultiMarginLoss : public LossModule {
 public:
  /// With these options.
  explicit MultiMarginLoss(const functional::MultiMarginOptions& options = {});
};
/// functional::multilabel_soft_margin_loss() as an object. As torch.nn.MultiLabelSoftMarginLoss.
class MultiLabelSoftMarginLoss : public LossModule {
 public:
  /// With these options.
  explicit MultiLabelSoftMarginLoss(const functional::MultiLabelSoftMarginOptions& options = {});
};

/// functional::ctc_loss() as an object. As torch.nn.CTCLoss.
class CTCLoss {
 public:
  /// With these options.
  explicit CTCLoss(const functional::CtcOptions& options = {}) : options_(options) {}
  /// The loss.
  Tensor operator()(const Tensor& log_probs, const Tensor& targets, const Tensor& input_lengths,
                    const Tensor& target_lengths) const {
    return functional::ctc_loss(log_probs, targets, input_lengths, target_lengths, options_);
  }
  /// As operator().
  Tensor forward(const Tensor& log_probs, const Tensor& targets, const Tensor& input_lengths,
                 const Tensor& target_lengths) const {
    return (*this)(log_probs, targets, input_lengths, target_lengths);
  }
  const CTCLoss* operator->() const { return this; }  ///< for loss->forward(), as in libtorch

 private:
  functional::CtcOptions options_;
};

/// For Tandem's own code: a loss of three tensors as an object, `Function` of functional with
/// options.
template <class Options, auto Function>
class LossOfThree {
 public:
  /// With these options.
  explicit LossOfThree(const Options& options = {}) : options_(options) {}
  /// The loss.
  Tensor operator()(const Tensor& first, const Tensor& second, const Tensor& third) const {
    return Function(first, second, third, options_);
  }
  /// As operator().
  Tensor forward(const Tensor& first, const Tensor& second, const Tensor& third) const {
    return (*this)(first, second, third);
  }
  const LossOfThree* operator->() const { return this; }  ///< for loss->forward(), as in libtorch

 private:
  Options options_;
};
/// functional::gaussian_nll_loss() as an object. As torch.nn.GaussianNLLLoss.
using GaussianNLLLoss = LossOfThree<functional::GaussianNllOptions, functional::gaussian_nll_loss>;
/// functional::cosine_embedding_loss() as an object. As torch.nn.CosineEmbeddingLoss.
using CosineEmbeddingLoss =
    LossOfThree<functional::MarginOptions, functional::cosine_embedding_loss>;
/// functional::margin_ranking_loss() as an object. As torch.nn.MarginRankingLoss.
using MarginRankingLoss = LossOfThree<functional::MarginOptions, functional::margin_ranking_loss>;
/// functional::triplet_margin_loss() as an object. As torch.nn.TripletMarginLoss.
using TripletMarginLoss =
    LossOfThree<functional::TripletMarginOptions, functional::triplet_margin_loss>;

}  // namespace tandem::nn
