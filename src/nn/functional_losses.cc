// PyTorch's losses of distances, margins and counts.
#include "tandem/functional_losses.h"

#include <cmath>

#include "core/dim.h"
#include "core/status.h"
#include "nn/functional_parts.h"
#include "nn/targets.h"
#include "ops/math/element_count.h"
#include "ops/math/of_size.h"
#include "tandem/activations.h"
#include "tandem/array.h"
#include "tandem/autodiff.h"
#include "tandem/creation.h"
#include "tandem/math.h"

namespace tandem::nn {
namespace functional {
namespace {

const double kLog2Pi = std::log(2.0 * M_PI);

// The p-norm of the last axis, whose gradient is 0 where the norm is.
Tensor norm_of(const Tensor& x, double p, bool keepdim) {
  const ReduceOptions last{.axis = Dims{-1}, .keepdims = keepdim};
  if (p == 2.0) return norm(x, last);
  if (p == 1.0) return reduce_sum(abs(x), last);
  if (std::isinf(p) && p > 0.0) return reduce_max(abs(x), last);
  if (!(p > 0.0))
    fail<InvalidArgumentError>("[pairwise_distance] expected a positive p, got {}", p);
  return pow(reduce_sum(pow(abs(x), p), last), 1.0 / p);
}

Tensor poisson_nll(const Tensor& input, const Tensor& target, const PoissonNllOptions& options) {
  const Tensor x = predictions("poisson_nll_loss", input, target);
  const Tensor y = like_input("poisson_nll_loss", x, target);
  const Tensor loss = options.log_input ? exp(x) - y * x : x - y * log(x + options.eps);
  if (!options.full) return loss;
  const Tensor many = greater(y, 1.0);
  const Tensor counts = where(many, y, 1.0);
  const Tensor stirling = counts * log(counts) - counts + (log(counts) + kLog2Pi) * 0.5;
  return loss + where(many, stirling, 0.0);
}

Tensor hinge_embedding(const Tensor& input, const Tensor& target, double margin) {
  const Tensor x = predictions("hinge_embedding_loss", input, target);
  const Tensor y = like_input("hinge_embedding_loss", x, target);
  return where(equal(y, 1.0), 0.0, relu(subtract(margin, x))) + where(equal(y, -1.0), 0.0, x);
}

Tensor soft_margin(const Tensor& input, const Tensor& target) {
  const Tensor x = predictions("soft_margin_loss", input, target);
  return nn::softplus(negative(like_input("soft_margin_loss", x, target) * x));
}

Tensor multi_margin(const Tensor& input, const Tensor& target, const MultiMarginOptions& options) {
  constexpr const char* kName = "multi_margin_loss";
  if (options.p != 1 && options.p != 2)
    fail<InvalidArgumentError>("[{}] expected a p of 1 or 2, got {}", kName, options.p);
  const Tensor x = predictions(kName, input, target);
  if (x.rank() < 1 || x.rank() > 2)
    fail<InvalidArgumentError>("[{}] expected an input of shape (N, C) or (C), got {}", kName,
                               x.shape().to_string());
  const Tensor labels = class_labels(kName, target, x);
  const Tensor right = take_along_axis(x, expand_dims(labels, -1), -1);
  const Tensor over = relu(x - right + options.margin);
  const Tensor losses = options.p == 1 ? over : square(over);
  // The class itself does not count.
  const Tensor is_label =
      equal(expand_dims(labels, -1), range(x.dim(-1), {.dtype = labels.dtype()}));
  Tensor weighted = where(is_label, 0.0, losses);
  if (options.weight.defined()) {
    if (options.weight.rank() != 1 || !may_agree(options.weight.size_word(0), x.size_word(-1)))
      fail<InvalidArgumentError>("[{}] expected a weight of shape {}, one per class, got {}", kName,
                                 Shape({x.size_word(-1)}).to_string(),
                                 options.weight.shape().to_string());
    const Tensor each =
        of_size(kName, "one weight per class, a shape of", options.weight, 0, x.size_word(-1));
    weighted = weighted * expand_dims(gather(cast(each, x.dtype()), labels), -1);
  }
  return reduce_mean(weighted, {.axis = Dims{-1}});
}

Tensor multilabel_soft_margin(const Tensor& input, const Tensor& target, const Tensor& weight) {
  constexpr const char* kName = "multilabel_soft_margin_loss";
  const Tensor x = predictions(kName, input, target);
  const Tensor loss = sigmoid_cross_entropy(like_input(kName, x, target), x);
  return reduce_mean(weight.defined() ? loss * cast(weight, x.dtype()) : loss, {.axis = Dims{-1}});
}

}  // namespace

Tensor cosine_similarity(const Tensor& first, const Tensor& second, std::int64_t dim, double eps) {
  const bool same = first.shape() == second.shape();
  const Tensor x1 = same ? first : first + zeros_like(second),
               x2 = same ? second : second + zeros_like(first);
  const auto unit = [&](const Tensor& x) {
    const Tensor squares = reduce_sum(square(x), {.axis = Dims{dim}, .keepdims = true});
    // The limit is inside the root, whose gradient at 0 is infinite.
    return x / sqrt(maximum(squares, eps * eps));
  };
  return reduce_sum(unit(x1) * unit(x2), {.axis = Dims{dim}});
}

Tensor pairwise_distance(const Tensor& x1, const Tensor& x2, const DistanceOptions& options) {
  const Tensor difference = x1 - x2 + options.eps;
  const Tensor norms = norm_of(at_least_float32(difference), options.p, options.keepdim);
  return norms.dtype() == difference.dtype() ? norms : cast(norms, difference.dtype());
}

Tensor gaussian_nll_loss(const Tensor& input, const Tensor& target, const Tensor& var,
                         const GaussianNllOptions& options) {
  constexpr const char* kName = "gaussian_nll_loss";
  if (!(options.eps > 0.0))
    fail<InvalidArgumentError>("[{}] expected a positive eps, got {}", kName, options.eps);
  const Tensor x = predictions(kName, input, target);
  Tensor variance = var.dtype() == x.dtype() ? var : cast(var, x.dtype());
  if (var.rank() == x.rank() - 1) variance = expand_dims(variance, -1);
  bool fits = variance.rank() == x.rank();
  for (int axis = 0; fits && axis < x.rank(); ++axis)
    fits = dim::may_equal(variance.shape().word(axis), x.shape().word(axis)) ||
           variance.shape().word(axis) == 1;
  if (!fits)
    fail<InvalidArgumentError>(
        "[{}] expected variances of the input's shape {}, also with sizes of 1, or without its "
        "last "
        "axis, got {}",
        kName, x.shape().to_string(), var.shape().to_string());
  // As in PyTorch the gradient flows also where the limit holds.
  variance = variance + stop_gradient(maximum(variance, options.eps) - variance);
  Tensor loss = (log(variance) + square(x - like_input(kName, x, target)) / variance) * 0.5;
  loss = of_shape(kName, "variances that broadcast to the input's shape", loss, x.shape());
  if (options.full) loss = loss + 0.5 * kLog2Pi;
  return reduced(kName, loss, options.reduction);
}

Tensor poisson_nll_loss(const Tensor& input, const Tensor& target,
                        const PoissonNllOptions& options) {
  return reduced("poisson_nll_loss", poisson_nll(input, target, options), options.reduction);
}

Tensor cosine_embedding_loss(const Tensor& x1, const Tensor& x2, const Tensor& target,
                             const MarginOptions& options) {
  constexpr const char* kName = "cosine_embedding_loss";
  const Tensor a = predictions(kName, x1, target), b = like_input(kName, a, x2);
  if (a.rank() < 1 || a.rank() > 2 || target.rank() != a.rank() - 1)
    fail<InvalidArgumentError>(
        "[{}] expected inputs of shape (N, D) or (D) and a target without D, got {} and {}", kName,
        a.shape().to_string(), target.shape().to_string());
  const ReduceOptions last{.axis = Dims{-1}};
  constexpr double kSmall = 1e-12;  // PyTorch's
  const Tensor lengths =
      (reduce_sum(square(a), last) + kSmall) * (reduce_sum(square(b), last) + kSmall);
  const Tensor cosine = reduce_sum(a * b, last) / sqrt(lengths);
  const Tensor loss = where(equal(target, 1.0), subtract(1.0, cosine),
                            where(equal(target, -1.0), relu(cosine - options.margin), 0.0));
  return reduced(kName, loss, options.reduction);
}

Tensor margin_ranking_loss(const Tensor& x1, const Tensor& x2, const Tensor& target,
                           const MarginOptions& options) {
  constexpr const char* kName = "margin_ranking_loss";
  const Tensor a = predictions(kName, x1, target), b = like_input(kName, a, x2);
  const Tensor loss = relu(options.margin - like_input(kName, a, target) * (a - b));
  return reduced(kName, loss, options.reduction);
}

Tensor hinge_embedding_loss(const Tensor& input, const Tensor& target,
                            const HingeEmbeddingOptions& options) {
  return reduced("hinge_embedding_loss", hinge_embedding(input, target, options.margin),
                 options.reduction);
}

Tensor soft_margin_loss(const Tensor& input, const Tensor& target, const LossOptions& options) {
  return reduced("soft_margin_loss", soft_margin(input, target), options.reduction);
}

Tensor triplet_margin_loss(const Tensor& anchor, const Tensor& positive, const Tensor& negative,
                           const TripletMarginOptions& options) {
  constexpr const char* kName = "triplet_margin_loss";
  if (!(options.margin > 0.0))
    fail<InvalidArgumentError>("[{}] expected a positive margin, got {}", kName, options.margin);
  const Tensor a = predictions(kName, anchor, positive);
  const Tensor near = like_input(kName, a, positive), far = like_input(kName, a, negative);
  const DistanceOptions distance{.p = options.p, .eps = options.eps};
  Tensor away = pairwise_distance(a, far, distance);
  if (options.swap) away = minimum(away, pairwise_distance(near, far, distance));
  return reduced(kName, relu(pairwise_distance(a, near, distance) - away + options.margin),
                 options.reduction);
}

Tensor multi_margin_loss(const Tensor& input, const Tensor& target,
                         const MultiMarginOptions& options) {
  return reduced("multi_margin_loss", multi_margin(input, target, options), options.reduction);
}

Tensor multilabel_soft_margin_loss(const Tensor& input, const Tensor& target,
                                   const MultiLabelSoftMarginOptions& options) {
  return reduced("multilabel_soft_margin_loss",
                 multilabel_soft_margin(input, target, options.weight), options.reduction);
}

}  // namespace functional

KLDivLoss::KLDivLoss(const functional::KlDivOptions& options)
    : LossModule(
          "kl_div",
          [options](const Tensor& input, const Tensor& target) {
            const Tensor values = functional::kl_div(
                input, target,
                {.reduction = LossReduction::kNone, .log_target = options.log_target});
            const bool per_example = options.reduction.value() == LossReduction::kBatchMean;
            return per_example && values.rank() > 0
                       ? values / element_count({values.size_word(0)}, values.dtype())
                       : values;
          },
          options.reduction.value() == LossReduction::kBatchMean ? LossReduction::kSum
                                                                 : options.reduction) {}
PoissonNLLLoss::PoissonNLLLoss(const functional::PoissonNllOptions& options)
    : LossModule(
          "poisson_nll_loss",
          [options](const Tensor& input, const Tensor& target) {
            return functional::poisson_nll(input, target, options);
          },
          options.reduction) {}
HingeEmbeddingLoss::HingeEmbeddingLoss(const functional::HingeEmbeddingOptions& options)
    : LossModule(
          "hinge_embedding_loss",
          [margin = options.margin](const Tensor& input, const Tensor& target) {
            return functional::hinge_embedding(input, target, margin);
          },
          options.reduction) {}
SoftMarginLoss::SoftMarginLoss(const functional::LossOptions& options)
    : LossModule("soft_margin_loss", functional::soft_margin, options.reduction) {}
MultiMarginLoss::MultiMarginLoss(const functional::MultiMarginOptions& options)
    : LossModule(
          "multi_margin_loss",
          [options](const Tensor& input, const Tensor& target) {
            return functional::multi_margin(input, target, options);
          },
          options.reduction) {}
MultiLabelSoftMarginLoss::MultiLabelSoftMarginLoss(
    const functional::MultiLabelSoftMarginOptions& options)
    : LossModule(
          "multilabel_soft_margin_loss",
          [weight = options.weight](const Tensor& input, const Tensor& target) {
            return functional::multilabel_soft_margin(input, target, weight);
          },
          options.reduction) {}

}  // namespace tandem::nn
