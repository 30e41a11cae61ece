// Convolutions and their gradients in StableHLO.
#include "ops/lowering_support.h"
#include "ops/nn/activation_formulas.h"
#include "ops/nn/conv.h"

namespace tandem::stablehlo {
namespace {

// The images and kernel of the forward operation.
ConvShape shape_of(const Context& c, const Shape& images, const Shape& kernel) {
  for (const int axis : {1, 2, 3}) dim::known(c.op(), images.word(axis), "its lowering");
  for (const std::int64_t size : kernel.words()) dim::known(c.op(), size, "its lowering");
  return conv_shape(c.op(), c.attrs<ConvAttrs>(), float32, images, kernel);
}

// A convolution whose result has the output's shape, in the element type of the computation.
Value convolve(Context& c, const Value& x, const Value& filter, std::string_view layout,
               const Window& window, Builder::Groups groups) {
  return c.build.convolution(x, filter, layout, window, groups,
                             {compute_element(x.element()), c.output().shape});
}

void lower_conv(Context& c) {
  const ConvShape conv = shape_of(c, c.input(0).shape(), c.input(1).shape());
  const Window window{.size = {},
                      .strides = {conv.stride_h, conv.stride_w},
                      .low = {conv.pad_top, conv.pad_left},
                      .high = {conv.pad_bottom, conv.pad_right},
                      .dilations = {conv.dilation_h, conv.dilation_w}};
  Expression y(c.build,
               convolve(c, c.input(0), c.input(1), "[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]",
                        window, {.of_features = conv.groups}));
  if (c.num_inputs() == 3) y = y + y.repeat(widened(c, 2).value());
  finish(c, activated(y, c.attrs<ConvAttrs>().activation));
}

// The kernel with the input and output channels of each group exchanged.
Value exchanged_channels(Context& c, const Value& kernel, std::int64_t groups) {
  const Shape& k = kernel.shape();
  const std::int64_t in = k.word(2), out = k.word(3) / groups;
  const Value grouped = c.build.reshape(kernel, {k.word(0), k.word(1), in, groups, out});
  const Value exchanged = c.build.transpose(grouped, {0, 1, 4, 3, 2});
  return c.build.reshape(exchanged, {k.word(0), k.word(1), out, groups * in});
}

// The padding after an axis so that a window of `extent` elements has `count` positions at a
// distance of `stride`, given the elements and the padding before. May be negative.
std::int64_t padding_after(std::int64_t count, std::int64_t stride, std::int64_t extent,
                           std::int64_t elements, std::int64_t before) {
  return (count - 1) * stride + extent - elements - before;
}

// The convolution of the gradient, spread out by the strides, with the reversed kernel.
void lower_backprop_input(Context& c) {
  const Value &dy = c.input(0), &kernel = c.input(1);
  const ConvShape conv = shape_of(c, c.output().shape, kernel.shape());
  const auto axis = [](std::int64_t size, std::int64_t out, std::int64_t taps, std::int64_t stride,
                       std::int64_t dilation, std::int64_t padding) {
    const std::int64_t extent = (taps - 1) * dilation + 1, before = extent - 1 - padding;
    return std::pair(before, padding_after(size, 1, extent, (out - 1) * stride + 1, before));
  };
  const auto rows = axis(conv.h, conv.oh, conv.kh, conv.stride_h, conv.dilation_h, conv.pad_top);
  const auto columns =
      axis(conv.w, conv.ow, conv.kw, conv.stride_w, conv.dilation_w, conv.pad_left);
  const Window window{.size = {},
                      .strides = {1, 1},
                      .low = {rows.first, columns.first},
                      .high = {rows.second, columns.second},
                      .dilations = {conv.dilation_h, conv.dilation_w},
                      .base_dilations = {conv.stride_h, conv.stride_w}};
  const Value reversed = c.build.reverse(exchanged_channels(c, kernel, conv.groups), {0, 1});
  finish(c, convolve(c, dy, reversed, "[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]", window,
                     {.of_features = conv.groups}));
}

// The convolution of the images with the gradient, over the examples instead of the channels.
void lower_backprop_filter(Context& c) {
  const Value &x = c.input(0), &dy = c.input(1);
  const ConvShape conv = shape_of(c, x.shape(), c.output().shape);
  const Window window{
      .size = {},
      .strides = {conv.dilation_h, conv.dilation_w},
      .low = {conv.pad_top, conv.pad_left},
      .high = {padding_after(conv.kh, conv.dilation_h, (conv.oh - 1) * conv.stride_h + 1, conv.h,
                             conv.pad_top),
               padding_after(conv.kw, conv.dilation_w, (conv.ow - 1) * conv.stride_w + 1, conv.w,
                             conv.pad_left)},
      .dilations = {conv.stride_h, conv.stride_w}};
  finish(c, convolve(c, x, dy, "[f, 0, 1, b]x[i, 0, 1, o]->[0, 1, b, f]", window,
                     {.of_batch = conv.groups}));
}

constexpr Lowering kConvLowerings[] = {
    {"Conv2D", lower_conv},
    {"Conv2DBackpropFilter", lower_backprop_filter},
    {"Conv2DBackpropInput", lower_backprop_input},
    {"FusedConv2D", lower_conv},
};

}  // namespace

LoweringList conv_lowerings() { return kConvLowerings; }

}  // namespace tandem::stablehlo
