// Device memory that is freed by its owner's destructor.
#pragma once

#include <cstddef>
#include <memory>

#include "device/device.h"

namespace tandem {

// Null for 0 bytes. Throws ResourceExhaustedError, whose message says that `op` requested `what`.
std::shared_ptr<void> allocate_on(DeviceImpl& device, std::size_t bytes, const char* op,
                                  const char* what);
// For optional memory: returns null when none is free. The allocator then logs a warning.
std::shared_ptr<void> try_allocate_on(DeviceImpl& device, std::size_t bytes);

}  // namespace tandem
