// The GPUs of one process, a rank each, through NVIDIA's NCCL.
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

// Thread-safe. One that has failed is of no use any more.
class NcclClique {
 public:
  virtual ~NcclClique() = default;

  // What a rank gives and gets, as Collective has it, and when its device has computed that.
  struct Share {
    std::span<const Buffer> in, out;
    Event ready;
  };
  // Enqueues a collective, every rank's share on the communication stream of its device, all of
  // them or none: whoever has enqueued it waits for nobody. REQUIRES: those streams wait for what
  // is ready; NativeGpu::giving_to_several() is held since they do, and until what comes behind the
  // collective is recorded. Throws AbortedError when NCCL has failed, DeadlineExceededError when
  // the GPUs are not connected within the time limit.
  //
  // A collective that NCCL reports an error of later, or that has not ended within the time limit
  // of all GPUs' reaching it, is stopped. Whoever waits for one of the devices' stream() first gets
  // an AbortedError or DeadlineExceededError then: their memory holds anything.
  virtual void start(const Signature& signature, const Label& label,
                     std::span<const Share> shares) = 0;
  virtual bool failed() const = 0;
  // Throws such an error, if nobody has got it yet.
  virtual void check_untold() = 0;
};

// Why NCCL cannot join these devices: it wants several, each of them a GPU by itself. Empty: it
// can, or would if it were asked for what it says when it is used.
std::string why_no_nccl(std::span<Device* const> devices);

// Joins the GPUs; one for each list of GPUs, for whoever asks while it is in use and has not
// failed. Throws UnavailableError. REQUIRES: why_no_nccl() has nothing to say.
std::shared_ptr<NcclClique> nccl_clique(const std::vector<Device*>& devices,
                                        std::chrono::milliseconds time_limit);

// What the module gets.
struct NcclCliqueOptions {
  std::vector<NativeGpu*> gpus;  // by rank
  std::chrono::milliseconds time_limit;
};

}  // namespace tandem
