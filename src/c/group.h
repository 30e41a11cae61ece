// Groups of ranks.
#pragma once

#include <memory>
#include <optional>

#include <tandem_c.h>
#include "c/handles.h"
#include "tandem/comm.h"

namespace tandem::c {

// Ranks that train together. One collective at a time.
struct Group {
  comm::ProcessGroup group;
  std::mutex mutex;
};

// Keeps other threads from the group's collectives; null: nothing. Taken after the locks of models,
// and before those of windows.
class CollectiveLock {
 public:
  explicit CollectiveLock(Group* group) {
    if (group) lock_ = std::unique_lock(group->mutex);
  }

 private:
  std::unique_lock<std::mutex> lock_;
};

// Handles of groups.
Handles<tandem_group, Group>& groups();

// The ranks of a group; null: none.
std::optional<comm::ProcessGroup> ranks_of(const std::shared_ptr<Group>& group);

}  // namespace tandem::c
