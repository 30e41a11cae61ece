// exp over rows, for softmax and related operations. Several short rows are processed at a time, so
// that the loop over exp vectorises even for few classes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include "core/parallel.h"
#include "core/vector_math.h"
#include "op/op.h"
#include "ops/math/elementwise.h"
#include "ops/math/float_chunks.h"
#include "ops/math/rows.h"

namespace tandem {

// The number of rows whose intermediate results a kernel keeps on the stack.
inline constexpr std::int64_t kExpRows = 64;

// The most elements per chunk of for_exp().
inline constexpr std::int64_t kExpChunk = kFloatChunk;

// Calls use(row, first column, count, e), where e[0..count) = exp(x[row][first + ..] -
// offset[row]), once for every element of the rows, and from left to right in each row. `count` is
// at most kExpChunk.
template <class T, class Use>
[[gnu::always_inline]] inline void for_exp(std::int64_t rows, std::int64_t columns, const T* x,
                                           const Compute<T>* offset, const Use& use) {
  using C = Compute<T>;
  alignas(64) C e[kExpChunk];
  if (columns >= kLanes) {
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t start = 0; start < columns; start += kExpChunk) {
        const std::int64_t count = std::min(kExpChunk, columns - start);
        const T* from = x + r * columns + start;
        const C shift = offset[r];
        for (std::int64_t j = 0; j < count; ++j) e[j] = vec::exp(static_cast<C>(from[j]) - shift);
        use(r, start, count, e);
      }
    return;
  }
  const std::int64_t group = kExpChunk / columns;
  for (std::int64_t first = 0; first < rows; first += group) {
    const std::int64_t count = std::min(group, rows - first);
    const T* from = x + first * columns;
    for (std::int64_t r = 0; r < count; ++r)
      for (std::int64_t j = 0; j < columns; ++j)
        e[r * columns + j] = static_cast<C>(from[r * columns + j]) - offset[first + r];
    for (std::int64_t i = 0; i < count * columns; ++i) e[i] = vec::exp(e[i]);
    for (std::int64_t r = 0; r < count; ++r) use(first + r, 0, columns, e + r * columns);
  }
}

// The largest element of each row and the row's sum of exp(x - largest). REQUIRES: rows <=
// kExpRows.
template <class T>
[[gnu::always_inline]] inline void exp_sums(std::int64_t rows, std::int64_t columns, const T* x,
                                            Compute<T>* largest, Compute<T>* sums) {
  using C = Compute<T>;
  for (std::int64_t r = 0; r < rows; ++r) {
    const T* row = x + r * columns;
    largest[r] = row_max<C>(columns, [row](std::int64_t j) { return static_cast<C>(row[j]); });
    sums[r] = C(0);
  }
  for_exp(rows, columns, x, largest,
          [sums](std::int64_t r, std::int64_t, std::int64_t count, const C* e) {
            sums[r] += row_sum<C>(count, [e](std::int64_t j) { return e[j]; });
          });
}

// Calls body(first row, rows) with at most kExpRows rows per call, in parallel over the calling
// thread's team.
template <class Body>
void for_row_blocks(std::int64_t rows, std::int64_t columns, const Body& body) {
  const std::int64_t block = std::clamp<std::int64_t>(kElementwiseGrain / columns, 1, kExpRows);
  parallel_for((rows + block - 1) / block,
               std::max<std::int64_t>(1, kElementwiseGrain / 4 / (block * columns)),
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t i = begin; i < end; ++i)
                   body(i * block, std::min(block, rows - i * block));
               });
}

// The number of rows if the last axis is a row. REQUIRES: rank >= 1; the last axis is not empty.
inline std::int64_t row_count(const Shape& shape) { return shape.num_elements() / shape.word(-1); }

}  // namespace tandem
