// PyTorch's modules for images: channels-last operations between transposes; and its batch
// normalization.
#include "tandem/image_modules.h"

#include <cmath>
#include <limits>

#include "core/dim.h"
#include "core/status.h"
#include "op/dtype_switch.h"
#include "ops/math/element_count.h"
#include "tandem/array.h"
#include "tandem/autodiff.h"
#include "tandem/creation.h"
#include "tandem/math.h"
#include "tandem/random.h"

namespace tandem::nn {
namespace {

Tensor channels_last(const Tensor& x) { return transpose(x, {0, 2, 3, 1}); }
Tensor channels_first(const Tensor& x) { return transpose(x, {0, 3, 1, 2}); }

void expect_images(const char* what, const Tensor& x) {
  if (x.rank() != 4)
    fail<ShapeError>("[{}] expected images (batch, channels, height, width), got shape {}", what,
                     x.shape().to_string());
}

// Adds rows and columns of `value` around channels-last images.
Tensor padded(const Tensor& x, Pair by, double value = 0.0) {
  if (by == Pair(0)) return x;
  return pad(x, {{0, 0}, {by.height, by.height}, {by.width, by.width}, {0, 0}}, value);
}

void expect_padding(const char* what, Pair padding, Pair window) {
  if (padding.height < 0 || padding.width < 0 || 2 * padding.height > window.height ||
      2 * padding.width > window.width)
    fail<InvalidArgumentError>(
        "[{}] expected a padding of at most half of the window {} x {}, got {} x {}", what,
        window.height, window.width, padding.height, padding.width);
}

void expect_positive(const char* what, const Conv2dOptions& o) {
  const Conv2dArguments& a = o.arguments();
  const bool positive = o.in_channels() > 0 && o.out_channels() > 0 && a.groups > 0 &&
                        o.kernel_size().height > 0 && o.kernel_size().width > 0;
  if (!positive || o.in_channels() % a.groups != 0 || o.out_channels() % a.groups != 0)
    fail<InvalidArgumentError>(
        "[{}] expected positive sizes and numbers of channels that the groups divide, got {} to {} "
        "channels, a kernel of {} x {} and {} groups",
        what, o.in_channels(), o.out_channels(), o.kernel_size().height, o.kernel_size().width,
        a.groups);
}

}  // namespace

namespace functional {

Tensor max_pool2d(const Tensor& x, Pair kernel_size, const Pool2dArguments& options) {
  expect_images("max_pool2d", x);
  expect_padding("max_pool2d", options.padding, kernel_size);
  const Tensor images =
      padded(channels_last(x), options.padding, -std::numeric_limits<double>::infinity());
  return channels_first(nn::max_pool2d(images, {.window = kernel_size, .strides = options.stride}));
}

Tensor avg_pool2d(const Tensor& x, Pair kernel_size, const Pool2dArguments& options) {
  expect_images("avg_pool2d", x);
  expect_padding("avg_pool2d", options.padding, kernel_size);
  return channels_first(nn::avg_pool2d(padded(channels_last(x), options.padding),
                                       {.window = kernel_size, .strides = options.stride}));
}

Tensor adaptive_avg_pool2d(const Tensor& x, Pair output_size) {
  expect_images("adaptive_avg_pool2d", x);
  if (output_size == Pair(1)) return reduce_mean(x, {.axis = {2, 3}, .keepdims = true});
  const std::int64_t height = x.dim(2), width = x.dim(3);
  if (output_size.height < 1 || output_size.width < 1 || height < 1 || width < 1 ||
      height % output_size.height != 0 || width % output_size.width != 0)
    fail<UnimplementedError>(
        "[adaptive_avg_pool2d] expected windows that divide the image evenly, got {} x {} for "
        "shape {}",
        output_size.height, output_size.width, x.shape().to_string());
  return functional::avg_pool2d(x, {height / output_size.height, width / output_size.width});
}

Tensor conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias,
              const Conv2dArguments& options) {
  expect_images("conv2d", x);
  if (weight.rank() != 4)
    fail<ShapeError>("[conv2d] expected a weight (out, in / groups, height, width), got shape {}",
                     weight.shape().to_string());
  const std::int64_t channels = weight.size_word(1) * options.groups;
  if (!dim::may_equal(x.size_word(1), channels))
    fail<ShapeError>(
        "[conv2d] expected images (batch, {}, height, width), got shape {}{}", channels,
        x.shape().to_string(),
        x.size_word(3) == channels
            ? "; they look channels-last: write x.permute({0, 3, 1, 2}), or use layers::Conv2D"
            : "");
  return channels_first(nn::conv2d(
      padded(channels_last(x), options.padding), transpose(weight, {2, 3, 1, 0}), bias,
      {.strides = options.stride, .dilations = options.dilation, .groups = options.groups}));
}

}  // namespace functional

Conv2dImpl::Conv2dImpl(const Conv2dOptions& options) : options_(options) {
  expect_positive("conv2d", options);
  const Conv2dArguments& a = options.arguments();
  const Pair kernel = options.kernel_size();
  const std::int64_t inputs = options.in_channels() / a.groups;
  const double bound = 1.0 / std::sqrt(static_cast<double>(inputs * kernel.height * kernel.width));
  weight = register_parameter(
      "weight", random::uniform({options.out_channels(), inputs, kernel.height, kernel.width},
                                -bound, bound));
  if (a.bias)
    bias = register_parameter("bias", random::uniform({options.out_channels()}, -bound, bound));
}

Tensor Conv2dImpl::forward(const Tensor& input) const {
  return functional::conv2d(input, weight, bias.defined() ? bias.value() : Tensor(),
                            options_.arguments());
}

MaxPool2d::MaxPool2d(Pair kernel_size, const Pool2dArguments& options)
    : ModuleHolder(
          std::make_shared<FunctionModule>("max_pool2d", [kernel_size, options](const Tensor& x) {
            return functional::max_pool2d(x, kernel_size, options);
          })) {}

AvgPool2d::AvgPool2d(Pair kernel_size, const Pool2dArguments& options)
    : ModuleHolder(
          std::make_shared<FunctionModule>("avg_pool2d", [kernel_size, options](const Tensor& x) {
            return functional::avg_pool2d(x, kernel_size, options);
          })) {}

AdaptiveAvgPool2d::AdaptiveAvgPool2d(Pair output_size)
    : ModuleHolder(
          std::make_shared<FunctionModule>("adaptive_avg_pool2d", [output_size](const Tensor& x) {
            return functional::adaptive_avg_pool2d(x, output_size);
          })) {}

BatchNormImpl::BatchNormImpl(const char* kind, std::int64_t features, int least_rank, int most_rank,
                             const BatchNormOptions& options)
    : kind_(kind), least_rank_(least_rank), most_rank_(most_rank), options_(options) {
  if (features <= 0)
    fail<InvalidArgumentError>("[{}] expected a positive number of features, got {}", kind,
                               features);
  weight = register_parameter("weight", ones({features}));
  bias = register_parameter("bias", zeros({features}));
  const VariableOptions moment{.trainable = false,
                               .synchronization = VariableSynchronization::kOnRead,
                               .aggregation = VariableAggregation::kMean};
  running_mean = add_weight("running_mean", {features}, initializers::zeros(), moment);
  running_var = add_weight("running_var", {features}, initializers::ones(), moment);
}

Tensor BatchNormImpl::forward(const Tensor& input) const {
  const int rank = input.rank();
  const std::int64_t features = weight.shape().word(0);
  if (rank < least_rank_ || rank > most_rank_ || !dim::may_equal(input.size_word(1), features))
    fail<ShapeError>("[{}] expected {} features on axis 1 of {}{} axes, got shape {}", kind_,
                     features, least_rank_,
                     least_rank_ == most_rank_ ? "" : " or " + std::to_string(most_rank_),
                     input.shape().to_string());
  const Tensor x = rank == 2   ? input
                   : rank == 3 ? transpose(input, {0, 2, 1})
                               : channels_last(input);
  const auto back = [rank](const Tensor& y) {
    return rank == 2 ? y : rank == 3 ? transpose(y, {0, 2, 1}) : channels_first(y);
  };
  if (!is_training())
    return back(batch_norm_inference(x, weight, bias, running_mean, running_var, options_.eps));
  const BatchNormResult result = batch_norm_training(x, weight, bias, options_.eps);
  NoGradScope no_grad;
  const Tensor count = element_count(x.shape(), float32) / static_cast<double>(features);
  const Tensor unbiased =
      result.variance * cast(count / maximum(count - 1.0, 1.0), result.variance.dtype());
  const double part = options_.momentum;
  Variable(running_mean).assign(running_mean.value() * (1.0 - part) + result.mean * part);
  Variable(running_var).assign(running_var.value() * (1.0 - part) + unbiased * part);
  return back(result.y);
}

Tensor Dropout2dImpl::forward(const Tensor& input) const {
  expect_images("dropout2d", input);
  if (!is_training() || p_ == 0.0) return input;
  const Tensor channels = ones({input.shape()[0], input.shape()[1], 1, 1}, input.dtype());
  return input * nn::dropout(channels, p_);
}

}  // namespace tandem::nn
