// Reads device memory.
#pragma once

#include "device/device.h"

namespace tandem {

// Copies to host memory: after `written`, an event of the device, and concurrently with later work.
// A real GPU uses a separate stream. Complete on return; throws earlier errors.
void read_from(Device& from, void* to_memory, const void* from_memory, std::size_t bytes,
               const StreamEvent& written);

}  // namespace tandem
