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

// The padding along one axis: the numbers of kExplicit, and whether a window may end beyond it.
struct AxisPadding {
  Padding kind;
  std::int64_t before = 0, after = 0;
  bool ceil = false;
  AxisPadding(Padding only) : kind(only) {}  // NOLINT: stands for it
  AxisPadding(Padding padding, std::int64_t b, std::int64_t a, bool c = false)
      : kind(padding), ceil(c) {
    if (padding == Padding::kExplicit) before = b, after = a;
  }
};

// Whether numbers of padding may be of [0, limit).
inline bool may_be_paddings(std::initializer_list<std::int64_t> numbers, std::int64_t limit) {
  for (const std::int64_t number : numbers)
    if (!dim::may_be_at_most(0, number) || !dim::may_be_at_most(number, dim::difference(limit, 1)))
      return false;
  return true;
}

// As TensorFlow: kSame covers every pixel, with the odd one of the padding at the end; kValid and
// kExplicit use only windows that fit. With `ceil`, as PyTorch, one more that begins in the image
// or before it. REQUIRES: window, stride and dilation of [1, kMaxWindow), or unknown sizes.
inline WindowAxis place_windows(std::int64_t size, std::int64_t window, std::int64_t stride,
                                std::int64_t dilation, const AxisPadding& padding) {
  const std::int64_t extent = dim::sum(dim::product(dim::difference(window, 1), dilation), 1);
  if (padding.kind != Padding::kSame) {
    const std::int64_t begun = dim::sum(size, padding.before);
    const std::int64_t room = dim::difference(dim::sum(begun, padding.after), extent);
    const std::int64_t last = padding.ceil
                                  ? dim::min(dim::ceil_quotient(room, stride),
                                             dim::difference(dim::ceil_quotient(begun, stride), 1))
                                  : dim::floor_quotient(room, stride);
    return {.output = dim::max(0, dim::sum(last, 1)),
            .pad_begin = padding.before,
            .pad_end = padding.after};
  }
  const std::int64_t output = dim::ceil_quotient(size, stride);
  const std::int64_t covered = dim::sum(dim::product(dim::difference(output, 1), stride), extent);
  const std::int64_t total = dim::max(0, dim::difference(covered, size));
  const std::int64_t half = dim::floor_quotient(total, 2);
  return {.output = output, .pad_begin = half, .pad_end = dim::difference(total, half)};
}

}  // namespace tandem::nn
