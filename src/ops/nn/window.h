// The geometry of sliding windows: the number of positions, and the padding around an image.
#pragma once

#include <algorithm>
#include <cstdint>

#include "tandem/nn.h"

namespace tandem::nn {

// Along one axis.
struct WindowAxis {
  std::int64_t output = 0;
  std::int64_t pad_begin = 0;
  std::int64_t pad_end = 0;
};

// The limit of windows, strides and dilations, so that products of them do not overflow.
inline constexpr std::int64_t kMaxWindow = std::int64_t{1} << 31;

// As TensorFlow: kSame covers every pixel, with the odd one of the padding at the end; kValid uses
// only windows that fit. REQUIRES: window, stride and dilation of [1, kMaxWindow), a size of 0 or
// more.
inline WindowAxis place_windows(std::int64_t size, std::int64_t window, std::int64_t stride,
                                std::int64_t dilation, Padding padding) {
  const std::int64_t extent = (window - 1) * dilation + 1;
  if (padding == Padding::kValid)
    return {.output = size < extent ? 0 : (size - extent) / stride + 1};
  const std::int64_t output = (size + stride - 1) / stride;
  const std::int64_t total = std::max<std::int64_t>(0, (output - 1) * stride + extent - size);
  return {.output = output, .pad_begin = total / 2, .pad_end = total - total / 2};
}

}  // namespace tandem::nn
