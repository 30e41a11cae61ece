#include "device/gpu_policy.h"

#include <string>
#include <utility>

namespace tandem {

BfcOptions gpu_allocator_options(const LogicalGpuOptions& options, std::function<void()> drain,
                                 std::thread::id drained_thread) {
  return {.name = "GPU_" + std::to_string(*options.name.id) + "_bfc",
          .total_bytes = static_cast<std::size_t>(options.memory_limit),
          .allow_growth = options.allow_growth,
          .drain = std::move(drain),
          .drained_thread = drained_thread};
}

}  // namespace tandem
