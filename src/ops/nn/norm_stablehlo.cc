// Batch and layer normalisation in StableHLO.
#include <algorithm>

#include "ops/lowering_support.h"
#include "ops/nn/norm_attrs.h"

namespace tandem::stablehlo {
namespace {

double epsilon_of(const Context& c) { return c.attrs<NormAttrs>().epsilon; }

// A parameter per channel, or per row, in the element type of `x` and repeated to its shape.
Expression per_channel(Context& c, const Expression& x, const Value& parameter) {
  return x.repeat(c.build.convert(parameter, x.element()));
}
Expression per_row(const Expression& x, const Expression& rows) {
  return x.repeat(rows.value(), leading_axes(x.shape()));
}

std::int64_t elements_along(const Expression& x, const Axes& axes) {
  std::int64_t count = 1;
  for (const std::int64_t axis : axes)
    count = dim::product(count, x.shape().word(static_cast<int>(axis)));
  return count;
}
Expression mean_along(const Expression& x, const Axes& axes) {
  const Expression sum = x.sum(axes);
  return sum / sum.size(dim::max(1, elements_along(x, axes)));
}

// The mean along axes, the distances from it, and the population variance.
struct Moments {
  Expression mean, distance, variance;
};
// The rounding error of a mean is large compared with the deviations if the numbers are far from 0.
// Adding the mean of the deviations corrects it. One pass computes that mean and the variance.
Moments moments_along(const Expression& x, const Axes& axes) {
  const Axes others = other_axes(x.shape(), axes);
  const Expression first = mean_along(x, axes);
  const Expression distance = x - x.repeat(first.value(), others);
  const Expression error = mean_along(distance, axes);
  const Expression variance = mean_along(square(distance), axes) - square(error);
  return {first + error, distance - x.repeat(error.value(), others),
          variance.binary("maximum", variance.like(0.0))};
}

// The distances in a gradient, from the mean that the forward pass has rounded: `rounding` is the
// mean of `rough`, and the distances are `rough` - `rounding`.
struct Distances {
  Expression rough, rounding;
};
Distances distances_along(const Expression& x, const Expression& mean, const Axes& axes) {
  const Expression rough = x - x.repeat(mean.value(), other_axes(x.shape(), axes));
  return {rough, mean_along(rough, axes)};
}

// --- batch normalisation; moments are per channel, over all other axes ---

Expression normalised(Context& c, const Expression& distance, const Expression& variance) {
  const Expression scale = Expression(c.build, c.build.convert(c.input(1), distance.element())) /
                           sqrt(variance + epsilon_of(c));
  return distance * distance.repeat(scale.value()) + per_channel(c, distance, c.input(2));
}

void lower_batch_norm(Context& c) {
  const Expression x = widened(c, 0);
  const Moments moments = moments_along(x, leading_axes(x.shape()));
  finish(c, 0, normalised(c, moments.distance, moments.variance).value());
  finish(c, 1, moments.mean.value());
  finish(c, 2, moments.variance.value());
}

void lower_moments(Context& c) {
  const Expression x = widened(c, 0);
  const Moments moments = moments_along(x, leading_axes(x.shape()));
  finish(c, 0, moments.mean.value());
  finish(c, 1, moments.variance.value());
}

void lower_inference(Context& c) {
  const Expression x = widened(c, 0);
  const auto moment = [&](std::size_t input) {
    return Expression(c.build, c.build.convert(c.input(input), x.element()));
  };
  finish(c, normalised(c, x - x.repeat(moment(3).value()), moment(4)));
}

void lower_batch_norm_grad(Context& c) {
  const Expression dy = widened(c, 0), x = widened(c, 1);
  const Axes axes = leading_axes(x.shape());
  const auto channel = [&](std::size_t input) {
    return Expression(c.build, c.build.convert(c.input(input), x.element()));
  };
  const Expression inverse = 1.0 / sqrt(channel(4) + epsilon_of(c)), dbeta = dy.sum(axes);
  const Expression scale = channel(2) * inverse, scaled = dy * x.repeat(scale.value());
  finish(c, 2, dbeta.value());
  if (c.attrs<NormAttrs>().given_moments) {
    finish(c, 0, scaled.value());
    finish(c, 1, ((dy * (x - x.repeat(channel(3).value()))).sum(axes) * inverse).value());
    return;
  }
  const auto [rough, rounding] = distances_along(x, channel(3), axes);
  const Expression products = (dy * rough).sum(axes) - rounding * dbeta;
  const Expression rows = dbeta.size(elements_along(x, axes));
  const Expression slope = -(scale * inverse * inverse * products / rows);
  const Expression shift = -(scale * dbeta / rows) - slope * rounding;
  finish(c, 0, (scaled + rough * x.repeat(slope.value()) + x.repeat(shift.value())).value());
  finish(c, 1, (products * inverse).value());
}

// --- layer normalisation; moments are per row ---

void lower_layer_norm(Context& c) {
  const Expression x = widened(c, 0);
  const Moments moments = moments_along(x, {x.shape().rank() - 1});
  const Expression inverse = 1.0 / sqrt(moments.variance + epsilon_of(c));
  finish(c, 0,
         (moments.distance * per_row(x, inverse) * per_channel(c, x, c.input(1)) +
          per_channel(c, x, c.input(2)))
             .value());
  finish(c, 1, moments.mean.value());
  finish(c, 2, inverse.value());
}

void lower_layer_norm_grad(Context& c) {
  const Expression dy = widened(c, 0), x = widened(c, 1);
  const Expression inverse = widened(c, 4);
  const Axes last = {x.shape().rank() - 1}, rows = leading_axes(x.shape());
  const auto [rough, rounding] = distances_along(x, widened(c, 3), last);
  const Expression normal = (rough - per_row(x, rounding)) * per_row(x, inverse);
  const Expression slope = dy * per_channel(c, x, c.input(2));
  const Expression share = mean_along(slope, last);
  const Expression product = inverse * (mean_along(slope * rough, last) - rounding * share);
  finish(
      c, 0,
      (per_row(x, inverse) * (slope - per_row(x, share) - normal * per_row(x, product))).value());
  finish(c, 1, (dy * normal).sum(rows).value());
  finish(c, 2, dy.sum(rows).value());
}

constexpr Lowering kNormLowerings[] = {
    {"BatchNormInference", lower_inference},
    {"BatchNormMoments", lower_moments},
    {"FusedBatchNormGradV3", lower_batch_norm_grad},
    {"FusedBatchNormV3", lower_batch_norm},
    {"LayerNorm", lower_layer_norm},
    {"LayerNormGrad", lower_layer_norm_grad},
};

}  // namespace

LoweringList norm_lowerings() { return kNormLowerings; }

}  // namespace tandem::stablehlo
