// A rank that NCCL joins with others, and what of CUDA goes with it.
#pragma once

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <string>
#include <utility>

namespace tandem::nccl_backend {

// Throw UnavailableError, which names the call.
void check(cudaError_t result, const char* call);
void check(ncclResult_t result, const char* call);

// Makes the GPU the thread's. It stays so: to go back to a GPU that the thread never used, 0 until
// it says otherwise, would make a context there.
void use_gpu(int gpu);

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

// What `calls` calls of NCCL, as one.
template <class Calls>
void in_group(const Calls& calls) {
  check(ncclGroupStart(), "ncclGroupStart");
  try {
    calls();
  } catch (...) {
    ncclGroupEnd();
    throw;
  }
  check(ncclGroupEnd(), "ncclGroupEnd");
}

// A communicator whose calls do not wait, and the stream that it works on. Connections
// (connections.h) owns it and makes it safe for threads.
class Connection {
 public:
  // On `stream`, or null: one of its own. REQUIRES: the GPU is the thread's.
  Connection(int rank, int size, const ncclUniqueId& id, cudaStream_t stream);
  ~Connection();  // the communicator stays
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  int gpu() const { return gpu_; }
  cudaStream_t stream() const { return stream_; }
  ncclComm_t comm() const { return comm_; }
  // For whoever ends it; there is none from here on.
  ncclComm_t take_comm() { return std::exchange(comm_, nullptr); }
  // Whether NCCL is through with the last call. Throws AbortedError when a peer or the connection
  // has failed.
  bool ready() const;

 private:
  int gpu_ = 0;
  ncclComm_t comm_ = nullptr;
  cudaStream_t stream_;
  const bool owns_stream_;
};

std::string new_id();
ncclUniqueId id_of(const std::string& text);

}  // namespace tandem::nccl_backend
