// For kernels that process rows: one warp per row for short rows, one block per row for long ones.
#pragma once

#include "ops/cuda/elements.cuh"
#include "ops/formula/functions.h"

namespace tandem::cuda {

inline constexpr int kWarp = 32;
inline constexpr int kWarps = kThreads / kWarp;  // per block

// The number of threads per row of `columns` elements.
inline int row_width(std::int64_t columns) { return columns <= 1024 ? kWarp : kThreads; }
// The number of blocks for `rows` rows. REQUIRES: rows > 0.
inline unsigned row_blocks(std::int64_t rows, int width) {
  return width == kWarp ? blocks_for(rows, kWarps) : static_cast<unsigned>(rows);
}

// The row of the calling thread, and its lane among the `width` threads of the row.
struct MyRow {
  std::int64_t index;
  int lane;
  int width;
  __device__ explicit MyRow(int threads)
      : index(threads == kWarp
                  ? static_cast<std::int64_t>(blockIdx.x) * kWarps + threadIdx.x / kWarp
                  : blockIdx.x),
        lane(threads == kWarp ? threadIdx.x % kWarp : threadIdx.x),
        width(threads) {}
};

// Calls f(first column) for each pack of columns of the calling thread.
template <int kPack, class F>
__device__ __forceinline__ void for_packs(const MyRow& row, std::int64_t columns, const F& f) {
  for_steps<kPack == 1 ? 4 : 2>(static_cast<std::int64_t>(row.lane) * kPack, columns,
                                static_cast<std::int64_t>(row.width) * kPack, f);
}

// The value of the lane whose number differs by `step` (XOR). Types with several numbers overload
// it.
template <class C>
__device__ C from_lane(const C& value, int step) {
  return static_cast<C>(__shfl_xor_sync(0xffffffffu, value, step));
}

// Combines the values of all threads of a row in a fixed order and returns the result to each of
// them. REQUIRES: all threads of the row call it.
template <class C, class F>
__device__ C over_row(const MyRow& row, C value, const F& combine) {
#pragma unroll
  for (int step = kWarp / 2; step > 0; step /= 2) value = combine(value, from_lane(value, step));
  if (row.width == kWarp) return value;
  __shared__ C of_warp[kWarps];
  if (row.lane % kWarp == 0) of_warp[row.lane / kWarp] = value;
  __syncthreads();
  value = of_warp[0];
#pragma unroll
  for (int i = 1; i < kWarps; ++i) value = combine(value, of_warp[i]);
  __syncthreads();  // the next call overwrites the shared memory
  return value;
}

}  // namespace tandem::cuda
