// Memory of a device that frees itself.
#pragma once

#include <cstddef>
#include <memory>

#include "device/device.h"

namespace tandem {

// Null for 0 bytes. Throws ResourceExhaustedError, in which `op` asked for `what`.
std::shared_ptr<void> allocate_on(Device& device, std::size_t bytes, const char* op,
                                  const char* what);
// The same for memory that the caller can do without: null where none is free, of which the
// allocator warns.
std::shared_ptr<void> try_allocate_on(Device& device, std::size_t bytes);

}  // namespace tandem
