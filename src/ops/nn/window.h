// The geometry of sliding windows: the number of positions, and the padding around an image.
#pragma once

#include <cstdint>
#include <initializer_list>

#include "core/dim.h"
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

// How windows, strides, dilations and groups have to be, if one of `numbers` is not; else null.
inline const char* expected_of_windows(std::initializer_list<std::int64_t> numbers) {
  for (const std::int64_t number : numbers)
    if (!dim::may_be_at_most(1, number)) return "of 1 or more";
  for (const std::int64_t number : numbers)
    if (!dim::may_be_at_most(number, kMaxWindow - 1)) return "below 2^31";
  return nullptr;
}

// As TensorFlow: kSame covers every pixel, with the odd one of the padding at the end; kValid uses
// only windows that fit. REQUIRES: window, stride and dilation of [1, kMaxWindow), or unknown
// sizes.
inline WindowAxis place_windows(std::int64_t size, std::int64_t window, std::int64_t stride,
                                std::int64_t dilation, Padding padding) {
  const std::int64_t extent = dim::sum(dim::product(dim::difference(window, 1), dilation), 1);
  if (padding == Padding::kValid) {
    const std::int64_t last = dim::floor_quotient(dim::difference(size, extent), stride);
    return {.output = dim::max(0, dim::sum(last, 1))};
  }
  const std::int64_t output = dim::ceil_quotient(size, stride);
  const std::int64_t covered = dim::sum(dim::product(dim::difference(output, 1), stride), extent);
  const std::int64_t total = dim::max(0, dim::difference(covered, size));
  const std::int64_t half = dim::floor_quotient(total, 2);
  return {.output = output, .pad_begin = half, .pad_end = dim::difference(total, half)};
}

}  // namespace tandem::nn
