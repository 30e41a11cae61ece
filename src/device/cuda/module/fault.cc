#include "device/cuda/module/fault.h"

#include <utility>

#include "core/status.h"

namespace tandem::cuda {

void throw_fault(Fault& fault) {
  const Fault found = std::exchange(fault, Fault());
  throw InvalidArgumentError(fmt::format(
      fmt::runtime(found.text), fmt::arg("op", found.op), fmt::arg("value", found.value),
      fmt::arg("position", found.position), fmt::arg("limit", found.limit)));
}

}  // namespace tandem::cuda
