// Column sums of [rows, columns] data (channels last), for the statistics of batch normalisation
// and the gradients of biases. The rows are divided into blocks whose size depends only on the
// shape, and the sums of blocks are added in order, so that the result does not depend on the
// number of threads.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "core/parallel.h"

namespace tandem {

struct ColumnBlocks {
  static constexpr std::int64_t kElements = 16 * 1024;  // per block, approximately
  static constexpr std::int64_t kMinRows = 16;
  static constexpr std::int64_t kNarrow = 64;

  std::int64_t rows, columns;
  // Several narrow rows are processed as one wide row, so that loops are long enough to vectorise.
  // Per-column parameters are repeated `repeat` times, in rows of `width`.
  std::int64_t repeat, width;
  std::int64_t block_rows, blocks;

  // REQUIRES: columns > 0.
  ColumnBlocks(std::int64_t row_count, std::int64_t column_count)
      : rows(row_count), columns(column_count) {
    repeat = columns >= kNarrow ? 1 : (kNarrow + columns - 1) / columns;
    width = columns * repeat;
    block_rows = std::max(kMinRows, kElements / columns);
    block_rows = (block_rows + repeat - 1) / repeat * repeat;
    blocks = (rows + block_rows - 1) / block_rows;
  }
  std::int64_t begin(std::int64_t block) const { return block * block_rows * columns; }
  std::int64_t rows_in(std::int64_t block) const {
    return std::min(block_rows, rows - block * block_rows);
  }

  // Calls body(block) for all blocks, in parallel over the calling thread's team.
  template <class Body>
  void for_blocks(const Body& body) const {
    const std::int64_t grain = std::max<std::int64_t>(1, kElements / (block_rows * columns));
    parallel_for(blocks, grain, [&](std::int64_t first, std::int64_t last) {
      for (std::int64_t block = first; block < last; ++block) body(block);
    });
  }

  // Repeats the per-column `values` `repeat` times in `wide` [width].
  template <class T>
  void widen(const T* values, T* wide) const {
    for (std::int64_t r = 0; r < repeat; ++r) std::copy_n(values, columns, wide + r * columns);
  }

  // sums[column] = the sum of term(element, j) over the block's rows. `element` is the index in the
  // data, j the index in a wide row. Inlined into its caller together with `term`.
  template <class A, class Term>
  [[gnu::always_inline]] inline void sum_block(std::int64_t block, A* sums,
                                               const Term& term) const {
    std::array<A, 2 * kNarrow> narrow;
    A* wide = wide_sums(sums, narrow);
    for_wide_rows(
        block, [&](std::int64_t i, std::int64_t j) { wide[j] += term(i, j); },
        [&](std::int64_t i, std::int64_t j) {
          wide[j] +=
              (term(i, j) + term(i + width, j)) + (term(i + 2 * width, j) + term(i + 3 * width, j));
        });
    fold(wide, sums);
  }

  // Two sums in one pass over the block.
  template <class A, class TermA, class TermB>
  [[gnu::always_inline]] inline void sum_block(std::int64_t block, A* sums_a, const TermA& a,
                                               A* sums_b, const TermB& b) const {
    std::array<A, 2 * kNarrow> narrow_a, narrow_b;
    A *wide_a = wide_sums(sums_a, narrow_a), *wide_b = wide_sums(sums_b, narrow_b);
    for_wide_rows(
        block,
        [&](std::int64_t i, std::int64_t j) {
          wide_a[j] += a(i, j);
          wide_b[j] += b(i, j);
        },
        [&](std::int64_t i, std::int64_t j) {
          wide_a[j] += (a(i, j) + a(i + width, j)) + (a(i + 2 * width, j) + a(i + 3 * width, j));
          wide_b[j] += (b(i, j) + b(i + width, j)) + (b(i + 2 * width, j) + b(i + 3 * width, j));
        });
    fold(wide_a, sums_a);
    fold(wide_b, sums_b);
  }

  // totals[column] = the sum of partial[block][column] over the blocks, in order, in double.
  template <class A>
  void add_blocks(const A* partial, double* totals) const {
    std::fill_n(totals, columns, 0.0);
    for (std::int64_t block = 0; block < blocks; ++block)
      for (std::int64_t c = 0; c < columns; ++c)
        totals[c] += static_cast<double>(partial[block * columns + c]);
  }

 private:
  // Zero-initialised sums of a wide row.
  template <class A>
  [[gnu::always_inline]] inline A* wide_sums(A* sums, std::array<A, 2 * kNarrow>& narrow) const {
    A* wide = repeat == 1 ? sums : narrow.data();
    std::fill_n(wide, width, A(0));
    return wide;
  }

  // Calls four(element, j) for the elements of four wide rows at a time, and one(element, j) for
  // the remaining elements.
  template <class One, class Four>
  [[gnu::always_inline]] inline void for_wide_rows(std::int64_t block, const One& one,
                                                   const Four& four) const {
    std::int64_t i = begin(block);
    const std::int64_t end = i + rows_in(block) * columns, w = width;
    for (; i + 4 * w <= end; i += 4 * w)
#pragma GCC ivdep
      for (std::int64_t j = 0; j < w; ++j) four(i + j, j);
    for (; i + w <= end; i += w)
#pragma GCC ivdep
      for (std::int64_t j = 0; j < w; ++j) one(i + j, j);
    for (std::int64_t j = 0; i + j < end; ++j) one(i + j, j);
  }

  template <class A>
  [[gnu::always_inline]] inline void fold(const A* wide, A* sums) const {
    if (repeat == 1) return;
    for (std::int64_t c = 0; c < columns; ++c) {
      A sum = wide[c];
      for (std::int64_t r = 1; r < repeat; ++r) sum += wide[r * columns + c];
      sums[c] = sum;
    }
  }
};

}  // namespace tandem
