// Kernels that one launch runs for many tensors, whose table is an argument.
#pragma once

#include "ops/cuda/elements.cuh"

namespace tandem::cuda {

// The tensor of the calling block, and the number of the block among those of the tensor.
struct TableChunk {
  int entry = 0;
  unsigned chunk;

  // `end_block`: for each of `count` tensors, the block after its last one.
  __device__ __forceinline__ TableChunk(const unsigned* end_block, int count) {
    for (int end = count - 1; entry < end;) {
      const int middle = (entry + end) / 2;
      if (blockIdx.x < end_block[middle])
        end = middle;
      else
        entry = middle + 1;
    }
    chunk = blockIdx.x - (entry == 0 ? 0u : end_block[entry - 1]);
  }
};

}  // namespace tandem::cuda
