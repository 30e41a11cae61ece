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

double elements_along(const Expression& x, const Axes& axes) {
  double count = 1.0;
  for (const std::int64_t axis : axes)
    count *= static_cast<double>(x.shape()[static_cast<int>(axis)]);
  return count;
}
Expression mean_along(const Expression& x, const Axes& axes) {
  return x.sum(axes) / std::max(1.0, elements_along(x, axes));
}

// --- batch normalisation; moments are per channel, over all other axes ---

struct Moments {
  Expression mean, variance;
};
Moments moments_of(const Expression& x) {
  const Axes axes = leading_axes(x.shape());
  const Expression mean = mean_along(x, axes);
  return {mean, mean_along(square(x - x.repeat(mean.value())), axes)};
}

Expression normalised(Context& c, const Expression& x, const Moments& moments) {
  const Expression scale = Expression(c.build, c.build.convert(c.input(1), x.element())) /
                           sqrt(moments.variance + epsilon_of(c));
  return (x - x.repeat(moments.mean.value())) * x.repeat(scale.value()) +
         per_channel(c, x, c.input(2));
}

void lower_batch_norm(Context& c) {
  const Expression x = widened(c, 0);
  const Moments moments = moments_of(x);
  finish(c, 0, normalised(c, x, moments).value());
  finish(c, 1, moments.mean.value());
  finish(c, 2, moments.variance.value());
}

void lower_moments(Context& c) {
  const Moments moments = moments_of(widened(c, 0));
  finish(c, 0, moments.mean.value());
  finish(c, 1, moments.variance.value());
}

void lower_inference(Context& c) {
  const Expression x = widened(c, 0);
  const auto moment = [&](std::size_t input) {
    return Expression(c.build, c.build.convert(c.input(input), x.element()));
  };
  finish(c, normalised(c, x, {moment(3), moment(4)}));
}

void lower_batch_norm_grad(Context& c) {
  const Expression dy = widened(c, 0), x = widened(c, 1);
  const Axes axes = leading_axes(x.shape());
  const auto channel = [&](std::size_t input) {
    return Expression(c.build, c.build.convert(c.input(input), x.element()));
  };
  const Expression distance = x - x.repeat(channel(3).value());
  const Expression dbeta = dy.sum(axes), products = (dy * distance).sum(axes);
  const Expression inverse = 1.0 / sqrt(channel(4) + epsilon_of(c));
  const Expression scale = channel(2) * inverse;
  const double rows = elements_along(x, axes);
  const Expression slope = -(scale * inverse * inverse * products / rows);
  const Expression shift = -(scale * dbeta / rows);
  finish(
      c, 0,
      (dy * x.repeat(scale.value()) + distance * x.repeat(slope.value()) + x.repeat(shift.value()))
          .value());
  finish(c, 1, (products * inverse).value());
  finish(c, 2, dbeta.value());
}

// --- layer normalisation; moments are per row ---

void lower_layer_norm(Context& c) {
  const Expression x = widened(c, 0);
  const Axes last = {x.shape().rank() - 1};
  const Expression mean = mean_along(x, last);
  const Expression distance = x - per_row(x, mean);
  const Expression inverse = 1.0 / sqrt(mean_along(square(distance), last) + epsilon_of(c));
  finish(c, 0,
         (distance * per_row(x, inverse) * per_channel(c, x, c.input(1)) +
          per_channel(c, x, c.input(2)))
             .value());
  finish(c, 1, mean.value());
  finish(c, 2, inverse.value());
}

void lower_layer_norm_grad(Context& c) {
  const Expression dy = widened(c, 0), x = widened(c, 1);
  const Expression mean = widened(c, 3), inverse = widened(c, 4);
  const Axes last = {x.shape().rank() - 1}, rows = leading_axes(x.shape());
  const Expression normal = (x - per_row(x, mean)) * per_row(x, inverse);
  const Expression slope = dy * per_channel(c, x, c.input(2));
  const Expression share = mean_along(slope, last), product = mean_along(slope * normal, last);
  finish(
      c, 0,
      (per_row(x, inverse) * (slope - per_row(x, share) - normal * per_row(x, product))).value());
  finish(c, 1, (dy * normal).sum(rows).value());
  finish(c, 2, dy.sum(rows).value());
}

constexpr Lowering kLowerings[] = {
    {"BatchNormInference", lower_inference},
    {"BatchNormMoments", lower_moments},
    {"FusedBatchNormGradV3", lower_batch_norm_grad},
    {"FusedBatchNormV3", lower_batch_norm},
    {"LayerNorm", lower_layer_norm},
    {"LayerNormGrad", lower_layer_norm_grad},
};

}  // namespace

LoweringList norm_lowerings() { return kLowerings; }

}  // namespace tandem::stablehlo
