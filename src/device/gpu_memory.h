// How much of a real GPU's memory a process takes by default. After TensorFlow.
#pragma once

#include <cstdint>

namespace tandem {

struct GpuMemory {
  std::int64_t total = 0;      // bytes
  std::int64_t available = 0;  // bytes, of the total
  int compute_major = 0;       // 9 for compute capability 9.0
  bool integrated = false;     // shares its memory with the host, as on a Tegra
};

// The limit of a single logical device on the GPU, in bytes. With a `fraction`: of the total. With
// 0: what is available but a reserve for the system: 225 MiB below 2 GiB, else 500, 1050, 1536 or
// 1800 MiB for compute capabilities up to 6, 7, 8, and from 9 on, and 1 GiB of what is shared with
// the host; nothing where the reserve is not smaller than what is available. The environment's
// TANDEM_DEVICE_MIN_SYS_MEMORY_IN_MB, or where it is not set TF_DEVICE_MIN_SYS_MEMORY_IN_MB, sets
// another reserve; one above what is available, or that is no number, is ignored with a warning.
std::int64_t gpu_memory_limit(const GpuMemory& memory, double fraction);

}  // namespace tandem
