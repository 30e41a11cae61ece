// The NCCL calls of one rank's part of a collective.
#pragma once

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <span>

#include "comm/communicator.h"
#include "comm/signature.h"

namespace tandem::nccl_backend {

inline std::size_t elements(const Buffer& buffer) { return static_cast<std::size_t>(buffer.count); }

ncclDataType_t type_of(DType dtype);

// Enqueues the part of rank `rank` on `stream`. `in` and `out`: see Collective; memory that the GPU
// can access. REQUIRES: inside ncclGroupStart and ncclGroupEnd; not a barrier and not a message.
void call_share(const Signature& signature, int rank, std::span<const Buffer> in,
                std::span<const Buffer> out, ncclComm_t comm, cudaStream_t stream);

}  // namespace tandem::nccl_backend
