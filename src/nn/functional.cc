// PyTorch's functions and losses.
#include "tandem/functional.h"

#include <string_view>

#include "core/status.h"
#include "nn/functional_parts.h"
#include "nn/targets.h"
#include "ops/math/element_count.h"
#include "ops/math/of_size.h"
#include "tandem/array.h"
#include "tandem/creation.h"
#include "tandem/math.h"
#include "tandem/nn.h"

namespace tandem::nn {

LossReduction::LossReduction(const char* name) {
  const std::string_view text = name;
  if (text == "none")
    value_ = kNone;
  else if (text == "mean")
    value_ = kMean;
  else if (text == "sum")
    value_ = kSum;
  else if (text == "batchmean")
    value_ = kBatchMean;
  else
    fail<InvalidArgumentError>("[loss] expected reduction 'none', 'mean' or 'sum', got '{}'", text);
}

namespace functional {

Tensor reduced(const char* what, const Tensor& values, LossReduction reduction) {
  switch (reduction.value()) {
    case LossReduction::kNone: return values;
    case LossReduction::kMean: return reduce_mean(values);
    case LossReduction::kSum: return reduce_sum(values);
    case LossReduction::kBatchMean: break;
  }
  fail<InvalidArgumentError>("[{}] expected reduction 'none', 'mean' or 'sum', got 'batchmean'",
                             what);
}

Tensor predictions(const char* what, const Tensor& input, const Tensor& target) {
  if (is_floating(input.dtype())) return at_least_float32(input);
  fail<InvalidArgumentError>(
      "[{}] expected a floating-point input, got {}{}", what, name_of(input.dtype()),
      is_floating(target.dtype()) ? " and a target of " + std::string(name_of(target.dtype())) +
                                        ": the order is (input, target)"
                                  : "");
}

Tensor like_input(const char* what, const Tensor& input, const Tensor& target) {
  if (!may_agree(input.shape(), target.shape()))
    fail<InvalidArgumentError>("[{}] expected a target of the input's shape {}, got {}", what,
                               input.shape().to_string(), target.shape().to_string());
  const Tensor same = of_shape(what, "a target of shape", target, input.shape());
  return same.dtype() == input.dtype() ? same : cast(same, input.dtype());
}

namespace {

// `x` with the axis of classes as the last one: PyTorch's is the second of more than two.
Tensor classes_last(const char* what, const Tensor& x) {
  if (x.rank() == 0)
    fail<InvalidArgumentError>("[{}] expected an input of shape (N, C), got a scalar", what);
  if (x.rank() <= 2) return x;
  Dims order{0};
  for (int axis = 2; axis < x.rank(); ++axis) order.push_back(axis);
  order.push_back(1);
  return transpose(x, order);
}

// The weights of the classes of `x` in its dtype; undefined if `weight` is.
Tensor class_weights(const char* what, const Tensor& weight, const Tensor& x) {
  if (!weight.defined()) return {};
  if (weight.rank() != 1 || !may_agree(weight.size_word(0), x.size_word(-1)))
    fail<InvalidArgumentError>("[{}] expected a weight of shape {}, one per class, got {}", what,
                               Shape({x.size_word(-1)}).to_string(), weight.shape().to_string());
  const Tensor each = of_size(what, "one weight per class, a shape of", weight, 0, x.size_word(-1));
  return each.dtype() == x.dtype() ? each : cast(each, x.dtype());
}

// Class indices with 0 where they are ignored, and how much each target counts.
struct Classes {
  Tensor labels, kept, weights;
};

Classes classes_of(const char* what, const Tensor& target, const Tensor& x, const Tensor& weight,
                   std::int64_t ignored) {
  if (x.rank() > 2 && target.rank() != x.rank() - 1)
    fail<InvalidArgumentError>(
        "[{}] expected class indices of shape {} (the input's without its second axis, that of the "
        "classes), got {}",
        what, Shape(x.shape().words().span().first(x.rank() - 1)).to_string(),
        target.shape().to_string());
  const Tensor given = class_labels(what, target, x);
  Classes classes;
  classes.kept = not_equal(given, static_cast<double>(ignored));
  classes.labels = where(classes.kept, given, 0.0);
  classes.weights = weight.defined() ? where(classes.kept, gather(weight, classes.labels), 0.0)
                                     : cast(classes.kept, x.dtype());
  return classes;
}

// Values whose mean is their sum divided by that of the weights, if the mean is the result. The sum
// of the weights of many targets is beyond float16.
Tensor for_mean(const Tensor& values, const Tensor& weights, LossReduction reduction) {
  if (reduction.value() != LossReduction::kMean) return values;
  const DType wide = values.dtype() == float64 ? float64 : float32;
  const Tensor sum = reduce_sum(cast(weights, wide));
  const Shape& shape = values.shape();
  const Tensor factor = shape.fully_defined()
                            ? divide(static_cast<double>(shape.num_elements()), sum)
                            : element_count(shape, wide) / sum;
  return values * cast(factor, values.dtype());
}

Tensor mse(const Tensor& input, const Tensor& target) {
  const Tensor x = predictions("mse_loss", input, target);
  return squared_difference(x, like_input("mse_loss", x, target));
}

Tensor l1(const Tensor& input, const Tensor& target) {
  const Tensor x = predictions("l1_loss", input, target);
  return abs(x - like_input("l1_loss", x, target));
}

// The quadratic part up to `limit` and the linear one beyond, without a branch.
Tensor huber(const char* what, const Tensor& input, const Tensor& target, double limit) {
  if (!(limit > 0.0))
    fail<InvalidArgumentError>("[{}] expected a positive limit, got {}", what, limit);
  const Tensor x = predictions(what, input, target);
  const Tensor error = abs(x - like_input(what, x, target));
  const Tensor quadratic = minimum(error, limit);
  return square(quadratic) * 0.5 + (error - quadratic) * limit;
}

Tensor smooth_l1(const Tensor& input, const Tensor& target, double beta) {
  return beta == 0.0 ? l1(input, target) : huber("smooth_l1_loss", input, target, beta) / beta;
}

// The logarithm, at least -100. Its gradient is 0 where the probability is 0, instead of NaN.
Tensor limited_log(const Tensor& probability) {
  const Tensor positive = greater(probability, 0.0);
  const Tensor logarithm = log(where(positive, probability, ones_like(probability)));
  return where(positive, maximum(logarithm, -100.0), zeros_like(probability) - 100.0);
}

// `values` times weights that broadcast to their shape.
Tensor weighted(const char* what, const Tensor& values, const Tensor& weight) {
  if (!weight.defined()) return values;
  const Tensor product =
      values * (weight.dtype() == values.dtype() ? weight : cast(weight, values.dtype()));
  if (!may_agree(product.shape(), values.shape()))
    fail<InvalidArgumentError>("[{}] expected a weight that broadcasts to {}, got {}", what,
                               values.shape().to_string(), weight.shape().to_string());
  return of_shape(what, "a weight that broadcasts to shape", product, values.shape());
}

Tensor bce(const Tensor& input, const Tensor& target, const Tensor& weight) {
  const Tensor x = predictions("binary_cross_entropy", input, target);
  const Tensor t = like_input("binary_cross_entropy", x, target);
  return weighted("binary_cross_entropy",
                  negative(t * limited_log(x) + subtract(1.0, t) * limited_log(subtract(1.0, x))),
                  weight);
}

Tensor bce_with_logits(const Tensor& input, const Tensor& target, const Tensor& weight,
                       const Tensor& pos_weight) {
  constexpr const char* kName = "binary_cross_entropy_with_logits";
  const Tensor x = predictions(kName, input, target);
  const Tensor t = like_input(kName, x, target);
  if (!pos_weight.defined()) return weighted(kName, sigmoid_cross_entropy(t, x), weight);
  const Tensor negatives = subtract(1.0, t);
  const Tensor factor = negatives + weighted(kName, t, pos_weight);
  return weighted(kName, negatives * x + factor * softplus(negative(x)), weight);
}

Tensor nll(const Tensor& input, const Tensor& target, const NllOptions& options) {
  const Tensor x = classes_last("nll_loss", predictions("nll_loss", input, target));
  const Classes classes = classes_of(
      "nll_loss", target, x, class_weights("nll_loss", options.weight, x), options.ignore_index);
  const Tensor chosen = squeeze(take_along_axis(x, expand_dims(classes.labels, -1), -1), {-1});
  return for_mean(negative(chosen * classes.weights), classes.weights, options.reduction);
}

// The mean over classes of -weight * log(p), which label smoothing adds.
Tensor uniform_part(const Tensor& x, const Tensor& weight) {
  const Tensor logs = nn::log_softmax(x);
  return negative(reduce_mean(weight.defined() ? logs * weight : logs, {.axis = -1}));
}

Tensor cross_entropy_of_probabilities(const Tensor& x, const Tensor& target, const Tensor& weight,
                                      double smoothing) {
  const Tensor t = classes_last("cross_entropy", target);
  const Tensor loss =
      weight.defined() ? negative(reduce_sum(nn::log_softmax(x) * t * weight, {.axis = Dims{-1}}))
                       : softmax_cross_entropy(t, x);
  if (smoothing == 0.0) return loss;
  return loss * (1.0 - smoothing) + uniform_part(x, weight) * smoothing;
}

Tensor cross_entropy_of(const Tensor& input, const Tensor& target,
                        const CrossEntropyOptions& options) {
  const double smoothing = options.label_smoothing;
  if (!(smoothing >= 0.0 && smoothing <= 1.0))
    fail<InvalidArgumentError>("[cross_entropy] expected label_smoothing in [0, 1], got {}",
                               smoothing);
  const Tensor given = predictions("cross_entropy", input, target);
  const Tensor x = classes_last("cross_entropy", given);
  const Tensor weight = class_weights("cross_entropy", options.weight, x);
  if (is_floating(target.dtype())) {
    if (options.ignore_index >= 0)
      fail<InvalidArgumentError>(
          "[cross_entropy] expected class indices with ignore_index {}, got probabilities",
          options.ignore_index);
    return cross_entropy_of_probabilities(x, like_input("cross_entropy", given, target), weight,
                                          smoothing);
  }
  const Classes classes = classes_of("cross_entropy", target, x, weight, options.ignore_index);
  Tensor loss = sparse_softmax_cross_entropy(classes.labels, x) * classes.weights;
  if (smoothing > 0.0)
    loss = loss * (1.0 - smoothing) + where(classes.kept, uniform_part(x, weight), 0.0) * smoothing;
  return for_mean(loss, classes.weights, options.reduction);
}

}  // namespace

Tensor cross_entropy(const Tensor& input, const Tensor& target,
                     const CrossEntropyOptions& options) {
  return reduced("cross_entropy", cross_entropy_of(input, target, options), options.reduction);
}
Tensor nll_loss(const Tensor& input, const Tensor& target, const NllOptions& options) {
  return reduced("nll_loss", nll(input, target, options), options.reduction);
}
Tensor mse_loss(const Tensor& input, const Tensor& target, const LossOptions& options) {
  return reduced("mse_loss", mse(input, target), options.reduction);
}
Tensor l1_loss(const Tensor& input, const Tensor& target, const LossOptions& options) {
  return reduced("l1_loss", l1(input, target), options.reduction);
}
Tensor smooth_l1_loss(const Tensor& input, const Tensor& target, const SmoothL1Options& options) {
  return reduced("smooth_l1_loss", smooth_l1(input, target, options.beta), options.reduction);
}
Tensor huber_loss(const Tensor& input, const Tensor& target, const HuberOptions& options) {
  return reduced("huber_loss", huber("huber_loss", input, target, options.delta),
                 options.reduction);
}
Tensor binary_cross_entropy(const Tensor& input, const Tensor& target,
                            const BinaryCrossEntropyOptions& options) {
  return reduced("binary_cross_entropy", bce(input, target, options.weight), options.reduction);
}
Tensor binary_cross_entropy_with_logits(const Tensor& input, const Tensor& target,
                                        const LogitsCrossEntropyOptions& options) {
  return reduced("binary_cross_entropy_with_logits",
                 bce_with_logits(input, target, options.weight, options.pos_weight),
                 options.reduction);
}

Tensor kl_div(const Tensor& input, const Tensor& target, const KlDivOptions& options) {
  const Tensor x = predictions("kl_div", input, target);
  const Tensor t = like_input("kl_div", x, target);
  Tensor values;
  if (options.log_target) {
    values = exp(t) * (t - x);
  } else {
    // Where the target is 0, its logarithm is that of 1 instead: the product is 0 anyway.
    const Tensor positive = greater(t, 0.0);
    values = where(positive, t * (log(where(positive, t, ones_like(t))) - x), zeros_like(t));
  }
  if (options.reduction.value() != LossReduction::kBatchMean)
    return reduced("kl_div", values, options.reduction);
  const Tensor sum = reduce_sum(values);
  return values.rank() == 0 ? sum : sum / element_count({values.size_word(0)}, sum.dtype());
}

Tensor scaled_dot_product_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                                    const AttentionOptions& options) {
  for (const Tensor* x : {&query, &key, &value})
    if (x->rank() != 4)
      fail<ShapeError>(
          "[scaled_dot_product_attention] expected [batch, heads, length, depth], got shape {}",
          x->shape().to_string());
  const Tensor result = nn::scaled_dot_product_attention(query.transpose(1, 2), key.transpose(1, 2),
                                                         value.transpose(1, 2),
                                                         {.mask = options.attn_mask,
                                                          .causal = options.is_causal,
                                                          .scale = options.scale,
                                                          .dropout_rate = options.dropout_p});
  return result.transpose(1, 2);
}

Tensor one_hot(const Tensor& classes, Dim num_classes) {
  return tandem::one_hot(classes, num_classes, {.dtype = int64});
}

Tensor silu(const Tensor& x) { return swish(x); }
Tensor leaky_relu(const Tensor& x, double negative_slope) {
  return nn::leaky_relu(x, negative_slope);
}
Tensor dropout(const Tensor& x, double p, bool training) {
  return training ? nn::dropout(x, p) : x;
}

Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  if (weight.rank() != 2)
    fail<InvalidArgumentError>("[linear] expected a weight of shape (out, in), got {}",
                               weight.shape().to_string());
  return dense(x, transpose(weight), bias);
}

Tensor normalize(const Tensor& x, double p, std::int64_t dim, double eps) {
  if (!(p > 0.0)) fail<InvalidArgumentError>("[normalize] expected a positive p, got {}", p);
  const ReduceOptions along{.axis = Dims{dim}, .keepdims = true};
  // The limit is inside the root, whose gradient at 0 is infinite.
  if (p == 2.0) return x / sqrt(maximum(reduce_sum(square(x), along), eps * eps));
  return x / maximum(pow(reduce_sum(pow(abs(x), p), along), 1.0 / p), eps);
}

}  // namespace functional

Tensor LossModule::operator()(const Tensor& input, const Tensor& target) const {
  return functional::reduced(name_, elements_(input, target), reduction_);
}

LossModule::operator losses::Loss() const {
  const losses::Reduction reduction =
      reduction_.value() == LossReduction::kMean  ? losses::Reduction::kSumOverBatchSize
      : reduction_.value() == LossReduction::kSum ? losses::Reduction::kSum
                                                  : losses::Reduction::kNone;
  return losses::Loss(
      name_,
      [elements = elements_](const Tensor& y_true, const Tensor& y_pred) {
        return elements(y_pred, y_true);
      },
      reduction);
}

CrossEntropyLoss::CrossEntropyLoss(const functional::CrossEntropyOptions& options)
    : LossModule(
          "cross_entropy",
          [options](const Tensor& input, const Tensor& target) {
            return functional::cross_entropy_of(input, target, options);
          },
          options.reduction) {}
NLLLoss::NLLLoss(const functional::NllOptions& options)
    : LossModule(
          "nll_loss",
          [options](const Tensor& input, const Tensor& target) {
            return functional::nll(input, target, options);
          },
          options.reduction) {}
MSELoss::MSELoss(const functional::LossOptions& options)
    : LossModule("mse_loss", functional::mse, options.reduction) {}
L1Loss::L1Loss(const functional::LossOptions& options)
    : LossModule("l1_loss", functional::l1, options.reduction) {}
SmoothL1Loss::SmoothL1Loss(const functional::SmoothL1Options& options)
    : LossModule(
          "smooth_l1_loss",
          [beta = options.beta](const Tensor& input, const Tensor& target) {
            return functional::smooth_l1(input, target, beta);
          },
          options.reduction) {}
HuberLoss::HuberLoss(const functional::HuberOptions& options)
    : LossModule(
          "huber_loss",
          [delta = options.delta](const Tensor& input, const Tensor& target) {
            return functional::huber("huber_loss", input, target, delta);
          },
          options.reduction) {}
BCELoss::BCELoss(const functional::BinaryCrossEntropyOptions& options)
    : LossModule(
          "binary_cross_entropy",
          [weight = options.weight](const Tensor& input, const Tensor& target) {
            return functional::bce(input, target, weight);
          },
          options.reduction) {}
BCEWithLogitsLoss::BCEWithLogitsLoss(const functional::LogitsCrossEntropyOptions& options)
    : LossModule(
          "binary_cross_entropy_with_logits",
          [options](const Tensor& input, const Tensor& target) {
            return functional::bce_with_logits(input, target, options.weight, options.pos_weight);
          },
          options.reduction) {}

}  // namespace tandem::nn
