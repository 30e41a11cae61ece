// The gradients of attention on the CPU. Each tile of weights is recomputed from the log-sums of
// its rows. With weights p, their gradient dp, and delta = sum(dy y) per row, the gradient of the
// scores is p (dp - delta).
#include "ops/nn/attention_tiles.h"

namespace tandem {
namespace {

constexpr std::int64_t kTileQueries = 128, kTileKeys = 256;  // per tile

// sum(dy * y) of each query and head, [batch, heads, queries].
template <class T>
TANDEM_INLINED void row_products(const AttentionSizes& s, const T* dy, const T* y,
                                 Compute<T>* deltas, std::int64_t begin, std::int64_t end) {
  using C = Compute<T>;
  for (std::int64_t position = begin; position < end; ++position)  // of [batch, queries]
    for (std::int64_t head = 0; head < s.heads; ++head) {
      const std::int64_t at = (position * s.heads + head) * s.value_depth;
      const std::int64_t batch = position / s.queries, row = position % s.queries;
      deltas[(batch * s.heads + head) * s.queries + row] =
          row_sum<C>(s.value_depth, [dy, y, at](std::int64_t j) {
            return static_cast<C>(dy[at + j]) * static_cast<C>(y[at + j]);
          });
    }
}

// Converts scores to weights in place, and the gradients of weights to those of scores. `kept`
// holds dropout's factors; null if there is no dropout.
template <class C>
TANDEM_INLINED void score_gradient(std::int64_t columns, C log_sum, C delta, const C* kept,
                                   C* weights, C* gradient) {
  for (std::int64_t j = 0; j < columns; ++j) weights[j] = vec::exp(weights[j] - log_sum);
  if (!kept) {
    for (std::int64_t j = 0; j < columns; ++j) gradient[j] = weights[j] * (gradient[j] - delta);
    return;
  }
  for (std::int64_t j = 0; j < columns; ++j) {
    gradient[j] = weights[j] * (gradient[j] * kept[j] - delta);
    weights[j] *= kept[j];
  }
}

// The work of one thread: all tiles of some heads that share a key head, and of some blocks of
// queries and keys; and the gradients that it computes from them.
struct TaskRange {
  std::int64_t batch, kv_head;
  std::int64_t head, head_end;
  std::int64_t row, row_end;        // in blocks
  std::int64_t column, column_end;  // in blocks
  bool of_queries, of_keys;
};

template <class T>
struct BackwardTask {
  using C = Compute<T>;
  KernelContext& c;
  const AttentionSizes& s;
  const AttentionMask& mask;
  const C* deltas;
  const AttentionAttrs& attrs = c.attrs<AttentionAttrs>();

  std::int64_t tile_rows() const { return std::min(kTileQueries, s.queries); }
  std::int64_t tile_columns() const { return std::min(kTileKeys, s.keys); }
  std::int64_t most() const {
    return std::max({tile_rows() * tile_columns(), tile_rows() * s.depth,
                     tile_columns() * std::max(s.depth, s.value_depth)});
  }
  // `rows` is the number of queries of all heads of a task if the task computes their gradient.
  std::int64_t elements(std::int64_t rows) const {
    const std::int64_t depths = s.depth + s.value_depth;
    return 2 * tile_rows() * tile_columns() + tile_columns() + tile_columns() * depths +
           rows * s.depth + tile_buffer<T>((tile_rows() + tile_columns()) * depths) +
           spare_elements<C>(most());
  }

  void operator()(const TaskRange& range, C* memory) const {
    Pieces<C> pieces(memory);
    Buffers b;
    b.weights = pieces.take(tile_rows() * tile_columns());
    b.gradient = pieces.take(tile_rows() * tile_columns());
    b.kept = pieces.take(tile_columns());
    b.dkey = pieces.take(tile_columns() * s.depth);
    b.dvalue = pieces.take(tile_columns() * s.value_depth);
    b.query = pieces.take(tile_buffer<T>(tile_rows() * s.depth));
    b.dy = pieces.take(tile_buffer<T>(tile_rows() * s.value_depth));
    b.key = pieces.take(tile_buffer<T>(tile_columns() * s.depth));
    b.value = pieces.take(tile_buffer<T>(tile_columns() * s.value_depth));
    b.spare = pieces.take(spare_elements<C>(most()));
    const std::int64_t first = range.row * kTileQueries,
                       rows = std::min(s.queries, range.row_end * kTileQueries) - first;
    C* const dquery = pieces.take(0);  // the remaining memory: the rows of all heads
    if (range.of_queries) std::fill_n(dquery, (range.head_end - range.head) * rows * s.depth, C(0));

    for (std::int64_t block = range.column; block < range.column_end; ++block) {
      const std::int64_t column = block * kTileKeys, columns = std::min(kTileKeys, s.keys - column);
      const auto keys = as_tile(
          HeadRows<const T>(c.inputs[2], range.batch, range.kv_head, column, columns), b.key);
      const auto values = as_tile(
          HeadRows<const T>(c.inputs[3], range.batch, range.kv_head, column, columns), b.value);
      std::fill_n(b.dkey, columns * s.depth, C(0));
      std::fill_n(b.dvalue, columns * s.value_depth, C(0));
      for (std::int64_t head = range.head; head < range.head_end; ++head)
        for (std::int64_t row = first; row < first + rows; row += kTileQueries) {
          const std::int64_t some = std::min(kTileQueries, s.queries - row);
          const std::int64_t seen = attrs.causal ? std::min(columns, row + some - column) : columns;
          if (seen <= 0) continue;
          const TilePlace at{range.batch, head, row, some, column, seen};
          tile(range, at, keys, values, b,
               dquery + ((head - range.head) * rows + row - first) * s.depth);
        }
      if (!range.of_keys) continue;
      const C scale = static_cast<C>(attrs.score_scale());
      run_loop<T, store_rows<T>>(
          b.dkey, scale, HeadRows<T>(c.outputs[1], range.batch, range.kv_head, column, columns));
      run_loop<T, store_rows<T>>(
          b.dvalue, C(1), HeadRows<T>(c.outputs[2], range.batch, range.kv_head, column, columns));
    }
    if (!range.of_queries) return;
    for (std::int64_t head = range.head; head < range.head_end; ++head)
      run_loop<T, store_rows<T>>(dquery + (head - range.head) * rows * s.depth,
                                 static_cast<C>(attrs.score_scale()),
                                 HeadRows<T>(c.outputs[0], range.batch, head, first, rows));
  }

 private:
  struct Buffers {
    C *weights, *gradient, *kept, *dkey, *dvalue, *query, *dy, *key, *value, *spare;
  };

  void tile(const TaskRange& range, const TilePlace& at, Tile<const C> keys, Tile<const C> values,
            const Buffers& b, C* dquery) const {
    const auto queries =
        as_tile(HeadRows<const T>(c.inputs[1], at.batch, at.head, at.row, at.rows), b.query);
    const auto dy =
        as_tile(HeadRows<const T>(c.inputs[0], at.batch, at.head, at.row, at.rows), b.dy);
    const Tile<C> weights{b.weights, at.columns}, gradient{b.gradient, at.columns};
    const Tile<const C> weighed{b.weights, at.columns}, slopes{b.gradient, at.columns};
    tile_product({.m = at.rows, .n = at.columns, .k = s.depth, .transpose_b = true}, queries, keys,
                 weights, b.spare);
    run_loop<T, mask_scores<T>>(attrs, mask, at, b.weights);
    tile_product({.m = at.rows, .n = at.columns, .k = s.value_depth, .transpose_b = true}, dy,
                 values, gradient, b.spare);
    const std::int64_t first_row = (at.batch * s.heads + at.head) * s.queries + at.row;
    const C* const log_sums = c.inputs[5].as<const C>() + first_row;
    for (std::int64_t i = 0; i < at.rows; ++i) {
      if (attrs.rate > 0.0) {
        const std::int64_t first = position_of(attrs, s, at, i);
        std::fill_n(b.kept, at.columns, C(1));
        run_loop<C, dropout_range<C>>(attrs.random_key(), attrs.threshold(), attrs.scale(), b.kept,
                                      b.kept, first, first + at.columns);
      }
      run_loop<C, score_gradient<C>>(at.columns, log_sums[i], deltas[first_row + i],
                                     attrs.rate > 0.0 ? b.kept : nullptr,
                                     b.weights + i * at.columns, b.gradient + i * at.columns);
    }
    if (range.of_keys) {
      tile_product({.m = at.columns,
                    .n = s.value_depth,
                    .k = at.rows,
                    .transpose_a = true,
                    .accumulate = true},
                   weighed, dy, Tile<C>{b.dvalue, s.value_depth}, b.spare);
      tile_product(
          {.m = at.columns, .n = s.depth, .k = at.rows, .transpose_a = true, .accumulate = true},
          slopes, queries, Tile<C>{b.dkey, s.depth}, b.spare);
    }
    if (range.of_queries)
      tile_product({.m = at.rows, .n = s.depth, .k = at.columns, .accumulate = true}, slopes, keys,
                   Tile<C>{dquery, s.depth}, b.spare);
  }
};

void set_to_zero(const TensorView& view) {
  std::fill_n(static_cast<char*>(view.data),
              static_cast<std::size_t>(view.size()) * size_of(view.dtype), '\0');
}

}  // namespace

void attention_grad_kernel(KernelContext& c) {
  const AttentionSizes s(c.inputs[1].shape, c.inputs[2].shape, c.inputs[3].shape);
  if (c.inputs[0].size() == 0 || s.keys == 0) {
    for (const TensorView& gradient : c.outputs) set_to_zero(gradient);
    return;
  }
  const onednn::GemmUse products;
  const InFloat32 in_float32(c);
  const AttentionMask mask = c.inputs.size() == 7 ? AttentionMask(c.inputs[6]) : AttentionMask();
  switch_floating(c.inputs[1].dtype, [&]<class T>(TypeTag<T>) {
    using C = Compute<T>;
    C* const deltas = take<C>(c, s.batch * s.heads * s.queries);
    parallel_for(s.batch * s.queries,
                 std::max<std::int64_t>(1, kElementwiseGrain / (s.heads * s.value_depth)),
                 [&](std::int64_t begin, std::int64_t end) {
                   run_loop<T, row_products<T>>(s, c.inputs[0].as<const T>(),
                                                c.inputs[4].as<const T>(), deltas, begin, end);
                 });
    const BackwardTask<T> task{c, s, mask, deltas};
    const std::int64_t rows = blocks_of(s.queries, kTileQueries),
                       columns = blocks_of(s.keys, kTileKeys);
    const std::int64_t kv_heads = s.batch * s.kv_heads, group = s.group();
    if (kv_heads >= intra_op_threads()) {
      for_tasks<C>(c, kv_heads, task.elements(group * s.queries), [&](std::int64_t i, C* memory) {
        const std::int64_t head = i % s.kv_heads;
        task({i / s.kv_heads, head, head * group, (head + 1) * group, 0, rows, 0, columns, true,
              true},
             memory);
      });
      return;
    }
    // There are too few heads for the threads. Computes the scores twice, for the queries and for
    // the keys, with the same sums in the same order.
    for_tasks<C>(c, s.batch * s.heads * rows, task.elements(task.tile_rows()),
                 [&](std::int64_t i, C* memory) {
                   const std::int64_t row = i % rows, head = i / rows % s.heads;
                   task({i / rows / s.heads, head / group, head, head + 1, row, row + 1, 0, columns,
                         true, false},
                        memory);
                 });
    for_tasks<C>(c, kv_heads * columns, task.elements(0), [&](std::int64_t i, C* memory) {
      const std::int64_t column = i % columns, head = i / columns % s.kv_heads;
      task({i / columns / s.kv_heads, head, head * group, (head + 1) * group, 0, rows, column,
            column + 1, false, true},
           memory);
    });
  });
}

}  // namespace tandem
