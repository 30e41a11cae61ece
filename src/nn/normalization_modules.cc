// PyTorch's modules that normalize each example.
#include "tandem/normalization_modules.h"

#include <limits>

#include "core/dim.h"
#include "core/status.h"
#include "nn/function_module.h"
#include "nn/targets.h"
#include "ops/math/of_size.h"
#include "tandem/array.h"
#include "tandem/creation.h"
#include "tandem/math.h"
#include "tandem/nn.h"

namespace tandem::nn {
namespace {

void expect_input_with_channels(const char* what, const Tensor& x) {
  if (x.rank() < 2)
    fail<ShapeError>("[{}] expected an input (batch, channels, ...), got shape {}", what,
                     x.shape().to_string());
}

// y times `weight` and plus `bias`, of channels, in the dtype of x.
Tensor with_affine(const Tensor& y, const Tensor& x, const Tensor& weight, const Tensor& bias) {
  const auto per_channel = [&](const Tensor& parameter) {
    Dims sizes;
    for (int i = 0; i < x.rank(); ++i) sizes.push_back(i == 1 ? x.shape().word(1) : 1);
    return cast(reshape(parameter, Shape(sizes)), y.dtype());
  };
  Tensor result = y;
  if (weight.defined()) result = result * per_channel(weight);
  if (bias.defined()) result = result + per_channel(bias);
  return cast(result, x.dtype());
}

Tensor value_or_none(const Variable& variable) {
  return variable.defined() ? variable.value() : Tensor();
}

}  // namespace

namespace functional {

Tensor group_norm(const Tensor& x, std::int64_t groups, const Tensor& weight, const Tensor& bias,
                  double eps) {
  expect_input_with_channels("group_norm", x);
  if (groups < 1 || !dim::may_be_multiple(x.shape().word(1), groups))
    fail<ShapeError>(
        "[group_norm] expected a number of channels that {} groups divide, got shape {}", groups,
        x.shape().to_string());
  std::int64_t each = dim::quotient(x.shape().word(1), groups);
  for (int i = 2; i < x.rank(); ++i) each = dim::product(each, x.shape().word(i));
  const Tensor grouped = reshape(at_least_float32(x), Shape(Dims{x.shape().word(0), groups, each}));
  const Moments of_group = moments(grouped, {2}, true);
  const Tensor y = (grouped - of_group.mean) * rsqrt(of_group.variance + eps);
  return with_affine(reshape(y, x.shape()), x, weight, bias);
}

Tensor instance_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps) {
  expect_input_with_channels("instance_norm", x);
  Dims axes;
  for (int i = 2; i < x.rank(); ++i) axes.push_back(i);
  if (axes.empty())
    fail<ShapeError>(
        "[instance_norm] expected an input (batch, channels, ...) with further axes, "
        "got shape {}",
        x.shape().to_string());
  const Tensor wide = at_least_float32(x);
  const Moments of_channel = moments(wide, axes, true);
  return with_affine((wide - of_channel.mean) * rsqrt(of_channel.variance + eps), x, weight, bias);
}

Tensor rms_norm(const Tensor& x, const Dims& normalized_shape, const Tensor& weight,
                std::optional<double> eps) {
  const int first = x.rank() - normalized_shape.size();
  Dims axes;
  bool fits = first >= 0 && !normalized_shape.empty();
  for (int i = 0; fits && i < normalized_shape.size(); ++i) {
    fits = dim::may_equal(x.shape().word(first + i), normalized_shape[i]);
    axes.push_back(first + i);
  }
  if (!fits)
    fail<ShapeError>("[rms_norm] expected an input whose last axes are {}, got shape {}",
                     Shape(normalized_shape).to_string(), x.shape().to_string());
  Shape shape = x.shape();
  for (int i = 0; i < normalized_shape.size(); ++i) shape.set(first + i, normalized_shape[i]);
  const Tensor wide = at_least_float32(of_shape("rms_norm", "an input of shape", x, shape));
  const double least = wide.dtype() == float64
                           ? std::numeric_limits<double>::epsilon()
                           : static_cast<double>(std::numeric_limits<float>::epsilon());
  const Tensor mean = reduce_mean(square(wide), {.axis = axes, .keepdims = true});
  const Tensor y = wide * rsqrt(mean + eps.value_or(least));
  return cast(weight.defined() ? y * cast(weight, y.dtype()) : y, x.dtype());
}

Tensor local_response_norm(const Tensor& x, std::int64_t size, double alpha, double beta,
                           double k) {
  if (x.rank() < 3)
    fail<ShapeError>(
        "[local_response_norm] expected an input (batch, channels, ...) with further axes, got "
        "shape {}",
        x.shape().to_string());
  if (size < 1)
    fail<InvalidArgumentError>("[local_response_norm] expected 1 channel or more, got {}", size);
  const Tensor wide = at_least_float32(x);
  std::vector<std::pair<std::int64_t, std::int64_t>> sides(static_cast<std::size_t>(x.rank()));
  sides[1] = {size / 2, (size - 1) / 2};
  const Tensor squares = pad(square(wide), sides);
  Tensor sum;
  for (std::int64_t i = 0; i < size; ++i) {
    const Tensor shifted = squares.slice(1, i, x.dim(1) + i);
    sum = sum.defined() ? sum + shifted : shifted;
  }
  return cast(wide / pow(sum * (alpha / static_cast<double>(size)) + k, beta), x.dtype());
}

}  // namespace functional

GroupNormImpl::GroupNormImpl(const char* kind, std::int64_t groups, std::int64_t channels,
                             int least_rank, int most_rank, double eps, bool affine)
    : kind_(kind),
      groups_(groups),
      channels_(channels),
      least_rank_(least_rank),
      most_rank_(most_rank),
      eps_(eps) {
  if (groups < 1 || channels < 1 || channels % groups != 0)
    fail<InvalidArgumentError>(
        "[{}] expected a number of channels that the groups divide, got {} "
        "channels and {} groups",
        kind, channels, groups);
  if (!affine) return;
  weight = register_parameter("weight", ones({channels}));
  bias = register_parameter("bias", zeros({channels}));
}

Tensor GroupNormImpl::forward(const Tensor& input) const {
  if (input.rank() < least_rank_ || input.rank() > most_rank_ ||
      !dim::may_equal(input.size_word(1), channels_))
    fail<ShapeError>("[{}] expected {} channels on axis 1 of {} to {} axes, got shape {}", kind_,
                     channels_, least_rank_, most_rank_, input.shape().to_string());
  const Tensor x = of_size(kind_, "an input of shape", input, 1, channels_);
  const Tensor scale = value_or_none(weight), shift = value_or_none(bias);
  return groups_ == channels_ && x.rank() > 2
             ? functional::instance_norm(x, scale, shift, eps_)
             : functional::group_norm(x, groups_, scale, shift, eps_);
}

RMSNormImpl::RMSNormImpl(const Dims& normalized_shape, const RMSNormOptions& options)
    : shape_(normalized_shape), eps_(options.eps) {
  if (options.elementwise_affine)
    weight = register_parameter("weight", ones(Shape(normalized_shape)));
}

Tensor RMSNormImpl::forward(const Tensor& input) const {
  return functional::rms_norm(input, shape_, value_or_none(weight), eps_);
}

LocalResponseNorm::LocalResponseNorm(std::int64_t size, const LocalResponseNormOptions& options)
    : ModuleHolder(function_module("local_response_norm", [size, options](const Tensor& x) {
        return functional::local_response_norm(x, size, options.alpha, options.beta, options.k);
      })) {}

GroupNorm::GroupNorm(std::int64_t num_groups, std::int64_t num_channels,
                     const GroupNormOptions& options)
    : ModuleHolder(std::make_shared<GroupNormImpl>("group_norm", num_groups, num_channels, 2, 8,
                                                   options.eps, options.affine)) {}

RMSNorm::RMSNorm(const Dims& normalized_shape, const RMSNormOptions& options)
    : ModuleHolder(std::make_shared<RMSNormImpl>(normalized_shape, options)) {}

}  // namespace tandem::nn
