// Groups of ranks.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include <tandem_c.h>
#include "c/handles.h"
#include "tandem/comm.h"

namespace tandem::c {

// Ranks that train together. One collective at a time.
struct Group {
  comm::ProcessGroup group;
  std::mutex mutex;
};

// Keeps other threads from the group's collectives; null: nothing.
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

// Runs `local`, which returns `count` numbers, on every rank, and returns the numbers of all ranks.
// If it throws on a rank, each rank throws an error with the status of the first such rank. `group`
// may be null: this process alone. Collective.
std::vector<std::vector<double>> exchange(Group* group, const char* what, std::size_t count,
                                          const std::function<std::vector<double>()>& local);

}  // namespace tandem::c
