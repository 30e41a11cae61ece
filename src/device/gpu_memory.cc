#include "device/gpu_memory.h"

#include "core/env.h"
#include "core/log.h"
#include "tandem/errors.h"

namespace tandem {
namespace {

// The reserve in MiB that the environment sets.
std::optional<std::int64_t> forced_reserve(const GpuMemory& memory) {
  for (const char* name : {"TANDEM_DEVICE_MIN_SYS_MEMORY_IN_MB", "TF_DEVICE_MIN_SYS_MEMORY_IN_MB"})
    if (env_string(name)) return env_int(name, 0, memory.available / kMiB);
  return std::nullopt;
}

std::int64_t usual_reserve(const GpuMemory& memory) {
  if (memory.integrated) return 1024 * kMiB;
  if (memory.available < 2048 * kMiB) return 225 * kMiB;
  if (memory.compute_major <= 6) return 500 * kMiB;
  if (memory.compute_major == 7) return 1050 * kMiB;
  return (memory.compute_major == 8 ? 1536 : 1800) * kMiB;
}

}  // namespace

std::int64_t gpu_memory_limit(const GpuMemory& memory, double fraction) {
  if (fraction > 0.0)
    return static_cast<std::int64_t>(static_cast<double>(memory.total) * fraction);
  try {
    if (const auto mebibytes = forced_reserve(memory)) return memory.available - *mebibytes * kMiB;
  } catch (const InvalidArgumentError& error) {
    logging::warn("{}; using the usual reserve", error.what());
  }
  const std::int64_t reserve = usual_reserve(memory);
  return reserve < memory.available ? memory.available - reserve : memory.available;
}

}  // namespace tandem
