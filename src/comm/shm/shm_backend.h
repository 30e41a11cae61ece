// Processes of one host that share memory.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "comm/membership.h"
#include "comm/process/backend.h"
#include "comm/store.h"

namespace tandem {

struct ShmOptions {
  std::shared_ptr<Store> store;  // where the ranks find each other's memory
  std::string name;              // of the group: the same on every rank, and no other group's
  int rank = 0;
  int size = 1;
  std::chrono::milliseconds time_limit = std::chrono::minutes(30);  // for all ranks to be there
  std::shared_ptr<const Membership> membership;                     // null: none is asked
};

// Waits until every rank has called this. Throws DeadlineExceededError naming the ranks that have
// not, UnavailableError when they are not on one host, ResourceExhaustedError when there is not
// enough shared memory.
std::unique_ptr<Backend> make_shm_backend(ShmOptions options);

}  // namespace tandem
