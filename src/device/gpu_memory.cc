#include "device/gpu_memory.h"

#include "core/env.h"
#include "core/log.h"
#include "tandem/errors.h"

namespace tandem {
namespace {

constexpr std::int64_t kMiB = std::int64_t{1} << 20;
constexpr const char* kReserveVariable = "TANDEM_DEVICE_MIN_SYS_MEMORY_IN_MB";

std::int64_t usual_reserve(const GpuMemory& memory) {
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
    if (const auto mebibytes = env_int(kReserveVariable, 0, memory.available / kMiB))
      return memory.available - *mebibytes * kMiB;
  } catch (const InvalidArgumentError& error) {
    logging::warn("{}; using the usual reserve", error.what());
  }
  const std::int64_t reserve = usual_reserve(memory);
  return reserve < memory.available ? memory.available - reserve : memory.available;
}

}  // namespace tandem
