// What every kernel of the CUDA backend goes through.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdint>

#include "device/cuda/module/check.h"
#include "device/cuda/module/cuda_device.h"
#include "op/op.h"

namespace tandem::cuda {

inline CudaDevice& device_of(const KernelContext& c) {
  return static_cast<CudaDevice&>(*c.workspace);
}
inline cudaStream_t stream_of(const KernelContext& c) {
  return static_cast<cudaStream_t>(c.native_stream);
}

// `kKernel` with its GPU made the thread's, and its launches looked after. What a list of kernels
// holds.
template <KernelFn kKernel>
void on_gpu(KernelContext& c) {
  make_current(device_of(c).ordinal());
  kKernel(c);
  check(cudaGetLastError(), "a launch");
}

inline constexpr int kThreads = 256;  // of a block, where nothing speaks for another number

// How many blocks of kThreads make one thread for each of `items`. REQUIRES: items > 0.
inline unsigned blocks_for(std::int64_t items, int threads = kThreads) {
  return static_cast<unsigned>((items + threads - 1) / threads);
}

}  // namespace tandem::cuda
