// Whether NCCL joins the GPUs that a test trains on.
#pragma once

#include <vector>

#include "comm/nccl/nccl_clique.h"
#include "device/device_manager.h"

namespace tandem::testing {

// All GPUs of the process. Gradients are then in buckets, which live between steps.
inline bool nccl_joins_gpus() {
  const auto gpus = DeviceManager::get().devices(DeviceType::kGpu, "test");
  return why_no_nccl(std::vector<DeviceImpl*>(gpus.begin(), gpus.end())).empty();
}

}  // namespace tandem::testing
