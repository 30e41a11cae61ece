// oneDNN's descriptors of convolutions.
#pragma once

#include "ops/onednn/primitive.h"

namespace tandem::onednn {

// Describes `out` of the kernel's output channels in their memory layout. REQUIRES: `out` is all of
// them, or there is one group.
inline memory::desc kernel_part(const ConvShape& c, std::int64_t out) {
  const std::int64_t in = c.in / c.groups;
  memory::dims sizes = {out / c.groups, in, c.kh, c.kw};
  memory::dims strides = {1, c.out, c.kw * in * c.out, in * c.out};
  if (c.groups > 1) {
    sizes.insert(sizes.begin(), c.groups);
    strides.insert(strides.begin(), c.out / c.groups);
  }
  return {sizes, data_type(c.dtype), strides};
}

// Descriptors of the tensors of a convolution. oneDNN's sizes are in the order n, c, h, w (kernels:
// groups if there are several, then o, i, h, w); the strides describe the memory layout.
struct ConvDescs {
  memory::desc x, y, bias;
  memory::desc kernel;      // in the tensor's layout
  memory::desc kernel_any;  // in any layout that the primitive chooses
  memory::dims strides, dilations, pad_begin, pad_end;

  explicit ConvDescs(const ConvShape& c) {
    const memory::data_type type = data_type(c.dtype);
    x = {{c.n, c.in, c.h, c.w}, type, memory::format_tag::nhwc};
    y = {{c.n, c.out, c.oh, c.ow}, type, memory::format_tag::nhwc};
    bias = {{c.out}, type, memory::format_tag::a};
    kernel = kernel_part(c, c.out);
    kernel_any = {kernel.dims(), type, memory::format_tag::any};
    strides = {c.stride_h, c.stride_w};
    dilations = {c.dilation_h - 1, c.dilation_w - 1};
    pad_begin = {c.pad_top, c.pad_left};
    pad_end = {c.pad_bottom, c.pad_right};
  }
};

inline dnnl::convolution_forward::primitive_desc describe_forward(const ConvDescs& d, bool bias) {
  const dnnl::primitive_attr attr = attributes();
  constexpr auto kTraining = dnnl::prop_kind::forward_training;
  return bias ? describe<dnnl::convolution_forward>(
                    attr, kTraining, dnnl::algorithm::convolution_direct, d.x, d.kernel_any, d.bias,
                    d.y, d.strides, d.dilations, d.pad_begin, d.pad_end)
              : describe<dnnl::convolution_forward>(
                    attr, kTraining, dnnl::algorithm::convolution_direct, d.x, d.kernel_any, d.y,
                    d.strides, d.dilations, d.pad_begin, d.pad_end);
}

inline PrimitiveKey conv_key(PrimitiveKind kind, const ConvShape& c) {
  PrimitiveKey key(kind, c.dtype);
  key.add(c.n, c.h, c.w, c.in, c.kh, c.kw, c.out, c.groups, c.oh, c.ow, c.stride_h, c.stride_w,
          c.dilation_h, c.dilation_w, c.pad_top, c.pad_bottom, c.pad_left, c.pad_right);
  return key;
}

}  // namespace tandem::onednn
