// What is said when a device's memory does not suffice.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "device/device.h"

namespace tandem {

// "12.5 MiB"
std::string mebibytes(std::int64_t bytes);

// "weights 1.0 MiB, activations 60.0 MiB": what is in use, the most first; "nothing" when none is.
std::string describe_by_tag(const BytesByTag& bytes);

// A device that has room for what another one has not.
struct Alternative {
  std::string device;
  std::int64_t free = 0;  // bytes
};

// What may help a program whose request for `bytes` was refused with these figures: "Try a smaller
// batch, ...".
std::string what_to_try(std::int64_t bytes, const AllocatorStats& stats,
                        const std::optional<Alternative>& alternative);

struct FailedRequest {
  std::string what;     // "tensor with shape (2, 3) and dtype float32"
  std::string_view op;  // who asked for it; may be empty
  std::size_t bytes = 0;
};

// Throws ResourceExhaustedError: what was asked for and where, the limit, what is in use by what,
// the peak, what is reserved, the largest free block, fragmentation, and what to try.
[[noreturn]] void throw_out_of_memory(Device& device, const FailedRequest& request);

}  // namespace tandem
