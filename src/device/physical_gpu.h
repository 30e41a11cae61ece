// What a GPU backend offers the device manager: the GPUs that it finds, each of which can be made
// into logical devices.
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
  std::optional<int> priority;  // of the stream; in the GPU's priority_range()
};

// Of streams, as in CUDA: the smaller the number, the more urgent.
struct PriorityRange {
  int most_urgent = 0;
  int least_urgent = 0;
};

class PhysicalGpu {
 public:
  virtual ~PhysicalGpu() = default;
  virtual config::DeviceDetails details() const = 0;
  // Bytes for a single logical device on this GPU. `fraction`: of the total memory; 0: all that is
  // available but the backend's reserve.
  virtual std::int64_t memory_limit(double fraction) const = 0;
  virtual PriorityRange priority_range() const = 0;
  virtual std::unique_ptr<Device> make_device(const LogicalGpuOptions& options) const = 0;
};

using PhysicalGpus = std::vector<std::shared_ptr<const PhysicalGpu>>;

// The real GPUs. None where CUDA or its driver is absent, which is no error.
PhysicalGpus discover_cuda();
PhysicalGpus emulated_gpus(int count, std::int64_t memory_mib);

}  // namespace tandem
