#include "device/cuda/module/fault.h"

#include <atomic>

#include "core/status.h"

namespace tandem::cuda {

void throw_fault(Fault& fault) {
  const Fault found = fault;
  fault.complete = 0;
  // Last, because a running kernel may claim it from now on.
  std::atomic_ref(fault.claimed).store(0, std::memory_order_release);
  throw InvalidArgumentError(
      fmt::format(fmt::runtime(found.text), fmt::arg("op", found.op),
                  fmt::arg("expected", found.expected), fmt::arg("value", found.value),
                  fmt::arg("position", found.position), fmt::arg("limit", found.limit)));
}

}  // namespace tandem::cuda
