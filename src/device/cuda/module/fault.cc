#include "device/cuda/module/fault.h"

#include <atomic>

#include "core/status.h"

namespace tandem::cuda {

void throw_fault(Fault& fault) {
  const Fault found = fault;
  fault.told = 0;
  // Last: a kernel that is under way may claim it from here on.
  std::atomic_ref(fault.claimed).store(0, std::memory_order_release);
  throw InvalidArgumentError(
      fmt::format(fmt::runtime(found.text), fmt::arg("op", found.op),
                  fmt::arg("expected", found.expected), fmt::arg("value", found.value),
                  fmt::arg("position", found.position), fmt::arg("limit", found.limit)));
}

}  // namespace tandem::cuda
