// Finds the physical devices before anything is initialised.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "device/physical_gpu.h"
#include "tandem/config.h"

namespace tandem {

inline constexpr int kMaxDeviceCount = 1024;  // of emulated GPUs and of logical CPUs
inline constexpr std::int64_t kMaxEmulatedMib = std::int64_t{1} << 30;

struct EmulatedGpuRequest {
  int count = 0;
  std::int64_t memory_mib = 4096;
  friend bool operator==(const EmulatedGpuRequest&, const EmulatedGpuRequest&) = default;
};

// Parses TANDEM_EMULATED_GPUS: "N" or "N:MiB". Throws InvalidArgumentError for anything else.
std::optional<EmulatedGpuRequest> emulated_gpus_from_environment();

// The number of `count` GPUs of one kind that CUDA_VISIBLE_DEVICES=`text` leaves visible. As in
// CUDA: the indices up to the first invalid one; none if an index appears twice.
int visible_count(std::string_view text, int count);

// The GPUs of `count` in a visible_device_list ("5,3"). Throws InvalidArgumentError.
std::vector<int> parse_device_list(std::string_view text, int count);

// The real GPUs; if there are none, the emulated ones, to which CUDA_VISIBLE_DEVICES applies as
// well.
PhysicalGpus discover_gpus(const std::optional<EmulatedGpuRequest>& request);

// "/physical_device:GPU:0"
config::PhysicalDevice physical_device(std::string_view type, int index);
// "/job:localhost/replica:0/task:0/device:GPU:0"
DeviceName local_device_name(std::string_view type, int id);

}  // namespace tandem
