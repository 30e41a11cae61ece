// Launching kernels of the CUDA backend.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>

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

// Runs `kKernel` with the context's GPU as the thread's current device. Lists of kernels hold
// these.
template <KernelFn kKernel>
void on_gpu(KernelContext& c) {
  make_current(device_of(c).ordinal());
  kKernel(c);
}

inline constexpr int kThreads = 256;  // per block, by default

// The number of blocks for one thread per item. REQUIRES: items > 0.
inline unsigned blocks_for(std::int64_t items, int threads = kThreads) {
  return static_cast<unsigned>((items + threads - 1) / threads);
}

struct Grid {
  dim3 blocks;
  dim3 threads = kThreads;       // per block
  std::size_t shared_bytes = 0;  // per block, in addition to what the kernel declares
};

// Enqueues a `__global__` function on the context's stream. All launches go through this function.
template <class... Params>
void launch(const KernelContext& c, const Grid& grid, void (*kernel)(Params...),
            std::type_identity_t<Params>... args) {
  cudaLaunchConfig_t config{};
  config.gridDim = grid.blocks;
  config.blockDim = grid.threads;
  config.dynamicSmemBytes = grid.shared_bytes;
  config.stream = stream_of(c);
  check(cudaLaunchKernelEx(&config, kernel, args...), "cudaLaunchKernelEx");
}

}  // namespace tandem::cuda
