// The kernel of GatherGrad (index.cc) on a GPU. The positions of the indices are sorted by row, and
// each row's are added up in their order: the same bits in every run, without atomics.
#include <limits>

#include "ops/array/array_ops.h"
#include "ops/array/index.h"
#include "ops/cuda/elements.cuh"
#include "ops/cuda/indices.cuh"
#include "ops/cuda/kernel_list.h"

namespace tandem::cuda {
namespace {

// A key is row * count + position: no two are equal, and their order is that of the rows, then of
// the positions. Indices that are no row count as one behind the last.
__global__ void __launch_bounds__(kThreads)
    make_keys(Indices indices, std::int64_t count, std::int64_t rows, std::int64_t* keys) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= count) return;
  const std::int64_t index = indices[i];
  keys[i] = (index >= 0 && index < rows ? index : rows) * count + i;
}

constexpr int kRun = 2 * kThreads;  // keys that a block sorts

// Each key goes where the number of smaller ones in its run says.
__global__ void __launch_bounds__(kThreads)
    sort_runs(const std::int64_t* keys, std::int64_t* sorted, std::int64_t count) {
  __shared__ std::int64_t run[kRun];
  const std::int64_t begin = static_cast<std::int64_t>(blockIdx.x) * kRun;
  const int length = static_cast<int>(count - begin < kRun ? count - begin : kRun);
  for (int i = threadIdx.x; i < length; i += kThreads) run[i] = keys[begin + i];
  __syncthreads();
  for (int i = threadIdx.x; i < length; i += kThreads) {
    const std::int64_t key = run[i];
    int smaller = 0;
    for (int other = 0; other < length; ++other) smaller += run[other] < key ? 1 : 0;
    sorted[begin + smaller] = key;
  }
}

// How many of keys[begin, end), which are sorted, are below `key`.
__device__ std::int64_t count_below(const std::int64_t* keys, std::int64_t begin, std::int64_t end,
                                    std::int64_t key) {
  const std::int64_t first = begin;
  while (begin < end) {
    const std::int64_t middle = begin + (end - begin) / 2;
    if (keys[middle] < key)
      begin = middle + 1;
    else
      end = middle;
  }
  return begin - first;
}

// Neighbouring runs of `length` sorted keys become one.
__global__ void __launch_bounds__(kThreads)
    merge_runs(const std::int64_t* keys, std::int64_t* merged, std::int64_t count,
               std::int64_t length) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= count) return;
  const std::int64_t run = i / length * length;
  const std::int64_t other = i / length % 2 == 0 ? run + length : run - length;
  const std::int64_t begin = other < count ? other : count,
                     end = begin + length < count ? begin + length : count;
  const std::int64_t key = keys[i];
  merged[(run < other ? run : other) + (i - run) + count_below(keys, begin, end, key)] = key;
}

// How a block goes over the keys: `across` threads with a pack of columns each, `kThreads / across`
// below each other, which share out what is added up to a row.
struct Segments {
  std::int64_t count, rows, inner, outer;
  int across;
  std::int64_t tiles;  // of across packs
  std::int64_t work;   // a block each: outer * count * tiles
};

// y is zeros. A block whose key is the first of its row adds up the row.
template <class T, int kPack>
__global__ void __launch_bounds__(kThreads)
    add_rows(const T* gradient, const std::int64_t* keys, T* y, Segments segments) {
  using C = ComputeOf<T>;
  __shared__ C of_thread[kPack][kThreads];
  const std::int64_t count = segments.count;
  const int column_here = threadIdx.x % segments.across, lane = threadIdx.x / segments.across,
            lanes = kThreads / segments.across;
  for (std::int64_t item = blockIdx.x; item < segments.work; item += gridDim.x) {
    const std::int64_t column = (item % segments.tiles * segments.across + column_here) * kPack;
    const std::int64_t at = item / segments.tiles % count, outer = item / segments.tiles / count;
    const std::int64_t row = keys[at] / count;
    if (row == segments.rows || (at > 0 && keys[at - 1] >= row * count)) continue;
    const T* from = gradient + outer * count * segments.inner + column;
    const std::int64_t end = (row + 1) * count;  // of the row's keys
    C sums[kPack] = {};
    if (column < segments.inner)
      for (std::int64_t i = at + lane; i < count && keys[i] < end; i += lanes) {
        const auto pack = load_pack<kPack>(from, (keys[i] - row * count) * segments.inner, kPack);
#pragma unroll
        for (int n = 0; n < kPack; ++n) sums[n] += load_as(pack.at[n]);
      }
#pragma unroll
    for (int n = 0; n < kPack; ++n) of_thread[n][threadIdx.x] = sums[n];
    for (int half = lanes / 2; half > 0; half /= 2) {
      __syncthreads();
      if (lane >= half) continue;
#pragma unroll
      for (int n = 0; n < kPack; ++n)
        of_thread[n][threadIdx.x] += of_thread[n][threadIdx.x + half * segments.across];
    }
    if (lane == 0 && column < segments.inner) {
      Pack<T, kPack> result;
#pragma unroll
      for (int n = 0; n < kPack; ++n) result.at[n] = store_as<T>(of_thread[n][threadIdx.x]);
      store_pack(y + (outer * segments.rows + row) * segments.inner, column, kPack, result);
    }
    __syncthreads();  // the next row is added up there
  }
}

template <class T, int kPack>
void add_rows_on(KernelContext& c, const AxisSplit& split, std::int64_t count,
                 const std::int64_t* keys) {
  constexpr std::int64_t kMostBlocks = std::int64_t{1} << 20;
  const std::int64_t packs = split.inner / kPack;
  Segments segments = {.count = count,
                       .rows = split.size,
                       .inner = split.inner,
                       .outer = split.outer,
                       .across = 1,
                       .tiles = 1,
                       .work = 0};
  while (segments.across < 64 && segments.across < packs) segments.across *= 2;
  segments.tiles = (packs + segments.across - 1) / segments.across;
  segments.work = split.outer * count * segments.tiles;
  launch(c, {.blocks = static_cast<unsigned>(std::min(segments.work, kMostBlocks))},
         add_rows<T, kPack>, c.inputs[0].as<const T>(), keys, c.outputs[0].as<T>(), segments);
}

// The keys of `count` indices, sorted.
const std::int64_t* sorted_keys(KernelContext& c, std::int64_t count, std::int64_t rows) {
  if (rows >= std::numeric_limits<std::int64_t>::max() / count)
    throw InvalidArgumentError("[GatherGrad] more rows and indices than 64 bits count");
  auto* keys = static_cast<std::int64_t*>(
      c.scratch(static_cast<std::size_t>(2 * count) * sizeof(std::int64_t)));
  std::int64_t* other = keys + count;
  launch(c, {.blocks = blocks_for(count)}, make_keys, Indices(c.inputs[1]), count, rows, keys);
  launch(c, {.blocks = blocks_for(count, kRun)}, sort_runs, keys, other, count);
  std::swap(keys, other);
  for (std::int64_t length = kRun; length < count; length *= 2) {
    launch(c, {.blocks = blocks_for(count)}, merge_runs, keys, other, count, length);
    std::swap(keys, other);
  }
  return keys;
}

void gather_grad_kernel(KernelContext& c) {
  const TensorView& y = c.outputs[0];
  if (y.size() == 0) return;
  check(cudaMemsetAsync(y.data, 0, static_cast<std::size_t>(y.size()) * size_of(y.dtype),
                        stream_of(c)),
        "cudaMemsetAsync");
  const std::int64_t count = c.inputs[1].size();
  if (count == 0) return;
  const AxisSplit split(y.shape,
                        normalize_axis(*c.op, c.attrs<GatherGradAttrs>().axis, y.shape.rank()));
  const std::int64_t* keys = sorted_keys(c, count, split.size);
  switch_floating(y.dtype, [&]<class T>(Type<T>) {
    if (split.inner % kPackOf<T> == 0)
      add_rows_on<T, kPackOf<T>>(c, split, count, keys);
    else
      add_rows_on<T, 1>(c, split, count, keys);
  });
}

}  // namespace

KernelList gather_grad_kernels() {
  static constexpr CudaKernel kernels[] = {{"GatherGrad", on_gpu<gather_grad_kernel>}};
  return kernels;
}

}  // namespace tandem::cuda
