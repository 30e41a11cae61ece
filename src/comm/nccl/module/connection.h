// Ranks that NCCL joins, and what of CUDA goes with it. NCCL's calls do not wait: whether the last
// one is through is asked before the next.
#pragma once

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <functional>
#include <optional>
#include <string>

namespace tandem::nccl_backend {

// Throw UnavailableError, which names the call.
void check(cudaError_t result, const char* call);
void check(ncclResult_t result, const char* call);

// Makes the GPU the thread's for a while.
class OnGpu {
 public:
  explicit OnGpu(int gpu);
  ~OnGpu();
  OnGpu(const OnGpu&) = delete;
  OnGpu& operator=(const OnGpu&) = delete;

 private:
  int before_ = 0;
};

// A point of a stream's work.
class Mark {
 public:
  Mark();
  ~Mark();
  Mark(const Mark&) = delete;
  Mark& operator=(const Mark&) = delete;
  void record(cudaStream_t stream);
  void hold(cudaStream_t stream) const;  // what is enqueued there from now on waits for it
  bool passed() const;

 private:
  cudaEvent_t event_ = nullptr;
};

class Connection {
 public:
  // On `stream`, or null: one of its own. REQUIRES: the GPU is the thread's, here and everywhere
  // below.
  Connection(int rank, int size, const ncclUniqueId& id, cudaStream_t stream = nullptr);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  ncclComm_t comm() const { return comm_; }
  cudaStream_t stream() const { return stream_; }
  // Whether NCCL is through with the last call. Throws AbortedError when a peer or the connection
  // has failed.
  bool ready();
  // Calls of NCCL, as one. REQUIRES: ready().
  void launch(const std::function<void(ncclComm_t, cudaStream_t)>& calls);
  // Ends what is under way, on this rank.
  void abort() noexcept;
  // Tells the peers that this rank goes; the destructor waits for them to go too.
  void part() noexcept;

 private:
  ncclComm_t comm_ = nullptr;
  cudaStream_t stream_;
  const bool owns_stream_;
  std::optional<ncclResult_t> parting_;  // what the goodbye gave
};

std::string new_id();
ncclUniqueId id_of(const std::string& text);

}  // namespace tandem::nccl_backend
