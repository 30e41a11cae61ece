#include "device/idle_memory.h"

#include <mutex>
#include <vector>

#include "core/mutex.h"

namespace tandem {
namespace {

// Never destroyed: caches may live until the process ends.
struct Registry {
  std::mutex mutex;
  const HeldAtFork held_at_fork{mutex};
  std::vector<std::weak_ptr<IdleMemory>> owners;
};

Registry& registry() {
  static auto* const instance = new Registry;
  return *instance;
}

}  // namespace

void register_idle_memory(const std::shared_ptr<IdleMemory>& memory) {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  std::erase_if(all.owners, [](const auto& owner) { return owner.expired(); });
  all.owners.push_back(memory);
}

void release_idle_memory(const DeviceImpl& device) {
  std::vector<std::shared_ptr<IdleMemory>> owners;
  {
    Registry& all = registry();
    const std::lock_guard lock(all.mutex);
    for (const auto& weak : all.owners)
      if (auto owner = weak.lock()) owners.push_back(std::move(owner));
  }
  for (const auto& owner : owners) owner->release(device);
}

}  // namespace tandem
