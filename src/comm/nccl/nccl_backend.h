// The backend for ranks with one GPU each, with NVIDIA NCCL.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "comm/membership.h"
#include "comm/process/backend.h"
#include "comm/store.h"

namespace tandem {

struct NcclOptions {
  std::shared_ptr<Store> store;  // through which the ranks find each other
  std::string name;              // the group's name, the same on every rank and unique
  int rank = 0;
  int size = 1;
  RankNames names = {};  // the ranks' names in error messages
  // The device of the buffers. A CUDA device: collectives are ordered with its stream. Another,
  // host-accessible device: its buffers are copied through pinned host memory.
  DeviceImpl* device = nullptr;
  // The CUDA device number of this rank's GPU; a GPU serves one rank only. Without a CUDA device it
  // may be the local rank; it is then taken modulo the number of GPUs.
  int gpu = 0;
  // Until all ranks have joined, and for each collective on the GPUs.
  std::chrono::milliseconds time_limit = std::chrono::minutes(30);
  std::shared_ptr<const Membership> membership = nullptr;  // null: not checked
};

// Whether this build has the backend and this host has the libraries.
bool has_nccl();

// Waits until every rank has called this. Throws DeadlineExceededError with the missing ranks;
// UnavailableError if there is no NCCL, CUDA driver or such a GPU; InvalidArgumentError for a
// device whose memory neither the host nor CUDA can access.
std::unique_ptr<Backend> make_nccl_backend(NcclOptions options);

}  // namespace tandem
