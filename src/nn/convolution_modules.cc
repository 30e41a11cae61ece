// PyTorch's modules of sequences and volumes, transposed convolutions, padding and shuffling.
#include "tandem/convolution_modules.h"

#include <algorithm>
#include <cmath>

#include "core/dim.h"
#include "core/status.h"
#include "nn/function_module.h"
#include "nn/windows.h"
#include "ops/array/array_ops.h"
#include "tandem/array.h"
#include "tandem/creation.h"
#include "tandem/math.h"
#include "tandem/random.h"

namespace tandem::nn {
namespace {

using Numbers = std::vector<std::int64_t>;

Numbers numbers_of(const Triple& t) { return {t.depth, t.height, t.width}; }

// Throws "[what] expected ..." unless `x` has a batch, channels and `axes` axes, and `weight` has
// as many, whose axis `of` has `channels` channels of x divided by the groups (or all of them).
void expect_shapes(const char* what, const Tensor& x, const Tensor& weight, int axes,
                   std::int64_t channels, bool transposed) {
  if (x.rank() != axes + 2 || weight.rank() != axes + 2)
    fail<ShapeError>(
        "[{}] expected an input (batch, channels, {}) and a weight ({}, {}), got shapes "
        "{} and {}",
        what,
        axes == 1   ? "positions"
        : axes == 2 ? "height, width"
                    : "depth, height, width",
        transposed ? "in, out / groups" : "out, in / groups",
        axes == 1   ? "positions"
        : axes == 2 ? "height, width"
                    : "depth, height, width",
        x.shape().to_string(), weight.shape().to_string());
  if (!dim::may_equal(x.shape().word(1), channels))
    fail<ShapeError>("[{}] expected an input of {} channels on axis 1, got shape {}", what,
                     dim::text(channels), x.shape().to_string());
}

void expect_channels(const char* what, std::int64_t in, std::int64_t out, std::int64_t groups,
                     const Numbers& kernel) {
  bool positive = in > 0 && out > 0 && groups > 0;
  for (const std::int64_t size : kernel) positive = positive && size > 0;
  if (!positive || in % groups != 0 || out % groups != 0)
    fail<InvalidArgumentError>(
        "[{}] expected positive sizes and numbers of channels that the groups divide, got {} to {} "
        "channels, a kernel of {} and {} groups",
        what, in, out, Shape(Dims(kernel.begin(), kernel.end())).to_string(), groups);
}

Shape weight_shape(std::int64_t first, std::int64_t second, const Numbers& kernel) {
  Dims sizes{first, second};
  for (const std::int64_t size : kernel) sizes.push_back(size);
  return Shape(sizes);
}

}  // namespace

namespace functional {

Tensor conv1d(const Tensor& x, const Tensor& weight, const Tensor& bias,
              const Conv1dArguments& options) {
  expect_shapes("conv1d", x, weight, 1, dim::product(weight.shape().word(1), options.groups),
                false);
  // As images of one row.
  const Tensor images = expand_dims(x, 2), kernel = expand_dims(weight, 2);
  return squeeze(conv2d(images, kernel, bias,
                        {.stride = {1, options.stride},
                         .padding = {0, options.padding},
                         .dilation = {1, options.dilation},
                         .groups = options.groups,
                         .padding_mode = options.padding_mode}),
                 {2});
}

Tensor conv3d(const Tensor& x, const Tensor& weight, const Tensor& bias,
              const Conv3dArguments& options) {
  expect_shapes("conv3d", x, weight, 3, dim::product(weight.shape().word(1), options.groups),
                false);
  return channels_first(nn::conv3d(channels_last(x), transpose(weight, {2, 3, 4, 1, 0}), bias,
                                   {.strides = options.stride,
                                    .padding = options.padding,
                                    .dilations = options.dilation,
                                    .groups = options.groups}));
}

Tensor conv_transpose1d(const Tensor& x, const Tensor& weight, const Tensor& bias,
                        const ConvTranspose1dArguments& options) {
  expect_shapes("conv_transpose1d", x, weight, 1, weight.shape().word(0), true);
  return squeeze(conv_transpose2d(expand_dims(x, 2), expand_dims(weight, 2), bias,
                                  {.stride = {1, options.stride},
                                   .padding = {0, options.padding},
                                   .output_padding = {0, options.output_padding},
                                   .groups = options.groups,
                                   .dilation = {1, options.dilation}}),
                 {2});
}

Tensor conv_transpose2d(const Tensor& x, const Tensor& weight, const Tensor& bias,
                        const ConvTranspose2dArguments& options) {
  expect_shapes("conv_transpose2d", x, weight, 2, weight.shape().word(0), true);
  return channels_first(nn::conv2d_transpose(channels_last(x), transpose(weight, {2, 3, 1, 0}),
                                             bias,
                                             {.strides = options.stride,
                                              .padding = options.padding,
                                              .output_padding = options.output_padding,
                                              .dilations = options.dilation,
                                              .groups = options.groups}));
}

Tensor conv_transpose3d(const Tensor& x, const Tensor& weight, const Tensor& bias,
                        const ConvTranspose3dArguments& options) {
  expect_shapes("conv_transpose3d", x, weight, 3, weight.shape().word(0), true);
  const std::int64_t stride = options.stride.depth, dilation = options.dilation.depth,
                     padding = options.padding.depth, more = options.output_padding.depth;
  const Dim taps = weight.dim(2);
  if (std::min(stride, dilation) < 1 || !dim::may_be_at_most(1, taps) ||
      std::min(padding, more) < 0 || more >= std::max(stride, dilation))
    fail<InvalidArgumentError>(
        "[conv_transpose3d] expected a kernel, strides and dilations of 1 or more, a padding of 0 "
        "or more, and less output_padding than stride or dilation, got depths of {}, {}, {}, {} "
        "and {}",
        dim::text(taps), stride, dilation, padding, more);
  const Dim depth = x.dim(2), each = weight.dim(1), channels = each * options.groups;
  if (bias.defined() && (bias.rank() != 1 || !dim::may_equal(bias.size_word(0), channels.word())))
    fail<ShapeError>("[conv_transpose3d] expected a bias of shape ({},), got {}",
                     channels.to_string(), bias.shape().to_string());
  // The slices are images. Each gives one of the result for each tap along the kernel's depth.
  const Tensor y = conv_transpose2d(
      reshape(transpose(x, {0, 2, 1, 3, 4}), {x.dim(0) * depth, x.dim(1), x.dim(3), x.dim(4)}),
      reshape(transpose(weight, {0, 2, 1, 3, 4}),
              {weight.dim(0), each * taps, weight.dim(3), weight.dim(4)}),
      {},
      {.stride = {options.stride.height, options.stride.width},
       .padding = {options.padding.height, options.padding.width},
       .output_padding = {options.output_padding.height, options.output_padding.width},
       .groups = options.groups,
       .dilation = {options.dilation.height, options.dilation.width}});
  const Dim height = y.dim(2), width = y.dim(3);
  const Tensor slices =
      transpose(reshape(y, {x.dim(0), depth, options.groups, taps, each, height, width}),
                {1, 3, 0, 2, 4, 5, 6});
  const auto steps = [](const Dim& count, std::int64_t by) {
    return range(count, {.dtype = int64}) * static_cast<double>(by);
  };
  const Tensor at = expand_dims(steps(depth, stride), 1) + expand_dims(steps(taps, dilation), 0);
  const Dim whole = (depth - 1) * stride + ((taps - 1) * dilation + 1 + more);
  const Dim left = whole - 2 * padding;
  if (left.known() && left.value() < 1)
    fail<ShapeError>("[conv_transpose3d] expected a padding that leaves elements, got {} of {}",
                     padding, whole.to_string());
  const Tensor sums =
      add_to_rows(reshape(slices, {depth * taps, x.dim(0), channels, height, width}),
                  reshape(at, {-1}), {whole, x.dim(0), channels, height, width});
  const Tensor result =
      transpose(slice(sums, {padding, 0, 0, 0, 0}, {left, -1, -1, -1, -1}), {1, 2, 0, 3, 4});
  return bias.defined() ? result + reshape(bias, {channels, 1, 1, 1}) : result;
}

Tensor max_pool1d(const Tensor& x, std::int64_t kernel_size, const MaxPool1dArguments& options) {
  return max_pooled("max_pool1d", x,
                    {.size = {kernel_size},
                     .stride = {options.stride.value_or(kernel_size)},
                     .padding = {options.padding},
                     .dilation = {options.dilation},
                     .ceil = options.ceil_mode});
}

Tensor avg_pool1d(const Tensor& x, std::int64_t kernel_size, const AvgPool1dArguments& options) {
  return mean_pooled("avg_pool1d", x,
                     {.size = {kernel_size},
                      .stride = {options.stride.value_or(kernel_size)},
                      .padding = {options.padding},
                      .dilation = {1},
                      .ceil = options.ceil_mode,
                      .count_padding = options.count_include_pad});
}

Tensor max_pool3d(const Tensor& x, Triple kernel_size, const MaxPool3dArguments& options) {
  return max_pooled("max_pool3d", x,
                    {.size = numbers_of(kernel_size),
                     .stride = numbers_of(options.stride.value_or(kernel_size)),
                     .padding = numbers_of(options.padding),
                     .dilation = numbers_of(options.dilation),
                     .ceil = options.ceil_mode});
}

Tensor avg_pool3d(const Tensor& x, Triple kernel_size, const AvgPool3dArguments& options) {
  return mean_pooled("avg_pool3d", x,
                     {.size = numbers_of(kernel_size),
                      .stride = numbers_of(options.stride.value_or(kernel_size)),
                      .padding = numbers_of(options.padding),
                      .dilation = {1, 1, 1},
                      .ceil = options.ceil_mode,
                      .count_padding = options.count_include_pad,
                      .divisor = options.divisor_override});
}

Tensor adaptive_avg_pool1d(const Tensor& x, std::int64_t output_size) {
  return adaptively_pooled("adaptive_avg_pool1d", x, {output_size}, false);
}
Tensor adaptive_max_pool1d(const Tensor& x, std::int64_t output_size) {
  return adaptively_pooled("adaptive_max_pool1d", x, {output_size}, true);
}
Tensor adaptive_avg_pool3d(const Tensor& x, Triple size) {
  return adaptively_pooled("adaptive_avg_pool3d", x, {size.depth, size.height, size.width}, false);
}
Tensor adaptive_max_pool3d(const Tensor& x, Triple size) {
  return adaptively_pooled("adaptive_max_pool3d", x, {size.depth, size.height, size.width}, true);
}

namespace {

// The axes before the last three as one.
Tensor with_one_batch(const char* what, const Tensor& x, std::int64_t factor) {
  if (x.rank() < 3)
    fail<ShapeError>("[{}] expected images (..., channels, height, width), got shape {}", what,
                     x.shape().to_string());
  if (factor < 1)
    fail<InvalidArgumentError>("[{}] expected a factor of 1 or more, got {}", what, factor);
  Dim batch = 1;
  for (int axis = 0; axis < x.rank() - 3; ++axis) batch *= x.dim(axis);
  return reshape(x, {batch, x.dim(-3), x.dim(-2), x.dim(-1)});
}

Tensor with_batch_of(const Tensor& x, const Tensor& y) {
  Dims sizes;
  for (int axis = 0; axis < x.rank() - 3; ++axis) sizes.push_back(x.shape().word(axis));
  for (int axis = 1; axis < 4; ++axis) sizes.push_back(y.shape().word(axis));
  return reshape(y, Shape(sizes));
}

void expect_divided(const char* what, const Tensor& x, std::int64_t axis, std::int64_t by) {
  if (!dim::may_be_multiple(x.dim(axis).word(), by))
    fail<ShapeError>("[{}] expected a size of axis {} that {} divides, got shape {}", what, axis,
                     by, x.shape().to_string());
}

}  // namespace

Tensor pixel_shuffle(const Tensor& given, std::int64_t r) {
  const Tensor x = with_one_batch("pixel_shuffle", given, r);
  expect_divided("pixel_shuffle", given, -3, r * r);
  const Dim channels = x.dim(1) / (r * r), height = x.dim(2), width = x.dim(3);
  const Tensor squares = reshape(x, {x.dim(0), channels, r, r, height, width});
  return with_batch_of(given, reshape(transpose(squares, {0, 1, 4, 2, 5, 3}),
                                      {x.dim(0), channels, height * r, width * r}));
}

Tensor pixel_unshuffle(const Tensor& given, std::int64_t r) {
  const Tensor x = with_one_batch("pixel_unshuffle", given, r);
  expect_divided("pixel_unshuffle", given, -2, r);
  expect_divided("pixel_unshuffle", given, -1, r);
  const Dim channels = x.dim(1), height = x.dim(2) / r, width = x.dim(3) / r;
  const Tensor squares = reshape(x, {x.dim(0), channels, height, r, width, r});
  return with_batch_of(given, reshape(transpose(squares, {0, 1, 3, 5, 2, 4}),
                                      {x.dim(0), channels * (r * r), height, width}));
}

Tensor channel_shuffle(const Tensor& x, std::int64_t groups) {
  if (x.rank() < 2)
    fail<ShapeError>("[channel_shuffle] expected an input (batch, channels, ...), got shape {}",
                     x.shape().to_string());
  if (groups < 1)
    fail<InvalidArgumentError>("[channel_shuffle] expected 1 group or more, got {}", groups);
  expect_divided("channel_shuffle", x, 1, groups);
  Dim rest = 1;
  for (int axis = 2; axis < x.rank(); ++axis) rest *= x.dim(axis);
  const Tensor grouped = reshape(x, {x.dim(0), groups, x.dim(1) / groups, rest});
  return reshape(transpose(grouped, {0, 2, 1, 3}), x.shape());
}

}  // namespace functional

ConvolutionImpl::ConvolutionImpl(std::string kind, const Shape& shape, std::int64_t out_channels,
                                 bool has_bias, Function function)
    : kind_(std::move(kind)), function_(std::move(function)) {
  const std::int64_t inputs = shape.num_elements() / shape.word(0);
  const double bound = 1.0 / std::sqrt(static_cast<double>(inputs));
  weight = register_parameter("weight", random::uniform(shape, -bound, bound));
  if (has_bias) bias = register_parameter("bias", random::uniform({out_channels}, -bound, bound));
}

Tensor ConvolutionImpl::forward(const Tensor& input) const {
  return function_(input, weight, bias.defined() ? bias.value() : Tensor());
}

Conv1d::Conv1d(std::int64_t in_channels, std::int64_t out_channels, std::int64_t kernel_size,
               const Conv1dArguments& options) {
  expect_channels("conv1d", in_channels, out_channels, options.groups, {kernel_size});
  *this = Conv1d(std::make_shared<ConvolutionImpl>(
      "conv1d", weight_shape(out_channels, in_channels / options.groups, {kernel_size}),
      out_channels, options.bias,
      [options](const Tensor& x, const Tensor& weight, const Tensor& bias) {
        return functional::conv1d(x, weight, bias, options);
      }));
}

Conv3d::Conv3d(std::int64_t in_channels, std::int64_t out_channels, Triple kernel_size,
               const Conv3dArguments& options) {
  const Numbers kernel = numbers_of(kernel_size);
  expect_channels("conv3d", in_channels, out_channels, options.groups, kernel);
  *this = Conv3d(std::make_shared<ConvolutionImpl>(
      "conv3d", weight_shape(out_channels, in_channels / options.groups, kernel), out_channels,
      options.bias, [options](const Tensor& x, const Tensor& weight, const Tensor& bias) {
        return functional::conv3d(x, weight, bias, options);
      }));
}

ConvTranspose1d::ConvTranspose1d(std::int64_t in_channels, std::int64_t out_channels,
                                 std::int64_t kernel_size,
                                 const ConvTranspose1dArguments& options) {
  expect_channels("conv_transpose1d", in_channels, out_channels, options.groups, {kernel_size});
  *this = ConvTranspose1d(std::make_shared<ConvolutionImpl>(
      "conv_transpose1d", weight_shape(in_channels, out_channels / options.groups, {kernel_size}),
      out_channels, options.bias,
      [options](const Tensor& x, const Tensor& weight, const Tensor& bias) {
        return functional::conv_transpose1d(x, weight, bias, options);
      }));
}

ConvTranspose2d::ConvTranspose2d(std::int64_t in_channels, std::int64_t out_channels,
                                 Pair kernel_size, const ConvTranspose2dArguments& options) {
  const Numbers kernel = {kernel_size.height, kernel_size.width};
  expect_channels("conv_transpose2d", in_channels, out_channels, options.groups, kernel);
  *this = ConvTranspose2d(std::make_shared<ConvolutionImpl>(
      "conv_transpose2d", weight_shape(in_channels, out_channels / options.groups, kernel),
      out_channels, options.bias,
      [options](const Tensor& x, const Tensor& weight, const Tensor& bias) {
        return functional::conv_transpose2d(x, weight, bias, options);
      }));
}

ConvTranspose3d::ConvTranspose3d(std::int64_t in_channels, std::int64_t out_channels,
                                 Triple kernel_size, const ConvTranspose3dArguments& options) {
  const Numbers kernel = numbers_of(kernel_size);
  expect_channels("conv_transpose3d", in_channels, out_channels, options.groups, kernel);
  *this = ConvTranspose3d(std::make_shared<ConvolutionImpl>(
      "conv_transpose3d", weight_shape(in_channels, out_channels / options.groups, kernel),
      out_channels, options.bias,
      [options](const Tensor& x, const Tensor& weight, const Tensor& bias) {
        return functional::conv_transpose3d(x, weight, bias, options);
      }));
}

MaxPool1d::MaxPool1d(std::int64_t kernel_size, const MaxPool1dArguments& options)
    : ModuleHolder(function_module("max_pool1d", [kernel_size, options](const Tensor& x) {
        return functional::max_pool1d(x, kernel_size, options);
      })) {}
AvgPool1d::AvgPool1d(std::int64_t kernel_size, const AvgPool1dArguments& options)
    : ModuleHolder(function_module("avg_pool1d", [kernel_size, options](const Tensor& x) {
        return functional::avg_pool1d(x, kernel_size, options);
      })) {}
MaxPool3d::MaxPool3d(Triple kernel_size, const MaxPool3dArguments& options)
    : ModuleHolder(function_module("max_pool3d", [kernel_size, options](const Tensor& x) {
        return functional::max_pool3d(x, kernel_size, options);
      })) {}
AvgPool3d::AvgPool3d(Triple kernel_size, const AvgPool3dArguments& options)
    : ModuleHolder(function_module("avg_pool3d", [kernel_size, options](const Tensor& x) {
        return functional::avg_pool3d(x, kernel_size, options);
      })) {}
AdaptiveAvgPool1d::AdaptiveAvgPool1d(std::int64_t output_size)
    : ModuleHolder(function_module("adaptive_avg_pool1d", [output_size](const Tensor& x) {
        return functional::adaptive_avg_pool1d(x, output_size);
      })) {}
AdaptiveMaxPool1d::AdaptiveMaxPool1d(std::int64_t output_size)
    : ModuleHolder(function_module("adaptive_max_pool1d", [output_size](const Tensor& x) {
        return functional::adaptive_max_pool1d(x, output_size);
      })) {}
AdaptiveAvgPool3d::AdaptiveAvgPool3d(Triple output_size)
    : ModuleHolder(function_module("adaptive_avg_pool3d", [output_size](const Tensor& x) {
        return functional::adaptive_avg_pool3d(x, output_size);
      })) {}

std::vector<std::int64_t> PaddingSides::of(const char* what, std::size_t axes) const {
  if (sides_.empty()) return std::vector<std::int64_t>(2 * axes, all_);
  if (sides_.size() != 2 * axes)
    fail<InvalidArgumentError>("[{}] expected one number or {}, got {}", what, 2 * axes,
                               sides_.size());
  return sides_;
}

PixelShuffle::PixelShuffle(std::int64_t upscale_factor)
    : ModuleHolder(function_module("pixel_shuffle", [upscale_factor](const Tensor& x) {
        return functional::pixel_shuffle(x, upscale_factor);
      })) {}
PixelUnshuffle::PixelUnshuffle(std::int64_t downscale_factor)
    : ModuleHolder(function_module("pixel_unshuffle", [downscale_factor](const Tensor& x) {
        return functional::pixel_unshuffle(x, downscale_factor);
      })) {}
ChannelShuffle::ChannelShuffle(std::int64_t groups)
    : ModuleHolder(function_module("channel_shuffle", [groups](const Tensor& x) {
        return functional::channel_shuffle(x, groups);
      })) {}
Unflatten::Unflatten(std::int64_t dim, const std::vector<std::int64_t>& unflattened_size)
    : ModuleHolder(function_module("unflatten", [dim, unflattened_size](const Tensor& x) {
        static_cast<void>(x.dim(dim));  // refuses another axis
        const int at = static_cast<int>(dim < 0 ? dim + x.rank() : dim);
        std::int64_t product = 1;
        bool open = false;
        for (const std::int64_t size : unflattened_size) {
          open = open || size < 0;
          if (size >= 0) product *= size;
        }
        const std::int64_t size = x.shape().word(at);
        if (product == 0 ||
            (open ? !dim::may_be_multiple(size, product) : !dim::may_equal(size, product)))
          fail<ShapeError>(
              "[unflatten] expected sizes whose product is that of axis {} of shape {}", dim,
              x.shape().to_string());
        Dims sizes;
        for (int axis = 0; axis < x.rank(); ++axis) {
          if (axis != at) sizes.push_back(x.shape().word(axis));
          for (std::size_t i = 0; axis == at && i < unflattened_size.size(); ++i)
            sizes.push_back(unflattened_size[i] >= 0 ? unflattened_size[i]
                                                     : dim::quotient(size, product));
        }
        return reshape(x, Shape(sizes));
      })) {}

}  // namespace tandem::nn
