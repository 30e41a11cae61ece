// A rank's part of a collective as calls of NCCL.
#pragma once

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <span>

#include "comm/communicator.h"
#include "comm/signature.h"

namespace tandem::nccl_backend {

ncclDataType_t type_of(DType dtype);

// Enqueues what rank `rank` does in a collective, on `stream`. `in`, `out`: as Collective has them,
// in memory that the GPU reaches. REQUIRES: within a group of NCCL's; no barrier and no message.
void call_share(const Signature& signature, int rank, std::span<const Buffer> in,
                std::span<const Buffer> out, ncclComm_t comm, cudaStream_t stream);

}  // namespace tandem::nccl_backend
