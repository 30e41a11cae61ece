// Memory that is kept on devices between uses, and that its owner can do without.
#pragma once

#include <memory>

#include "device/device.h"

namespace tandem {

class IdleMemory {
 public:
  virtual ~IdleMemory() = default;
  // Frees what is kept on the device and not in use. Any thread may call this, also one that waits
  // for memory, so it must not wait for those that use some.
  virtual void release(const Device& device) = 0;
};

// From now on, as long as it lives, its memory is freed when a device runs out, and by
// config::trim_memory().
void register_idle_memory(const std::shared_ptr<IdleMemory>& memory);

// Frees the idle memory of all owners.
void release_idle_memory(const Device& device);

}  // namespace tandem
