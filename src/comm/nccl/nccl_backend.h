// The backend for ranks with one GPU each, with NVIDIA NCCL.
#pragma once

#include <memory>

#include "comm/process/backend.h"
#include "comm/process/group_options.h"

namespace tandem {

struct NcclDevice {
  // The device of the buffers. A CUDA device: collectives are ordered with its stream. Another,
  // host-accessible device: its buffers are copied through pinned host memory.
  DeviceImpl* device = nullptr;
  // The CUDA device number of this rank's GPU; a GPU serves one rank only. Without a CUDA device it
  // may be the local rank; it is then taken modulo the number of GPUs.
  int gpu = 0;
};

// Whether this build has the backend and this host has the libraries.
bool has_nccl();

// Waits until every rank has called this. Throws DeadlineExceededError with the missing ranks;
// UnavailableError if there is no NCCL, CUDA driver or such a GPU; InvalidArgumentError for a
// device whose memory neither the host nor CUDA can access. The time limit also applies to each
// collective on the GPUs.
std::unique_ptr<Backend> make_nccl_backend(GroupOptions options, NcclDevice where);

}  // namespace tandem
