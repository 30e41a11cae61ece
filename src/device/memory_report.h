// The error report when a device runs out of memory.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "device/device.h"

namespace tandem {

// "weights 1.0 MiB, activations 60.0 MiB": the memory in use by tag, largest first; "nothing" if
// none.
std::string describe_by_tag(const BytesByTag& bytes);

// Another device that has enough free memory.
struct Alternative {
  std::string device;
  std::int64_t free = 0;  // bytes
};

// Suggestions after a request for `bytes` failed with these statistics: "Try a smaller batch, ...".
std::string what_to_try(std::int64_t bytes, const AllocatorStats& stats,
                        const std::optional<Alternative>& alternative);

struct FailedRequest {
  std::string what;     // "tensor with shape (2, 3) and dtype float32"
  std::string_view op;  // the requesting operation; may be empty
  std::size_t bytes = 0;
};

// Throws ResourceExhaustedError with the request, the device, the limit, memory in use by tag,
// peak, reserved memory, the largest free block, fragmentation, and suggestions.
[[noreturn]] void throw_out_of_memory(DeviceImpl& device, const FailedRequest& request);

}  // namespace tandem
