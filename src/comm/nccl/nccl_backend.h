// Ranks with a GPU each, through NVIDIA's NCCL.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "comm/membership.h"
#include "comm/process/backend.h"
#include "comm/store.h"

namespace tandem {

struct NcclOptions {
  std::shared_ptr<Store> store;  // where the ranks find each other
  std::string name;              // of the group: the same on every rank, and no other group's
  int rank = 0;
  int size = 1;
  RankNames names = {};  // what errors call the group's ranks
  // Whose buffers are moved, in the order of its stream: a CUDA device; another one's, when it is
  // host accessible, go through memory that is pinned for the GPU.
  Device* device = nullptr;
  // CUDA's number of this rank's GPU; every rank has one to itself. Without a CUDA device it may be
  // a rank's number on its host: GPUs are counted around.
  int gpu = 0;
  // For all ranks to be there; and for what GPUs are at while nobody waits for it.
  std::chrono::milliseconds time_limit = std::chrono::minutes(30);
  std::shared_ptr<const Membership> membership = nullptr;  // null: none is asked
};

// Whether this build has the backend, and this machine the libraries.
bool has_nccl();

// Waits until every rank has called this. Throws DeadlineExceededError naming the ranks that have
// not; UnavailableError when there is no NCCL, no CUDA driver or no such GPU; InvalidArgumentError
// for a device whose memory neither the host nor CUDA reaches.
std::unique_ptr<Backend> make_nccl_backend(NcclOptions options);

}  // namespace tandem
