// The forward pass of attention on the CPU. For each block of queries it processes tiles of keys,
// and keeps each row's running maximum, sum and weighted values (M. Milakov and N. Gimelshein,
// "Online normalizer calculation for softmax", 2018).
#include "ops/nn/attention_tiles.h"

namespace tandem {
namespace {

constexpr std::int64_t kQueries = 128, kKeys = 512;  // per tile, whose scores stay in the cache

// Replaces scores by exp(score - running maximum), and rescales each row's sum and `result` to the
// new maximum.
template <class C>
TANDEM_INLINED void take_in(std::int64_t rows, std::int64_t columns, C* scores, C* largest, C* sums,
                            std::int64_t depth, C* result) {
  for (std::int64_t i = 0; i < rows; ++i) {
    C* row = scores + i * columns;
    const C here = row_max<C>(columns, [row](std::int64_t j) { return row[j]; });
    const C now = here > largest[i] ? here : largest[i];
    // If no key has been visible yet, the offset is 0, so that exp(-inf) is 0 and NaN is kept.
    const C offset = now == -std::numeric_limits<C>::infinity() ? C(0) : now;
    for (std::int64_t j = 0; j < columns; ++j) row[j] = vec::exp(row[j] - offset);
    const C kept = vec::exp(largest[i] - offset);
    sums[i] = sums[i] * kept + row_sum<C>(columns, [row](std::int64_t j) { return row[j]; });
    largest[i] = now;
    if (kept != C(1))
      for (std::int64_t j = 0; j < depth; ++j) result[i * depth + j] *= kept;
  }
}

template <class T>
struct ForwardTask {
  using C = Compute<T>;
  const AttentionAttrs& attrs;
  const AttentionSizes& s;
  const AttentionMask& mask;
  const TensorView &query, &key, &value, &y, &log_sums;

  std::int64_t tile_rows() const { return std::min(kQueries, s.queries); }
  std::int64_t tile_columns() const { return std::min(kKeys, s.keys); }
  std::int64_t most() const {  // most elements of a product
    return tile_rows() * std::max(tile_columns(), s.value_depth);
  }
  std::int64_t elements() const {
    return tile_rows() * (tile_columns() + s.value_depth + 2) +
           tile_buffer<T>(tile_rows() * s.depth + tile_columns() * (s.depth + s.value_depth)) +
           spare_elements<C>(most());
  }

  void operator()(std::int64_t batch, std::int64_t head, std::int64_t row, C* memory) const {
    Pieces<C> pieces(memory);
    const std::int64_t rows = std::min(kQueries, s.queries - row), kv_head = head / s.group();
    C* const scores = pieces.take(tile_rows() * tile_columns());
    C* const result = pieces.take(tile_rows() * s.value_depth);
    C *const largest = pieces.take(tile_rows()), *const sums = pieces.take(tile_rows());
    const auto queries = as_tile(HeadRows<const T>(query, batch, head, row, rows),
                                 pieces.take(tile_buffer<T>(tile_rows() * s.depth)));
    C* const key_buffer = pieces.take(tile_buffer<T>(tile_columns() * s.depth));
    C* const value_buffer = pieces.take(tile_buffer<T>(tile_columns() * s.value_depth));
    C* const spare = pieces.take(spare_elements<C>(most()));
    std::fill_n(result, rows * s.value_depth, C(0));
    std::fill_n(largest, rows, -std::numeric_limits<C>::infinity());
    std::fill_n(sums, rows, C(0));

    const std::int64_t seen = attrs.causal ? std::min(s.keys, row + rows) : s.keys;
    for (std::int64_t column = 0; column < seen; column += kKeys) {
      const std::int64_t columns = std::min(kKeys, seen - column);
      const TilePlace at{batch, head, row, rows, column, columns};
      const auto keys =
          as_tile(HeadRows<const T>(key, batch, kv_head, column, columns), key_buffer);
      const auto values =
          as_tile(HeadRows<const T>(value, batch, kv_head, column, columns), value_buffer);
      tile_product({.m = rows, .n = columns, .k = s.depth, .transpose_b = true}, queries, keys,
                   Tile<C>{scores, columns}, spare);
      run_loop<T, mask_scores<T>>(attrs, mask, at, scores);
      run_loop<C, take_in<C>>(rows, columns, scores, largest, sums, s.value_depth, result);
      if (attrs.rate > 0.0)
        for (std::int64_t i = 0; i < rows; ++i) {
          const std::int64_t first = position_of(attrs, s, at, i);
          C* const weights = scores + i * columns;
          run_loop<C, dropout_range<C>>(attrs.random_key(), attrs.threshold(), attrs.scale(),
                                        weights, weights, first, first + columns);
        }
      tile_product({.m = rows, .n = s.value_depth, .k = columns, .accumulate = true},
                   Tile<const C>{scores, columns}, values, Tile<C>{result, s.value_depth}, spare);
    }
    C* const logs = log_sums.as<C>() + (batch * s.heads + head) * s.queries + row;
    for (std::int64_t i = 0; i < rows; ++i) {
      const bool blind = sums[i] == C(0);
      logs[i] = blind ? std::numeric_limits<C>::infinity() : largest[i] + std::log(sums[i]);
      run_loop<T, store_rows<T>>(result + i * s.value_depth, blind ? C(0) : C(1) / sums[i],
                                 HeadRows<T>(y, batch, head, row + i, 1));
    }
  }
};

}  // namespace

void attention_kernel(KernelContext& c) {
  const AttentionSizes s(c.inputs[0].shape, c.inputs[1].shape, c.inputs[2].shape);
  if (c.outputs[0].size() == 0) return;
  const onednn::GemmUse products;
  const InFloat32 in_float32(c);
  const AttentionMask mask = c.inputs.size() == 4 ? AttentionMask(c.inputs[3]) : AttentionMask();
  switch_floating(c.inputs[0].dtype, [&]<class T>(TypeTag<T>) {
    const ForwardTask<T> task{c.attrs<AttentionAttrs>(),
                              s,
                              mask,
                              c.inputs[0],
                              c.inputs[1],
                              c.inputs[2],
                              c.outputs[0],
                              c.outputs[1]};
    // The last queries of a head come first, since in causal attention they have the most keys.
    const std::int64_t blocks = blocks_of(s.queries, kQueries), heads = s.batch * s.heads;
    for_tasks<Compute<T>>(c, heads * blocks, task.elements(), [&](std::int64_t i, auto* memory) {
      const std::int64_t head = i % heads, block = blocks - 1 - i / heads;
      task(head / s.heads, head % s.heads, block * kQueries, memory);
    });
  });
}

}  // namespace tandem
