// The backend for processes of one host, through shared memory.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "comm/membership.h"
#include "comm/process/backend.h"
#include "comm/store.h"

namespace tandem {

struct ShmOptions {
  std::shared_ptr<Store> store;  // through which the ranks find the segment
  std::string name;              // the group's name, the same on every rank and unique
  int rank = 0;
  int size = 1;
  RankNames names = {};  // the ranks' names in error messages
  std::chrono::milliseconds time_limit = std::chrono::minutes(30);  // until all ranks have joined
  std::shared_ptr<const Membership> membership;                     // null: not checked
};

// Waits until every rank has called this. Throws DeadlineExceededError with the missing ranks,
// UnavailableError if the ranks are on different hosts, ResourceExhaustedError if there is not
// enough shared memory. When one rank throws, all throw the same error at once.
std::unique_ptr<Backend> make_shm_backend(ShmOptions options);

// The bytes of /dev/shm that a group of `ranks` ranks needs. Buffers use more if there is room.
std::size_t shm_group_bytes(int ranks);
// The free bytes of /dev/shm; 0 if the system does not report them.
std::size_t shm_free_bytes();

}  // namespace tandem
