// The operations of nn::conv2d and nn::depthwise_conv2d.
#pragma once

#include <string_view>

#include "op/op.h"
#include "ops/conv_shape.h"
#include "tandem/nn.h"

namespace tandem {

struct ConvAttrs {
  std::int64_t stride_h = 1, stride_w = 1;
  std::int64_t dilation_h = 1, dilation_w = 1;
  std::int64_t groups = 1;
  nn::Padding padding = nn::Padding::kValid;
  nn::Activation activation = nn::Activation::kLinear;  // must be is_fused()
  // The size of the result of Conv2DBackpropInput (the image) or Conv2DBackpropFilter (the kernel).
  std::int64_t height = 0, width = 0;
  // The numbers of Padding::kExplicit.
  std::int64_t pad_top = 0, pad_bottom = 0, pad_left = 0, pad_right = 0;
  TANDEM_FIELDS(stride_h, stride_w, dilation_h, dilation_w, groups, padding, activation, height,
                width, pad_top, pad_bottom, pad_left, pad_right)
};

// The sizes of the convolution of an image by a kernel of these shapes. Throws InvalidArgumentError
// "[op] ..." if they do not match.
ConvShape conv_shape(std::string_view op, const ConvAttrs& attrs, DType dtype, const Shape& x,
                     const Shape& kernel);

}  // namespace tandem
