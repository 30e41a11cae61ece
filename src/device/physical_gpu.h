// The interface of a GPU backend to the device manager: the physical GPUs, from which logical
// devices are made.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "device/device.h"
#include "tandem/config.h"

namespace tandem {

struct LogicalGpuOptions {
  DeviceName name;
  std::int64_t memory_limit = 0;  // bytes
  bool allow_growth = false;
  int intra_op_threads = 1;
  std::optional<int> priority;  // stream priority within the GPU's priority_range()
};

// Stream priorities as in CUDA: smaller numbers are more urgent.
struct PriorityRange {
  int most_urgent = 0;
  int least_urgent = 0;
};

class PhysicalGpu {
 public:
  virtual ~PhysicalGpu() = default;
  virtual config::DeviceDetails details() const = 0;
  // The limit in bytes of a single logical device on this GPU. `fraction`: of the total memory; 0:
  // all available memory except the backend's reserve.
  virtual std::int64_t memory_limit(double fraction) const = 0;
  virtual PriorityRange priority_range() const = 0;
  virtual std::unique_ptr<DeviceImpl> make_device(const LogicalGpuOptions& options) const = 0;
};

using PhysicalGpus = std::vector<std::shared_ptr<const PhysicalGpu>>;

// The real GPUs. Empty, without an error, if CUDA or its driver is missing.
PhysicalGpus discover_cuda();
PhysicalGpus emulated_gpus(int count, std::int64_t memory_mib);

}  // namespace tandem
