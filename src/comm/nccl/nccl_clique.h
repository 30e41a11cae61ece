// The GPUs of one process, one rank per GPU, joined by NVIDIA NCCL.
#pragma once

#include <chrono>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "comm/signature.h"
#include "device/native_gpu.h"

namespace tandem {

// Thread-safe. Unusable once it has failed.
class NcclClique {
 public:
  virtual ~NcclClique() = default;

  // A rank's inputs and outputs, as in Collective, and the event after which the inputs are ready.
  struct RankBuffers {
    std::span<const Buffer> in, out;
    StreamEvent ready;
  };
  // Enqueues a collective: every rank's part on the communication stream of its device, all of them
  // or none. Does not wait. Throws AbortedError if NCCL has failed, DeadlineExceededError if the
  // GPUs are not connected within the time limit. REQUIRES: those streams already wait for `ready`;
  // NativeGpu::multi_gpu_launch_mutex() was locked before that, and stays locked until the work
  // that follows the collective is recorded.
  //
  // A collective is stopped if NCCL reports an error for it later, or if it has not ended within
  // the time limit after all GPUs have reached it. The first wait on one of the devices' stream()
  // then throws AbortedError or DeadlineExceededError, and the results are undefined.
  virtual void start(const Signature& signature, const Label& label,
                     std::span<const RankBuffers> shares) = 0;
  virtual bool failed() const = 0;
  // Throws the error of a stopped collective, unless it was reported to a caller already.
  virtual void check_unreported() = 0;
};

// The reason why NCCL cannot join these devices: it needs several, each of them a separate GPU.
// Empty if it can, as far as is known before NCCL is loaded.
std::string why_no_nccl(std::span<DeviceImpl* const> devices);

// Joins the GPUs. Calls for the same list of GPUs share one object while it is in use and has not
// failed. Throws UnavailableError. REQUIRES: why_no_nccl() is empty.
std::shared_ptr<NcclClique> nccl_clique(const std::vector<DeviceImpl*>& devices,
                                        std::chrono::milliseconds time_limit);

// The arguments of the module.
struct NcclCliqueOptions {
  std::vector<NativeGpu*> gpus;  // by rank
  std::chrono::milliseconds time_limit;
};

}  // namespace tandem
