// Tiles of attention scores on the CPU, and the matrix products that compute and use them. The
// tiles depend only on the shapes, and each tile is computed by one thread, so that the result does
// not depend on the number of threads.
#pragma once

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "core/multiversion.h"
#include "core/parallel.h"
#include "core/vector_math.h"
#include "ops/math/elementwise.h"
#include "ops/math/float_chunks.h"
#include "ops/math/gemm.h"
#include "ops/math/in_float32.h"
#include "ops/math/rows.h"
#include "ops/nn/attention.h"
#include "ops/nn/dropout_words.h"
#include "ops/nn/norm_math.h"
#include "ops/onednn/onednn.h"

namespace tandem {

// Rows [begin, begin + count) of a head of a tensor [batch, positions, heads, depth].
template <class T>
struct HeadRows {
  T* data;
  std::int64_t stride, depth, count;

  HeadRows(const TensorView& view, std::int64_t batch, std::int64_t head, std::int64_t begin,
           std::int64_t rows)
      : data(view.as<T>() + ((batch * view.shape.word(1) + begin) * view.shape.word(2) + head) *
                                view.shape.word(3)),
        stride(view.shape.word(2) * view.shape.word(3)),
        depth(view.shape.word(3)),
        count(rows) {}
};

// A matrix in the compute type.
template <class C>
struct Tile {
  C* data;
  std::int64_t stride;
};

template <class T>
TANDEM_MULTIVERSION void widen_rows(HeadRows<const T> rows, Compute<T>* to) {
  for (std::int64_t i = 0; i < rows.count; ++i)
    for (std::int64_t j = 0; j < rows.depth; ++j)
      to[i * rows.depth + j] = static_cast<Compute<T>>(rows.data[i * rows.stride + j]);
}

// The rows in the compute type: a view of them, or a converted copy in `buffer`.
template <class T>
Tile<const Compute<T>> as_tile(const HeadRows<const T>& rows, Compute<T>* buffer) {
  if constexpr (std::is_same_v<T, Compute<T>>) {
    return {rows.data, rows.stride};
  } else {
    widen_rows(rows, buffer);
    return {buffer, rows.depth};
  }
}

// The number of elements that as_tile() writes to its buffer.
template <class T>
constexpr std::int64_t tile_buffer(std::int64_t elements) {
  return std::is_same_v<T, Compute<T>> ? 0 : elements;
}

template <class T>
TANDEM_INLINED void store_rows(const Compute<T>* from, Compute<T> factor, HeadRows<T> rows) {
  for (std::int64_t i = 0; i < rows.count; ++i)
    write_elements(rows.data + i * rows.stride, rows.depth,
                   [=](std::int64_t j) { return from[i * rows.depth + j] * factor; });
}

// c = a . b or c += a . b. `spare` has room for c.
template <class C>
void plain_product(const onednn::Gemm& shape, Tile<const C> a, Tile<const C> b, Tile<C> c,
                   C* spare) {
  const auto oriented = [](Tile<const C> tile, bool transposed) {
    return transposed ? MatrixRef<const C>{tile.data, 1, tile.stride}
                      : MatrixRef<const C>{tile.data, tile.stride, 1};
  };
  gemm_rows<C>(0, shape.m, shape.n, shape.k, oriented(a, shape.transpose_a),
               oriented(b, shape.transpose_b), spare);
  for (std::int64_t i = 0; i < shape.m; ++i)
    for (std::int64_t j = 0; j < shape.n; ++j) {
      C& to = c.data[i * c.stride + j];
      to = (shape.accumulate ? to : C{0}) + spare[i * shape.n + j];
    }
}

// The same. For doubles, `spare` must have room for c.
inline void tile_product(const onednn::Gemm& shape, Tile<const float> a, Tile<const float> b,
                         Tile<float> c, float*) {
  if (onednn::GemmUse::possible()) [[likely]]
    return onednn::gemm(shape, a.data, a.stride, b.data, b.stride, c.data, c.stride);
  std::vector<float> spare(static_cast<std::size_t>(shape.m * shape.n));
  plain_product(shape, a, b, c, spare.data());
}
inline void tile_product(const onednn::Gemm& shape, Tile<const double> a, Tile<const double> b,
                         Tile<double> c, double* spare) {
  plain_product(shape, a, b, c, spare);
}
template <class C>
constexpr std::int64_t spare_elements(std::int64_t elements) {
  return std::is_same_v<C, double> ? elements : 0;
}

// The position of a tile of scores: queries [row, row + rows) and keys [column, column + columns)
// of a head.
struct TilePlace {
  std::int64_t batch, head, row, rows, column, columns;
};

// Scales the scores and applies the mask; masked scores become minus infinity.
template <class T>
TANDEM_INLINED void mask_scores(const AttentionAttrs& attrs, const AttentionMask& mask,
                                const TilePlace& at, Compute<T>* scores) {
  using C = Compute<T>;
  constexpr C kNever = -std::numeric_limits<C>::infinity();
  const C scale = static_cast<C>(attrs.score_scale());
  for (std::int64_t i = 0; i < at.rows; ++i) {
    C* row = scores + i * at.columns;
    for (std::int64_t j = 0; j < at.columns; ++j) row[j] *= scale;
    const std::int64_t first = at.batch * mask.batch + at.head * mask.head +
                               (at.row + i) * mask.query + at.column * mask.key;
    // A mask with one column applies to every key.
    const auto for_columns = [&](const auto* elements, const auto& use) {
      if (mask.key == 1)
        for (std::int64_t j = 0; j < at.columns; ++j) use(row[j], elements[first + j]);
      else
        for (std::int64_t j = 0; j < at.columns; ++j) use(row[j], elements[first]);
    };
    if (mask.data && mask.allows)  // GCC does not vectorise loops over bools
      for_columns(static_cast<const std::uint8_t*>(mask.data),
                  [](C& score, std::uint8_t allowed) { score = allowed != 0 ? score : kNever; });
    else if (mask.data)
      for_columns(static_cast<const T*>(mask.data),
                  [](C& score, T added) { score += static_cast<C>(added); });
    if (attrs.causal)
      for (std::int64_t j = std::max<std::int64_t>(0, at.row + i + 1 - at.column); j < at.columns;
           ++j)
        row[j] = kNever;
  }
}

// y = 0 or scaled x, for the elements [begin, end) of the global tensor. x and y point to element
// `begin`; they may be equal.
template <class T>
TANDEM_INLINED void dropout_range(const RandomKey& random_key, std::uint32_t threshold,
                                  double scale, const T* x, T* y, std::int64_t begin,
                                  std::int64_t end) {
  using C = Compute<T>;
  constexpr std::int64_t kBlock = kDropoutBlock;
  alignas(64) Words words;
  const C factor = static_cast<C>(scale);
  for (std::int64_t block = begin / kBlock; block * kBlock < end; ++block) {
    fill_words(random_key, block, words);
    const std::int64_t first = block * kBlock;
    const std::int64_t from = std::max(begin, first), to = std::min(end, first + kBlock);
    const std::uint32_t* word = &words[0][0] + (from - first);
    const T* in = x + (from - begin);
    T* out = y + (from - begin);
    for (std::int64_t i = 0; i < to - from; ++i)
      out[i] = store_as<T>(word[i] >= threshold ? static_cast<C>(in[i]) * factor : C(0));
  }
}

// The position of a tile row's first weight in the weights of the global batch.
inline std::int64_t position_of(const AttentionAttrs& attrs, const AttentionSizes& s,
                                const TilePlace& at, std::int64_t row) {
  return attrs.offset + ((at.batch * s.heads + at.head) * s.queries + at.row + row) * s.keys +
         at.column;
}

// Calls body(task, memory) for each task, where `memory` has `elements` numbers for the task's use.
// Tasks are distributed to threads dynamically.
template <class C, class Body>
void for_tasks(KernelContext& c, std::int64_t tasks, std::int64_t elements, const Body& body) {
  const std::int64_t threads = std::min<std::int64_t>(intra_op_threads(), tasks);
  if (threads == 0) return;
  C* const memory = take<C>(c, threads * elements);
  std::atomic<std::int64_t> next = 0;
  parallel_for(threads, 1, [&](std::int64_t begin, std::int64_t end) {
    const ThreadBudget alone(1);
    for (std::int64_t thread = begin; thread < end; ++thread)
      for (std::int64_t task = next++; task < tasks; task = next++)
        body(task, memory + thread * elements);
  });
}

// Divides a task's memory into arrays.
template <class C>
class Pieces {
 public:
  explicit Pieces(C* memory) : at_(memory) {}
  C* take(std::int64_t elements) {
    C* const piece = at_;
    at_ += elements;
    return piece;
  }

 private:
  C* at_;
};

inline std::int64_t blocks_of(std::int64_t count, std::int64_t block) {
  return (count + block - 1) / block;
}

}  // namespace tandem
