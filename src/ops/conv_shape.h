// The sizes of a convolution, for all backends.
#pragma once

#include <compare>
#include <cstdint>

#include "tandem/dtype.h"

namespace tandem {

// x [n, h, w, in], kernel [kh, kw, in / groups, out], y [n, oh, ow, out].
struct ConvShape {
  DType dtype = float32;
  std::int64_t n = 0, h = 0, w = 0, in = 0;
  std::int64_t kh = 0, kw = 0, out = 0, groups = 1;
  std::int64_t oh = 0, ow = 0;
  std::int64_t stride_h = 1, stride_w = 1;
  std::int64_t dilation_h = 1, dilation_w = 1;
  std::int64_t pad_top = 0, pad_bottom = 0, pad_left = 0, pad_right = 0;
  auto operator<=>(const ConvShape&) const = default;
};

}  // namespace tandem
