// PyTorch's modules for images: channels-last operations between transposes; and its batch
// normalization.
#include "tandem/image_modules.h"

#include <cmath>

#include "core/dim.h"
#include "core/status.h"
#include "nn/windows.h"
#include "op/dtype_switch.h"
#include "ops/math/element_count.h"
#include "tandem/array.h"
#include "tandem/autodiff.h"
#include "tandem/creation.h"
#include "tandem/math.h"
#include "tandem/padding.h"
#include "tandem/random.h"

namespace tandem::nn {
namespace {

void expect_images(const char* what, const Tensor& x) {
  if (x.rank() != 4)
    fail<ShapeError>("[{}] expected images (batch, channels, height, width), got shape {}", what,
                     x.shape().to_string());
}

std::vector<std::int64_t> both(Pair pair) { return {pair.height, pair.width}; }

// The numbers of a padding: PyTorch's "same" is half of the kernel's reach, and needs strides of 1.
WindowPadding sides_of(const WindowPadding& padding, const Tensor& weight, Pair stride,
                       Pair dilation) {
  if (padding.kind() == Padding::kExplicit) return padding;
  if (padding.kind() == Padding::kValid) return 0;
  if (stride != Pair(1))
    fail<InvalidArgumentError>(
        "[conv2d] expected strides of 1 with the padding 'same', got {} x {}: write numbers",
        stride.height, stride.width);
  const auto sides = [](std::int64_t size, std::int64_t spacing) {
    const std::int64_t all = (size - 1) * spacing;
    return WindowPadding::Sides{all / 2, all - all / 2};
  };
  return {sides(weight.dim(2), dilation.height), sides(weight.dim(3), dilation.width)};
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

Tensor max_pool2d(const Tensor& x, Pair kernel_size, const MaxPool2dArguments& options) {
  return max_pooled("max_pool2d", x,
                    {.size = both(kernel_size),
                     .stride = both(options.stride.value_or(kernel_size)),
                     .padding = both(options.padding),
                     .dilation = both(options.dilation),
                     .ceil = options.ceil_mode});
}

Tensor avg_pool2d(const Tensor& x, Pair kernel_size, const AvgPool2dArguments& options) {
  return mean_pooled("avg_pool2d", x,
                     {.size = both(kernel_size),
                      .stride = both(options.stride.value_or(kernel_size)),
                      .padding = both(options.padding),
                      .dilation = {1, 1},
                      .ceil = options.ceil_mode,
                      .count_padding = options.count_include_pad,
                      .divisor = options.divisor_override});
}

Tensor adaptive_avg_pool2d(const Tensor& x, Pair output_size) {
  return adaptively_pooled("adaptive_avg_pool2d", x, {output_size.height, output_size.width},
                           false);
}

Tensor adaptive_max_pool2d(const Tensor& x, Pair output_size) {
  return adaptively_pooled("adaptive_max_pool2d", x, {output_size.height, output_size.width}, true);
}

Tensor conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias,
              const Conv2dArguments& options) {
  expect_images("conv2d", x);
  if (weight.rank() != 4)
    fail<ShapeError>("[conv2d] expected a weight (out, in / groups, height, width), got shape {}",
                     weight.shape().to_string());
  const std::int64_t channels = dim::product(weight.size_word(1), options.groups);
  if (!dim::may_equal(x.size_word(1), channels))
    fail<ShapeError>(
        "[conv2d] expected images (batch, {}, height, width), got shape {}{}", dim::text(channels),
        x.shape().to_string(),
        x.size_word(3) == channels
            ? "; they look channels-last: write x.permute({0, 3, 1, 2}), or use layers::Conv2D"
            : "");
  const WindowPadding padding = sides_of(options.padding, weight, options.stride, options.dilation);
  const bool zeros = options.padding_mode.value() == PaddingMode::kConstant;
  const Tensor images = channels_last(x);
  return channels_first(
      nn::conv2d(zeros ? images
                       : tandem::pad(images, {{0, 0}, padding.rows(), padding.columns(), {0, 0}},
                                     options.padding_mode),
                 transpose(weight, {2, 3, 1, 0}), bias,
                 {.strides = options.stride,
                  .padding = zeros ? padding : WindowPadding(),
                  .dilations = options.dilation,
                  .groups = options.groups}));
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

MaxPool2d::MaxPool2d(Pair kernel_size, const MaxPool2dArguments& options)
    : ModuleHolder(
          std::make_shared<FunctionModule>("max_pool2d", [kernel_size, options](const Tensor& x) {
            return functional::max_pool2d(x, kernel_size, options);
          })) {}

AvgPool2d::AvgPool2d(Pair kernel_size, const AvgPool2dArguments& options)
    : ModuleHolder(
          std::make_shared<FunctionModule>("avg_pool2d", [kernel_size, options](const Tensor& x) {
            return functional::avg_pool2d(x, kernel_size, options);
          })) {}

AdaptiveAvgPool2d::AdaptiveAvgPool2d(Pair output_size)
    : ModuleHolder(
          std::make_shared<FunctionModule>("adaptive_avg_pool2d", [output_size](const Tensor& x) {
            return functional::adaptive_avg_pool2d(x, output_size);
          })) {}

AdaptiveMaxPool2d::AdaptiveMaxPool2d(Pair output_size)
    : ModuleHolder(
          std::make_shared<FunctionModule>("adaptive_max_pool2d", [output_size](const Tensor& x) {
            return functional::adaptive_max_pool2d(x, output_size);
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

Conv2d::Conv2d(const Conv2dOptions& options) : Conv2d(std::make_shared<Conv2dImpl>(options)) {}

BatchNorm1d::BatchNorm1d(std::int64_t num_features, const BatchNormOptions& options)
    : ModuleHolder(std::make_shared<BatchNormImpl>("batch_norm1d", num_features, 2, 3, options)) {}

BatchNorm2d::BatchNorm2d(std::int64_t num_features, const BatchNormOptions& options)
    : ModuleHolder(std::make_shared<BatchNormImpl>("batch_norm2d", num_features, 4, 4, options)) {}

Dropout2d::Dropout2d(double p) : ModuleHolder(std::make_shared<Dropout2dImpl>(p)) {}

}  // namespace tandem::nn
