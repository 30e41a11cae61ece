// The default memory limit of a process on a real GPU. Follows TensorFlow.
#pragma once

#include <cstdint>

namespace tandem {

inline constexpr std::int64_t kMiB = std::int64_t{1} << 20;

struct GpuMemory {
  std::int64_t total = 0;      // bytes
  std::int64_t available = 0;  // bytes, of the total
  int compute_major = 0;       // 9 for compute capability 9.0
  bool integrated = false;     // shares its memory with the host, as on a Tegra
};

// The limit of a single logical device on the GPU, in bytes. If `fraction` is positive: that
// fraction of the total. Otherwise: the available memory minus a reserve for the system. The
// reserve is 225 MiB below 2 GiB, else 500, 1050, 1536 or 1800 MiB for compute capabilities up to
// 6, 7, 8, and from 9 on, plus 1 GiB if the memory is shared with the host. The result is 0 if the
// reserve exceeds the available memory. TANDEM_DEVICE_MIN_SYS_MEMORY_IN_MB, or else
// TF_DEVICE_MIN_SYS_MEMORY_IN_MB, overrides the reserve; an invalid or too large value is ignored
// with a warning.
std::int64_t gpu_memory_limit(const GpuMemory& memory, double fraction);

}  // namespace tandem
