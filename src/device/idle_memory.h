// Caches of device memory that can be released when memory runs out.
#pragma once

#include <memory>

#include "device/device.h"

namespace tandem {

class IdleMemory {
 public:
  virtual ~IdleMemory() = default;
  // Frees the memory on `device` that is cached and unused. May be called on any thread, including
  // one that waits for memory, so it must not wait for users of the memory.
  virtual void release(const DeviceImpl& device) = 0;
};

// While the object lives, its memory is released when a device runs out, and by
// config::trim_memory().
void register_idle_memory(const std::shared_ptr<IdleMemory>& memory);

// Releases the idle memory of all caches.
void release_idle_memory(const DeviceImpl& device);

}  // namespace tandem
