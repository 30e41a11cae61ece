// CUDA's runtime, as far as the backend's host code calls it, over the host's memory and emulated
// streams: that code is tested where there is no GPU. It tells who made contexts, and fails as it
// is told.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <string>
#include <vector>

namespace tandem::fake_cuda {

struct Gpu {
  std::string name = "Fake GPU";
  std::size_t memory = std::size_t{16} << 30;
  int major = 9, minor = 0;
  bool reaches_peers = true;

  bool has_context = false;
  std::size_t in_use = 0;
  std::vector<int> peers;  // whose memory it was allowed to reach
  int last_priority = 0;   // of the stream made last
};

// From here on these are the GPUs. `error`: what looking for them gives.
void set_gpus(std::vector<Gpu> gpus, cudaError_t error = cudaSuccess);
Gpu gpu(int ordinal);

}  // namespace tandem::fake_cuda
