// The loop of all operations that only rearrange elements: it reads a dense output from a strided
// input. Transpose, broadcast, slice, reverse and tile differ only in the strides.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "tandem/shape.h"

namespace tandem {

// output[i0, i1, ...] = input[offset + i0 * stride0 + i1 * stride1 + ...]. The sizes are those of
// the output. Strides and the offset are in elements and may be zero or negative.
class StridedCopy {
 public:
  // Twice kMaxRank, because tile() splits each axis into two.
  static constexpr int kMaxAxes = 2 * kMaxRank;

  void add_axis(std::int64_t size, std::int64_t stride);  // from the first axis to the last
  void set_offset(std::int64_t offset) { offset_ = offset; }
  int rank() const { return rank_; }
  std::int64_t size(int axis) const { return sizes_[static_cast<std::size_t>(axis)]; }
  std::int64_t stride(int axis) const { return strides_[static_cast<std::size_t>(axis)]; }
  std::int64_t offset() const { return offset_; }

  // Writes every element of `output`, in parallel over the calling thread's team. `element_size` is
  // 1, 2, 4 or 8 bytes. The memory must not overlap.
  void run(void* output, const void* input, std::size_t element_size) const;

 private:
  template <class T>
  void run_typed(T* output, const T* input) const;
  template <class T>
  void copy_rows(T* output, const T* input) const;
  template <class T>
  void transpose_blocks(T* output, const T* input, int axis) const;

  std::array<std::int64_t, kMaxAxes> sizes_{};
  std::array<std::int64_t, kMaxAxes> strides_{};
  int rank_ = 0;
  std::int64_t offset_ = 0;
};

// The stride of each axis of a dense tensor, in elements.
Dims dense_strides(const Shape& shape);

}  // namespace tandem
