// Plans of strided copies on a GPU.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "ops/array/strided_copy.h"

namespace tandem {

// The number of adjacent elements that can be copied as one word of up to 16 bytes, so that all
// runs begin at multiples of it. `addresses` is the bitwise OR of both tensors' addresses.
inline std::int64_t elements_together(const StridedCopy& copy, std::size_t element_size,
                                      std::uintptr_t addresses) {
  const int last = copy.rank() - 1;
  if (last < 0 || copy.stride(last) != 1) return 1;
  std::int64_t together = 16 / static_cast<std::int64_t>(element_size);
  const auto fits = [&](std::int64_t count) {
    if (addresses % (static_cast<std::size_t>(count) * element_size) != 0) return false;
    if (copy.offset() % count != 0 || copy.size(last) % count != 0) return false;
    for (int axis = 0; axis < last; ++axis)
      if (copy.stride(axis) % count != 0) return false;
    return true;
  };
  while (!fits(together)) together /= 2;
  return together;
}

// Copies that transpose planes: adjacent output elements are apart in the input, and vice versa.
// They go through shared memory, so that both reads and writes coalesce.
struct TransposePlanes {
  static constexpr std::int64_t kLeast = 8;  // fewer rows or columns do not pay off

  // output[row * output_stride + column] = input[column * input_stride + row], in each plane.
  std::int64_t rows = 1, columns = 1, input_stride = 0, output_stride = 0;
  std::int64_t planes = 1;
  // The axes that enumerate the planes, and the distance between planes along each.
  int rank = 0;
  std::int64_t size[StridedCopy::kMaxAxes] = {};
  std::int64_t input_step[StridedCopy::kMaxAxes] = {}, output_step[StridedCopy::kMaxAxes] = {};
  std::int64_t offset = 0;

  // Returns nullopt if `copy` is not such a copy.
  static std::optional<TransposePlanes> of(const StridedCopy& copy) {
    const int last = copy.rank() - 1;
    if (last < 1 || copy.stride(last) <= 1) return std::nullopt;
    int row_axis = 0;
    while (row_axis < last && copy.stride(row_axis) != 1) ++row_axis;
    if (row_axis == last || std::min(copy.size(row_axis), copy.size(last)) < kLeast)
      return std::nullopt;
    TransposePlanes result;
    result.rows = copy.size(row_axis);
    result.columns = copy.size(last);
    result.input_stride = copy.stride(last);
    result.offset = copy.offset();
    std::int64_t step = result.columns;
    for (int axis = last - 1; axis >= 0; --axis) {
      if (axis == row_axis) {
        result.output_stride = step;
      } else {
        result.size[result.rank] = copy.size(axis);
        result.input_step[result.rank] = copy.stride(axis);
        result.output_step[result.rank] = step;
        result.planes *= copy.size(axis);
        ++result.rank;
      }
      step *= copy.size(axis);
    }
    return result;
  }

  struct Offsets {
    std::int64_t input, output;
  };
  // The first element of plane `index` in the input and in the output.
  constexpr Offsets plane(std::int64_t index) const {
    Offsets at = {offset, 0};
    for (int axis = 0; axis < rank; ++axis) {
      const std::int64_t position = index % size[axis];
      index /= size[axis];
      at.input += position * input_step[axis];
      at.output += position * output_step[axis];
    }
    return at;
  }
};

}  // namespace tandem
