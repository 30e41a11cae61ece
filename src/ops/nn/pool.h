// The geometry of pooling, for the kernels of all devices.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>

#include "op/fields.h"
#include "op/op.h"
#include "ops/nn/window.h"
#include "tandem/nn.h"
#include "tandem/shape.h"

namespace tandem {

struct PoolAttrs {
  std::int64_t window_h = 1, window_w = 1;
  std::int64_t stride_h = 1, stride_w = 1;
  nn::Padding padding = nn::Padding::kValid;
  std::int64_t height = 0, width = 0;  // of the images, for the gradient of average pooling
  // The numbers of Padding::kExplicit.
  std::int64_t pad_top = 0, pad_bottom = 0, pad_left = 0, pad_right = 0;
  bool ceil = false;  // as nn::Pool2DOptions::ceil_mode
  TANDEM_FIELDS(window_h, window_w, stride_h, stride_w, padding, height, width, pad_top, pad_bottom,
                pad_left, pad_right, ceil)
};

struct Pool {
  std::int64_t n, h, w, channels, oh, ow;
  std::int64_t window_h, window_w, stride_h, stride_w, pad_top, pad_left;

  // Whether every pixel belongs to exactly one window.
  bool tiles() const {
    return window_h == stride_h && window_w == stride_w && pad_top == 0 && pad_left == 0 &&
           oh * stride_h == h && ow * stride_w == w;
  }

  // The rows of windows, [first, last), that cover row `y` of an image, and the columns of windows
  // that cover column `x`.
  struct WindowRange {
    std::int64_t first, last;
  };
  constexpr WindowRange rows_over(std::int64_t y) const {
    return windows_over(y + pad_top, window_h, stride_h, oh);
  }
  constexpr WindowRange columns_over(std::int64_t x) const {
    return windows_over(x + pad_left, window_w, stride_w, ow);
  }

 private:
  static constexpr WindowRange windows_over(std::int64_t at, std::int64_t window,
                                            std::int64_t stride, std::int64_t count) {
    const std::int64_t first = at < window ? 0 : (at - window) / stride + 1;
    return {first, std::min(count, at / stride + 1)};
  }
};

// The pooling of images of shape `x`. Throws InvalidArgumentError "[op] ...".
Pool pool_of(std::string_view op, const PoolAttrs& attrs, const Shape& x);

// The pixels of an image that the window at (oy, ox) covers.
struct PoolWindow {
  std::int64_t top, bottom, left, right;
  constexpr PoolWindow(const Pool& p, std::int64_t oy, std::int64_t ox)
      : top(std::max<std::int64_t>(0, oy * p.stride_h - p.pad_top)),
        bottom(std::min(p.h, oy * p.stride_h - p.pad_top + p.window_h)),
        left(std::max<std::int64_t>(0, ox * p.stride_w - p.pad_left)),
        right(std::min(p.w, ox * p.stride_w - p.pad_left + p.window_w)) {}
  constexpr std::int64_t count() const { return (bottom - top) * (right - left); }
};

// The kernels on the CPU, in pool_kernels.cc.
void max_pool_kernel(KernelContext& c);
void max_pool_grad_kernel(KernelContext& c);
void max_pool_grad_grad_kernel(KernelContext& c);
void avg_pool_kernel(KernelContext& c);
void avg_pool_grad_kernel(KernelContext& c);

}  // namespace tandem
