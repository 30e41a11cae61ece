#include "ops/array/strided_copy.h"

#include <algorithm>
#include <cstring>

#include "core/multiversion.h"
#include "core/parallel.h"
#include "core/status.h"

namespace tandem {
namespace {

constexpr std::int64_t kGrain = 16 * 1024;  // elements per thread

// Iterates over the index space of some axes and tracks the input position of the current index.
class Odometer {
 public:
  void add_axis(std::int64_t size, std::int64_t stride) {
    sizes_[rank_] = size;
    strides_[rank_] = stride;
    ++rank_;
  }
  void seek(std::int64_t flat) {
    position_ = 0;
    for (std::size_t axis = rank_; axis-- > 0;) {
      index_[axis] = flat % sizes_[axis];
      flat /= sizes_[axis];
      position_ += index_[axis] * strides_[axis];
    }
  }
  void advance() {
    for (std::size_t axis = rank_; axis-- > 0;) {
      position_ += strides_[axis];
      if (++index_[axis] < sizes_[axis]) return;
      position_ -= sizes_[axis] * strides_[axis];
      index_[axis] = 0;
    }
  }
  std::int64_t position() const { return position_; }

 private:
  std::array<std::int64_t, StridedCopy::kMaxAxes> sizes_{}, strides_{}, index_{};
  std::size_t rank_ = 0;
  std::int64_t position_ = 0;
};

template <class T>
TANDEM_MULTIVERSION void reverse_row(T* __restrict__ output, const T* input, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) output[i] = input[-i];
}

template <class T>
TANDEM_MULTIVERSION void fill_row(T* output, T value, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) output[i] = value;
}

template <class T>
void copy_row(T* output, const T* input, std::int64_t count, std::int64_t stride) {
  if (stride == 1) {
    // For short rows (the channels of an image), a call of memcpy costs more than the loop.
    if (count < 16)
      for (std::int64_t i = 0; i < count; ++i) output[i] = input[i];
    else
      std::memcpy(output, input, static_cast<std::size_t>(count) * sizeof(T));
  } else if (stride == 0) {
    fill_row(output, *input, count);
  } else if (stride == -1) {
    reverse_row(output, input, count);
  } else {
    for (std::int64_t i = 0; i < count; ++i) output[i] = input[i * stride];
  }
}

// A 4 x 4 block of 4-byte elements, transposed in registers.
using Quad = std::uint32_t __attribute__((vector_size(16)));
void transpose_block(std::uint32_t* output, std::int64_t output_stride, const std::uint32_t* input,
                     std::int64_t input_stride) {
  Quad row[4];
  for (int i = 0; i < 4; ++i) std::memcpy(&row[i], input + i * input_stride, sizeof(Quad));
  const Quad low01 = __builtin_shufflevector(row[0], row[1], 0, 4, 1, 5);
  const Quad high01 = __builtin_shufflevector(row[0], row[1], 2, 6, 3, 7);
  const Quad low23 = __builtin_shufflevector(row[2], row[3], 0, 4, 1, 5);
  const Quad high23 = __builtin_shufflevector(row[2], row[3], 2, 6, 3, 7);
  row[0] = __builtin_shufflevector(low01, low23, 0, 1, 4, 5);
  row[1] = __builtin_shufflevector(low01, low23, 2, 3, 6, 7);
  row[2] = __builtin_shufflevector(high01, high23, 0, 1, 4, 5);
  row[3] = __builtin_shufflevector(high01, high23, 2, 3, 6, 7);
  for (int i = 0; i < 4; ++i) std::memcpy(output + i * output_stride, &row[i], sizeof(Quad));
}

// An 8 x 8 block of 2-byte elements: interleaves rows by elements, by pairs, and by fours.
using Octet = std::uint16_t __attribute__((vector_size(16)));
void transpose_block(std::uint16_t* output, std::int64_t output_stride, const std::uint16_t* input,
                     std::int64_t input_stride) {
  Octet row[8], pairs[8], fours[8];
  for (int i = 0; i < 8; ++i) std::memcpy(&row[i], input + i * input_stride, sizeof(Octet));
  for (int i = 0; i < 8; i += 2) {
    pairs[i] = __builtin_shufflevector(row[i], row[i + 1], 0, 8, 1, 9, 2, 10, 3, 11);
    pairs[i + 1] = __builtin_shufflevector(row[i], row[i + 1], 4, 12, 5, 13, 6, 14, 7, 15);
  }
  for (int half = 0; half < 8; half += 4)
    for (int i = half; i < half + 2; ++i) {
      Octet* const to = fours + half + 2 * (i - half);
      to[0] = __builtin_shufflevector(pairs[i], pairs[i + 2], 0, 1, 8, 9, 2, 3, 10, 11);
      to[1] = __builtin_shufflevector(pairs[i], pairs[i + 2], 4, 5, 12, 13, 6, 7, 14, 15);
    }
  for (int i = 0; i < 4; ++i) {
    row[2 * i] = __builtin_shufflevector(fours[i], fours[i + 4], 0, 1, 2, 3, 8, 9, 10, 11);
    row[2 * i + 1] = __builtin_shufflevector(fours[i], fours[i + 4], 4, 5, 6, 7, 12, 13, 14, 15);
  }
  for (int i = 0; i < 8; ++i) std::memcpy(output + i * output_stride, &row[i], sizeof(Octet));
}

// output[r, c] = input[c, r] for one tile. Rows are `output_stride` and `input_stride` apart.
template <class T>
void transpose_tile(T* output, std::int64_t output_stride, const T* input,
                    std::int64_t input_stride, std::int64_t rows, std::int64_t columns) {
  std::int64_t full_rows = 0, full_columns = 0;
  if constexpr (sizeof(T) == 4 || sizeof(T) == 2) {
    constexpr std::int64_t kBlock = 16 / sizeof(T);
    full_rows = rows / kBlock * kBlock;
    full_columns = columns / kBlock * kBlock;
    for (std::int64_t r = 0; r < full_rows; r += kBlock)
      for (std::int64_t c = 0; c < full_columns; c += kBlock)
        transpose_block(output + r * output_stride + c, output_stride, input + c * input_stride + r,
                        input_stride);
  }
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = r < full_rows ? full_columns : 0; c < columns; ++c)
      output[r * output_stride + c] = input[c * input_stride + r];
}

}  // namespace

void StridedCopy::add_axis(std::int64_t size, std::int64_t stride) {
  const auto last = static_cast<std::size_t>(rank_ - 1);
  if (size == 1) return;
  // An axis that continues the previous one is merged into it.
  if (rank_ > 0 && strides_[last] == size * stride) {
    sizes_[last] *= size;
    strides_[last] = stride;
    return;
  }
  TANDEM_ASSERT(rank_ < kMaxAxes);
  sizes_[last + 1] = size;
  strides_[last + 1] = stride;
  ++rank_;
}

template <class T>
void StridedCopy::copy_rows(T* output, const T* input) const {
  const auto last = static_cast<std::size_t>(rank_ - 1);
  const std::int64_t length = sizes_[last], stride = strides_[last];
  std::int64_t rows = 1;
  for (std::size_t axis = 0; axis < last; ++axis) rows *= sizes_[axis];
  if (rows == 1) {
    parallel_for(length, kGrain, [&](std::int64_t begin, std::int64_t end) {
      copy_row(output + begin, input + begin * stride, end - begin, stride);
    });
    return;
  }
  parallel_for(rows, std::max<std::int64_t>(1, kGrain / length),
               [&](std::int64_t begin, std::int64_t end) {
                 Odometer outer;
                 for (std::size_t axis = 0; axis < last; ++axis)
                   outer.add_axis(sizes_[axis], strides_[axis]);
                 outer.seek(begin);
                 for (std::int64_t row = begin; row < end; ++row, outer.advance())
                   copy_row(output + row * length, input + outer.position(), length, stride);
               });
}

// For copies in which `axis` is contiguous in the input and the last axis in the output. Tiles of
// their plane stay in the cache on both sides.
template <class T>
void StridedCopy::transpose_blocks(T* output, const T* input, int axis) const {
  constexpr std::int64_t kTile = 32;
  const auto plane_axis = static_cast<std::size_t>(axis),
             last = static_cast<std::size_t>(rank_ - 1);
  const std::int64_t rows = sizes_[plane_axis], columns = sizes_[last],
                     input_stride = strides_[last];
  std::int64_t output_stride = columns;  // of `axis`, in the output
  for (std::size_t i = plane_axis + 1; i < last; ++i) output_stride *= sizes_[i];
  const std::int64_t row_tiles = (rows + kTile - 1) / kTile;
  std::int64_t planes = 1;
  for (std::size_t i = 0; i < last; ++i)
    if (i != plane_axis) planes *= sizes_[i];

  const std::int64_t grain = std::max<std::int64_t>(1, kGrain / (kTile * columns));
  parallel_for(planes * row_tiles, grain, [&](std::int64_t begin, std::int64_t end) {
    Odometer source, target;
    std::array<std::int64_t, kMaxAxes> output_strides{};
    std::int64_t dense = 1;
    for (std::size_t i = last + 1; i-- > 0;) {
      output_strides[i] = dense;
      dense *= sizes_[i];
    }
    for (std::size_t i = 0; i < last; ++i) {
      if (i == plane_axis) continue;
      source.add_axis(sizes_[i], strides_[i]);
      target.add_axis(sizes_[i], output_strides[i]);
    }
    source.add_axis(row_tiles, kTile);
    target.add_axis(row_tiles, kTile * output_stride);
    source.seek(begin);
    target.seek(begin);
    for (std::int64_t tile = begin; tile < end; ++tile, source.advance(), target.advance()) {
      const std::int64_t tile_rows = std::min(kTile, rows - tile % row_tiles * kTile);
      for (std::int64_t column = 0; column < columns; column += kTile)
        transpose_tile(output + target.position() + column, output_stride,
                       input + source.position() + column * input_stride, input_stride, tile_rows,
                       std::min(kTile, columns - column));
    }
  });
}

template <class T>
void StridedCopy::run_typed(T* output, const T* input) const {
  input += offset_;
  for (int axis = 0; axis < rank_; ++axis)
    if (sizes_[static_cast<std::size_t>(axis)] == 0) return;
  if (rank_ == 0) {
    *output = *input;
    return;
  }
  const auto last = static_cast<std::size_t>(rank_ - 1);
  if (strides_[last] > 1)
    for (int axis = 0; axis + 1 < rank_; ++axis)
      if (const auto i = static_cast<std::size_t>(axis); strides_[i] == 1)
        return transpose_blocks(output, input, axis);
  copy_rows(output, input);
}

void StridedCopy::run(void* output, const void* input, std::size_t element_size) const {
  const auto typed = [&]<class T>(T) {
    run_typed(static_cast<T*>(output), static_cast<const T*>(input));
  };
  switch (element_size) {
    case 1: return typed(std::uint8_t{});
    case 2: return typed(std::uint16_t{});
    case 4: return typed(std::uint32_t{});
    case 8: return typed(std::uint64_t{});
    default: TANDEM_ASSERT(false);
  }
}

Dims dense_strides(const Shape& shape) {
  Dims strides = shape.words();
  std::int64_t stride = 1;
  for (int axis = shape.rank() - 1; axis >= 0; --axis) {
    strides[axis] = stride;
    stride *= shape.word(axis);
  }
  return strides;
}

}  // namespace tandem
