// GPU kernels of attention.cc. cuDNN computes what it supports. The other kernels, for any dtype
// and mask, process tiles of scores like the CPU's: one block of threads per 32 queries, or per 32
// keys.
#include "ops/nn/attention.h"

#include <limits>
#include <optional>

#include "ops/cuda/cudnn.h"
#include "ops/cuda/kernel_list.h"
#include "ops/cuda/per_run_arg.cuh"
#include "ops/cuda/rows.cuh"
#include "ops/nn/dropout_words.h"
#include "ops/random/philox.h"

namespace tandem::cuda {
namespace {

constexpr int kSide = 32;  // rows and columns of a tile of scores; each warp has four rows
constexpr int kTileRows = kThreads / kSide;
constexpr int kMine = kSide / kTileRows;  // rows per thread
// A block computes up to this many times 32 columns of the result. Wider results take several
// blocks.
template <class C>
constexpr int kParts = sizeof(C) == 8 ? 1 : 2;
template <class C>
constexpr int kWidth = kParts<C>* kSide;

template <class C>
using ScoreTile = C[kSide][kSide + 1];
template <class C>
using WideTile = C[kSide][kWidth<C>];

// The row `mine` of the calling thread, and its column.
__device__ __forceinline__ int tile_row(int mine) {
  return static_cast<int>(threadIdx.x) / kSide + mine * kTileRows;
}
__device__ __forceinline__ int tile_column() { return static_cast<int>(threadIdx.x) % kSide; }

struct Larger {
  template <class C>
  __device__ C operator()(C a, C b) const {
    return a > b ? a : b;
  }
};
template <class C, class F>
__device__ C over_warp(C value, const F& combine) {
#pragma unroll
  for (int step = kWarp / 2; step > 0; step /= 2) value = combine(value, from_lane(value, step));
  return value;
}

// Rows of a head of a tensor [batch, positions, heads, depth].
template <class T>
struct Rows {
  T* data;
  std::int64_t stride, depth;
  int count;  // at most kSide

  __device__ Rows(T* tensor, std::int64_t positions, std::int64_t heads, std::int64_t size,
                  std::int64_t batch, std::int64_t head, std::int64_t first)
      : data(tensor + ((batch * positions + first) * heads + head) * size),
        stride(heads * size),
        depth(size),
        count(static_cast<int>(positions - first < kSide ? positions - first : kSide)) {}
  __device__ ComputeOf<std::remove_const_t<T>> at(int row, std::int64_t column) const {
    using C = ComputeOf<std::remove_const_t<T>>;
    return row < count && column < depth ? load_as(data[row * stride + column]) : C{0};
  }
};

struct Attention {
  AttentionSizes s;
  AttentionMask mask;
  bool causal, drops;
  double scale, kept_scale;
  PerRunArg<RandomKey> random_key;
  std::uint32_t threshold;
  std::int64_t offset;

  Attention(const AttentionAttrs& attrs, const PerRunArg<RandomKey>& key_arg,
            const AttentionSizes& sizes, const TensorView* masked)
      : s(sizes),
        mask(masked ? AttentionMask(*masked) : AttentionMask()),
        causal(attrs.causal),
        drops(attrs.rate > 0.0),
        scale(attrs.score_scale()),
        kept_scale(attrs.scale()),
        random_key(key_arg),
        threshold(attrs.threshold()),
        offset(attrs.offset) {}

  // The score of a query and a key; minus infinity if the key is masked or out of range.
  template <class T>
  __device__ ComputeOf<T> score(ComputeOf<T> product, std::int64_t batch, std::int64_t head,
                                std::int64_t query, std::int64_t key) const {
    using C = ComputeOf<T>;
    constexpr C kNever = -std::numeric_limits<C>::infinity();
    if (query >= s.queries || key >= s.keys || (causal && key > query)) return kNever;
    const C value = product * static_cast<C>(scale);
    if (!mask.data) return value;
    const std::int64_t at =
        batch * mask.batch + head * mask.head + query * mask.query + key * mask.key;
    if (mask.allows) return static_cast<const bool*>(mask.data)[at] ? value : kNever;
    return value + load_as(static_cast<const T*>(mask.data)[at]);
  }

  // The factor that dropout applies to a weight: 0, or the scale.
  template <class C>
  __device__ C kept(std::int64_t batch, std::int64_t head, std::int64_t query,
                    std::int64_t key) const {
    if (!drops) return C{1};
    const std::int64_t at = offset + ((batch * s.heads + head) * s.queries + query) * s.keys + key;
    const auto words = philox(
        random_key(), static_cast<std::uint64_t>(at / kDropoutBlock * kColumns + at % kColumns));
    return words[at % kDropoutBlock / kColumns] >= threshold ? static_cast<C>(kept_scale) : C{0};
  }
};

// sums[mine] += (row of a of the calling thread) . (row of b of its column).
template <class T>
__device__ void add_products(const Rows<const T>& a, const Rows<const T>& b,
                             ComputeOf<T> (&sums)[kMine]) {
  using C = ComputeOf<T>;
  __shared__ ScoreTile<C> left, right;
  const int column = tile_column();
  for (std::int64_t first = 0; first < a.depth; first += kSide) {
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kMine; ++i) {
      left[tile_row(i)][column] = a.at(tile_row(i), first + column);
      right[tile_row(i)][column] = b.at(tile_row(i), first + column);
    }
    __syncthreads();
#pragma unroll 8
    for (int l = 0; l < kSide; ++l)
#pragma unroll
      for (int i = 0; i < kMine; ++i) sums[i] += left[tile_row(i)][l] * right[column][l];
  }
}

// result[mine] += (row of weights of the calling thread) . (columns of `rows` from `first` on).
template <class T>
__device__ void add_weighted(const ScoreTile<ComputeOf<T>>& weights, const Rows<const T>& rows,
                             std::int64_t first,
                             ComputeOf<T> (&result)[kMine][kParts<ComputeOf<T>>]) {
  using C = ComputeOf<T>;
  __shared__ WideTile<C> values;
  const int column = tile_column();
  __syncthreads();
#pragma unroll
  for (int i = 0; i < kMine; ++i)
#pragma unroll
    for (int part = 0; part < kParts<C>; ++part)
      values[tile_row(i)][part * kSide + column] =
          rows.at(tile_row(i), first + part * kSide + column);
  __syncthreads();
#pragma unroll 4
  for (int l = 0; l < kSide; ++l)
#pragma unroll
    for (int part = 0; part < kParts<C>; ++part) {
      const C value = values[l][part * kSide + column];
#pragma unroll
      for (int i = 0; i < kMine; ++i) result[i][part] += weights[tile_row(i)][l] * value;
    }
}

template <class T, class C>
__device__ void store_row(const Rows<T>& rows, int mine, std::int64_t first, const C* values,
                          C factor) {
  if (tile_row(mine) >= rows.count) return;
#pragma unroll
  for (int part = 0; part < kParts<C>; ++part) {
    const std::int64_t column = first + part * kSide + tile_column();
    if (column < rows.depth)
      rows.data[tile_row(mine) * rows.stride + column] = store_as<T>(values[part] * factor);
  }
}

// The head, the rows and the columns of the result that the thread block computes.
struct MyTile {
  std::int64_t batch, head, first, column;
  __device__ MyTile(std::int64_t heads, std::int64_t positions, int width)
      : column(static_cast<std::int64_t>(blockIdx.y) * width) {
    const std::int64_t blocks = (positions + kSide - 1) / kSide, at = blockIdx.x / blocks;
    // The last rows come first, since in causal attention they have the most keys.
    first = (blocks - 1 - blockIdx.x % blocks) * kSide;
    batch = at / heads;
    head = at % heads;
  }
};

template <class T>
__global__ void __launch_bounds__(kThreads)
    attention_rows(Attention a, const T* query, const T* key, const T* value, T* y,
                   ComputeOf<T>* log_sums) {
  using C = ComputeOf<T>;
  constexpr C kNever = -std::numeric_limits<C>::infinity();
  __shared__ ScoreTile<C> weights;
  const AttentionSizes& s = a.s;
  const MyTile my(s.heads, s.queries, kWidth<C>);
  const std::int64_t kv_head = my.head / s.group();
  const Rows<const T> queries(query, s.queries, s.heads, s.depth, my.batch, my.head, my.first);
  C largest[kMine], sum[kMine], result[kMine][kParts<C>] = {};
#pragma unroll
  for (int i = 0; i < kMine; ++i) {
    largest[i] = kNever;
    sum[i] = C{0};
  }
  const std::int64_t seen = a.causal && my.first + kSide < s.keys ? my.first + kSide : s.keys;
  for (std::int64_t first = 0; first < seen; first += kSide) {
    const Rows<const T> keys(key, s.keys, s.kv_heads, s.depth, my.batch, kv_head, first);
    C products[kMine] = {};
    add_products<T>(queries, keys, products);
    const std::int64_t column = first + tile_column();
#pragma unroll
    for (int i = 0; i < kMine; ++i) {
      const std::int64_t row = my.first + tile_row(i);
      const C score = a.template score<T>(products[i], my.batch, my.head, row, column);
      const C here = over_warp(score == score ? score : kNever, Larger());
      const C now = Larger()(here, largest[i]);
      // If no key has been visible yet, the shift is 0, so that exp(-inf) is 0 and NaN is kept.
      const C shift = now == kNever ? C{0} : now;
      const C weight = ::exp(score - shift), before = ::exp(largest[i] - shift);
      sum[i] = sum[i] * before + over_warp(weight, Add());
      largest[i] = now;
#pragma unroll
      for (int part = 0; part < kParts<C>; ++part) result[i][part] *= before;
      weights[tile_row(i)][tile_column()] =
          a.drops ? weight * a.template kept<C>(my.batch, my.head, row, column) : weight;
    }
    add_weighted<T>(
        weights, Rows<const T>(value, s.keys, s.kv_heads, s.value_depth, my.batch, kv_head, first),
        my.column, result);
  }
  const Rows<T> to(y, s.queries, s.heads, s.value_depth, my.batch, my.head, my.first);
#pragma unroll
  for (int i = 0; i < kMine; ++i) {
    const bool blind = sum[i] == C{0};
    store_row(to, i, my.column, result[i], blind ? C{0} : C{1} / sum[i]);
    if (tile_row(i) < to.count && tile_column() == 0 && my.column == 0)
      log_sums[(my.batch * s.heads + my.head) * s.queries + my.first + tile_row(i)] =
          blind ? std::numeric_limits<C>::infinity() : largest[i] + ::log(sum[i]);
  }
}

// sum(dy * y) of each query and head, [batch, heads, queries]; one warp per row.
template <class T>
__global__ void __launch_bounds__(kThreads)
    attention_row_products(AttentionSizes s, const T* dy, const T* y, ComputeOf<T>* deltas) {
  using C = ComputeOf<T>;
  const MyRow row(kWarp);  // of [batch, queries, heads]
  if (row.index >= s.batch * s.queries * s.heads) return;
  dy += row.index * s.value_depth;
  y += row.index * s.value_depth;
  C sum = C{0};
  for (std::int64_t j = row.lane; j < s.value_depth; j += row.width)
    sum += load_as(dy[j]) * load_as(y[j]);
  sum = over_row(row, sum, Add());
  const std::int64_t head = row.index % s.heads, position = row.index / s.heads;
  if (row.lane == 0)
    deltas[(position / s.queries * s.heads + head) * s.queries + position % s.queries] = sum;
}

// Computes a weight of a tile and the gradient of its score from the two products.
template <class C>
struct Slope {
  C weight, slope;
};
template <class T>
__device__ Slope<ComputeOf<T>> slope_of(const Attention& a, ComputeOf<T> product,
                                        ComputeOf<T> gradient, const ComputeOf<T>* log_sums,
                                        const ComputeOf<T>* deltas, std::int64_t batch,
                                        std::int64_t head, std::int64_t query, std::int64_t key) {
  using C = ComputeOf<T>;
  if (query >= a.s.queries || key >= a.s.keys) return {C{0}, C{0}};
  const std::int64_t row = (batch * a.s.heads + head) * a.s.queries + query;
  const C score = a.template score<T>(product, batch, head, query, key);
  const C weight = ::exp(score - log_sums[row]);
  const C kept = a.template kept<C>(batch, head, query, key);
  return {weight * kept, weight * (gradient * kept - deltas[row])};
}

template <class T>
struct GradientInputs {
  const T *dy, *query, *key, *value;
  const ComputeOf<T>*log_sums, *deltas;
};

template <class T>
__global__ void __launch_bounds__(kThreads)
    attention_query_gradient(Attention a, GradientInputs<T> in, T* dquery) {
  using C = ComputeOf<T>;
  __shared__ ScoreTile<C> slopes;
  const AttentionSizes& s = a.s;
  const MyTile my(s.heads, s.queries, kWidth<C>);
  const std::int64_t kv_head = my.head / s.group();
  const Rows<const T> queries(in.query, s.queries, s.heads, s.depth, my.batch, my.head, my.first);
  const Rows<const T> dy(in.dy, s.queries, s.heads, s.value_depth, my.batch, my.head, my.first);
  C result[kMine][kParts<C>] = {};
  const std::int64_t seen = a.causal && my.first + kSide < s.keys ? my.first + kSide : s.keys;
  for (std::int64_t first = 0; first < seen; first += kSide) {
    const Rows<const T> keys(in.key, s.keys, s.kv_heads, s.depth, my.batch, kv_head, first);
    C products[kMine] = {}, gradients[kMine] = {};
    add_products<T>(queries, keys, products);
    add_products<T>(
        dy, Rows<const T>(in.value, s.keys, s.kv_heads, s.value_depth, my.batch, kv_head, first),
        gradients);
#pragma unroll
    for (int i = 0; i < kMine; ++i)
      slopes[tile_row(i)][tile_column()] =
          slope_of<T>(a, products[i], gradients[i], in.log_sums, in.deltas, my.batch, my.head,
                      my.first + tile_row(i), first + tile_column())
              .slope;
    add_weighted<T>(slopes, keys, my.column, result);
  }
  const Rows<T> to(dquery, s.queries, s.heads, s.depth, my.batch, my.head, my.first);
#pragma unroll
  for (int i = 0; i < kMine; ++i) store_row(to, i, my.column, result[i], static_cast<C>(a.scale));
}

// Here, rows of a tile are keys and columns are queries.
template <class T>
__global__ void __launch_bounds__(kThreads)
    attention_key_gradient(Attention a, GradientInputs<T> in, T* dkey, T* dvalue) {
  using C = ComputeOf<T>;
  __shared__ ScoreTile<C> weights, slopes;
  const AttentionSizes& s = a.s;
  const MyTile my(s.kv_heads, s.keys, kWidth<C>);
  const Rows<const T> keys(in.key, s.keys, s.kv_heads, s.depth, my.batch, my.head, my.first);
  const Rows<const T> values(in.value, s.keys, s.kv_heads, s.value_depth, my.batch, my.head,
                             my.first);
  C of_keys[kMine][kParts<C>] = {}, of_values[kMine][kParts<C>] = {};
  for (std::int64_t head = my.head * s.group(); head < (my.head + 1) * s.group(); ++head)
    for (std::int64_t first = a.causal ? my.first : 0; first < s.queries; first += kSide) {
      const Rows<const T> queries(in.query, s.queries, s.heads, s.depth, my.batch, head, first);
      const Rows<const T> dy(in.dy, s.queries, s.heads, s.value_depth, my.batch, head, first);
      C products[kMine] = {}, gradients[kMine] = {};
      add_products<T>(keys, queries, products);
      add_products<T>(values, dy, gradients);
#pragma unroll
      for (int i = 0; i < kMine; ++i) {
        const Slope<C> each =
            slope_of<T>(a, products[i], gradients[i], in.log_sums, in.deltas, my.batch, head,
                        first + tile_column(), my.first + tile_row(i));
        weights[tile_row(i)][tile_column()] = each.weight;
        slopes[tile_row(i)][tile_column()] = each.slope;
      }
      add_weighted<T>(weights, dy, my.column, of_values);
      add_weighted<T>(slopes, queries, my.column, of_keys);
    }
  const Rows<T> keys_to(dkey, s.keys, s.kv_heads, s.depth, my.batch, my.head, my.first);
  const Rows<T> values_to(dvalue, s.keys, s.kv_heads, s.value_depth, my.batch, my.head, my.first);
#pragma unroll
  for (int i = 0; i < kMine; ++i) {
    store_row(keys_to, i, my.column, of_keys[i], static_cast<C>(a.scale));
    store_row(values_to, i, my.column, of_values[i], C{1});
  }
}

// The number of blocks for all rows of all heads and all columns of the result.
template <class C>
Grid tiles(std::int64_t heads, std::int64_t positions, std::int64_t columns) {
  return {.blocks = dim3(static_cast<unsigned>(heads * ((positions + kSide - 1) / kSide)),
                         static_cast<unsigned>((columns + kWidth<C> - 1) / kWidth<C>))};
}

PerRunArg<RandomKey> random_key_of(const KernelContext& c) {
  return per_run_arg<AttentionAttrs>(
      c, [](const AttentionAttrs& attrs) { return attrs.random_key(); });
}

// The description for cuDNN; nullopt if there is a mask or dropout. Query, key and value are inputs
// `first` to `first` + 2; a mask would be input `mask`.
std::optional<CudnnAttention> describe_for_cudnn(const KernelContext& c, AttentionPass pass,
                                                 int first, int mask) {
  const auto& attrs = c.attrs<AttentionAttrs>();
  if (c.inputs.size() > mask || attrs.rate > 0.0) return std::nullopt;
  return CudnnAttention{
      .pass = pass,
      .dtype = c.inputs[first].dtype,
      .sizes = {c.inputs[first].shape, c.inputs[first + 1].shape, c.inputs[first + 2].shape},
      .causal = attrs.causal};
}

// Returns false if cuDNN has not computed it.
bool try_cudnn(KernelContext& c) {
  const auto attention = describe_for_cudnn(c, AttentionPass::kForward, 0, 3);
  return attention && cudnn_attention(c, *attention, c.attrs<AttentionAttrs>().score_scale(),
                                      {.query = c.inputs[0].data,
                                       .key = c.inputs[1].data,
                                       .value = c.inputs[2].data,
                                       .result = c.outputs[0].data,
                                       .log_sums = c.outputs[1].data});
}

bool try_cudnn_grad(KernelContext& c) {
  const auto attention = describe_for_cudnn(c, AttentionPass::kBackward, 1, 6);
  return attention && cudnn_attention(c, *attention, c.attrs<AttentionAttrs>().score_scale(),
                                      {.query = c.inputs[1].data,
                                       .key = c.inputs[2].data,
                                       .value = c.inputs[3].data,
                                       .result = c.inputs[4].data,
                                       .log_sums = c.inputs[5].data,
                                       .dresult = c.inputs[0].data,
                                       .dquery = c.outputs[0].data,
                                       .dkey = c.outputs[1].data,
                                       .dvalue = c.outputs[2].data});
}

void attention_on(KernelContext& c) {
  const PerRunArg<RandomKey> random_key = random_key_of(c);
  const AttentionSizes s(c.inputs[0].shape, c.inputs[1].shape, c.inputs[2].shape);
  if (c.outputs[0].size() == 0 || try_cudnn(c)) return;
  const Attention a(c.attrs<AttentionAttrs>(), random_key, s,
                    c.inputs.size() == 4 ? &c.inputs[3] : nullptr);
  switch_floating(c.inputs[0].dtype, [&]<class T>(Type<T>) {
    using C = ComputeOf<T>;
    launch(c, tiles<C>(s.batch * s.heads, s.queries, s.value_depth), attention_rows<T>, a,
           c.inputs[0].as<const T>(), c.inputs[1].as<const T>(), c.inputs[2].as<const T>(),
           c.outputs[0].as<T>(), c.outputs[1].as<C>());
  });
}

void attention_grad_on(KernelContext& c) {
  const PerRunArg<RandomKey> random_key = random_key_of(c);
  const AttentionSizes s(c.inputs[1].shape, c.inputs[2].shape, c.inputs[3].shape);
  if (c.inputs[0].size() == 0 || s.keys == 0) {
    for (const TensorView& gradient : c.outputs) {
      const std::size_t bytes = static_cast<std::size_t>(gradient.size()) * size_of(gradient.dtype);
      if (bytes > 0)
        check(cudaMemsetAsync(gradient.data, 0, bytes, stream_of(c)), "cudaMemsetAsync");
    }
    return;
  }
  if (try_cudnn_grad(c)) return;
  const Attention a(c.attrs<AttentionAttrs>(), random_key, s,
                    c.inputs.size() == 7 ? &c.inputs[6] : nullptr);
  switch_floating(c.inputs[1].dtype, [&]<class T>(Type<T>) {
    using C = ComputeOf<T>;
    const std::int64_t rows = s.batch * s.heads * s.queries;
    C* const deltas = static_cast<C*>(c.scratch(static_cast<std::size_t>(rows) * sizeof(C)));
    launch(c, {.blocks = row_blocks(rows, kWarp)}, attention_row_products<T>, s,
           c.inputs[0].as<const T>(), c.inputs[4].as<const T>(), deltas);
    const GradientInputs<T> in{c.inputs[0].as<const T>(), c.inputs[1].as<const T>(),
                               c.inputs[2].as<const T>(), c.inputs[3].as<const T>(),
                               c.inputs[5].as<const C>(), deltas};
    launch(c, tiles<C>(s.batch * s.heads, s.queries, s.depth), attention_query_gradient<T>, a, in,
           c.outputs[0].as<T>());
    launch(c, tiles<C>(s.batch * s.kv_heads, s.keys, std::max(s.depth, s.value_depth)),
           attention_key_gradient<T>, a, in, c.outputs[1].as<T>(), c.outputs[2].as<T>());
  });
}

}  // namespace

KernelList attention_kernels() {
  static constexpr CudaKernel kernels[] = {
      {"ScaledDotProductAttention", on_gpu<attention_on>},
      {"ScaledDotProductAttentionGrad", on_gpu<attention_grad_on>},
      {"ScaledDotProductAttentionDropout", on_gpu<attention_on>},
      {"ScaledDotProductAttentionDropoutGrad", on_gpu<attention_grad_on>}};
  return kernels;
}

}  // namespace tandem::cuda
