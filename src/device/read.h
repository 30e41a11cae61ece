// Reading a device's memory.
#pragma once

#include "device/device.h"

namespace tandem {

// Copies to the host's memory: behind `written`, an event of the device, and beside what is
// enqueued later. A real GPU copies on a stream of its own. Complete on return; throws what failed
// before.
void read_from(Device& from, void* to_memory, const void* from_memory, std::size_t bytes,
               const Event& written);

}  // namespace tandem
