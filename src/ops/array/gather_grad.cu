// The GPU kernel of GatherGrad (index.cc). The positions of the indices are sorted by row, and each
// row's gradients are added in that order, as on the CPU. Without atomics, the result is
// deterministic.
#include <limits>

#include "ops/array/array_ops.h"
#include "ops/array/index.h"
#include "ops/cuda/elements.cuh"
#include "ops/cuda/indices.cuh"
#include "ops/cuda/kernel_list.h"

namespace tandem::cuda {
namespace {

// A key is row * count + position. All keys differ; they are ordered by row, then by position.
// Invalid indices count as a row after the last one.
__global__ void __launch_bounds__(kThreads)
    make_keys(Indices indices, std::int64_t count, std::int64_t rows, std::int64_t* keys) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= count) return;
  const std::int64_t index = indices[i];
  keys[i] = (index >= 0 && index < rows ? index : rows) * count + i;
}

constexpr int kRun = 2 * kThreads;  // keys that a block sorts

// Sorts the keys of a run: a key's position is the number of smaller keys.
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

// The number of keys in the sorted range [begin, end) that are less than `key`.
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

// Merges pairs of adjacent sorted runs of `length` keys.
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

// One thread per key and pack of columns. The threads of a row's first key add up the row.
// REQUIRES: y holds zeros.
template <class T, int kPack>
__global__ void __launch_bounds__(kThreads)
    add_rows(const T* gradient, const std::int64_t* keys, T* y, std::int64_t count,
             std::int64_t rows, std::int64_t inner, std::int64_t size) {
  using C = ComputeOf<T>;
  const std::int64_t element =
      (static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * kPack;
  if (element >= size) return;
  const std::int64_t column = element % inner, run = element / inner;
  const std::int64_t at = run % count, outer = run / count;
  const std::int64_t row = keys[at] / count;
  if (row == rows || (at > 0 && keys[at - 1] >= row * count)) return;
  const std::int64_t terms = count_below(keys, at, count, (row + 1) * count);
  const T* from = gradient + outer * count * inner + column;
  C sums[kPack] = {};
#pragma unroll 8
  for (std::int64_t i = 0; i < terms; ++i) {
    const auto pack = load_pack<kPack>(from, (keys[at + i] - row * count) * inner, kPack);
#pragma unroll
    for (int n = 0; n < kPack; ++n) sums[n] += load_as(pack.at[n]);
  }
  Pack<T, kPack> result;
#pragma unroll
  for (int n = 0; n < kPack; ++n) result.at[n] = store_as<T>(sums[n]);
  store_pack(y + (outer * rows + row) * inner, column, kPack, result);
}

template <class T, int kPack>
void add_rows_on(KernelContext& c, const AxisSplit& split, std::int64_t count,
                 const std::int64_t* keys) {
  const std::int64_t size = split.outer * count * split.inner;
  launch(c, {.blocks = blocks_for(size / kPack)}, add_rows<T, kPack>, c.inputs[0].as<const T>(),
         keys, c.outputs[0].as<T>(), count, split.size, split.inner, size);
}

// The sorted keys of `count` indices.
const std::int64_t* sorted_keys(KernelContext& c, std::int64_t count, std::int64_t rows) {
  if (rows >= std::numeric_limits<std::int64_t>::max() / count)
    throw InvalidArgumentError("[GatherGrad] the product of rows and indices overflows 64 bits");
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
