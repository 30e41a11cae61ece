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
  RankNames names = {};  // what errors call the group's ranks
  std::chrono::milliseconds time_limit = std::chrono::minutes(30);  // for all ranks to be there
  std::shared_ptr<const Membership> membership;                     // null: none is asked
};

// Waits until every rank has called this. Throws DeadlineExceededError naming the ranks that have
// not, UnavailableError when they are not on one host, ResourceExhaustedError when there is not
// enough shared memory: the same on every rank, as soon as one of them throws it.
std::unique_ptr<Backend> make_shm_backend(ShmOptions options);

// The bytes of /dev/shm that a group of `ranks` ranks needs; buffers use more where there is room.
std::size_t shm_group_bytes(int ranks);
// The free bytes of /dev/shm; 0 where the system does not report them.
std::size_t shm_free_bytes();

}  // namespace tandem
