// An NCCL communicator of one rank, with its CUDA stream and events.
#pragma once

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <string>
#include <utility>

namespace tandem::nccl_backend {

// Throw UnavailableError, which names the call.
void check(cudaError_t result, const char* call);
void check(ncclResult_t result, const char* call);

// Makes the GPU the thread's current one, and leaves it so. Restoring GPU 0, which may be current
// only by default, would create a context there.
void use_gpu(int gpu);

// A CUDA event: a position in a stream's work.
class CudaEvent {
 public:
  CudaEvent();
  ~CudaEvent();
  CudaEvent(const CudaEvent&) = delete;
  CudaEvent& operator=(const CudaEvent&) = delete;
  void record(cudaStream_t stream);
  void hold(cudaStream_t stream) const;  // later work on the stream waits for the event
  bool passed() const;

 private:
  cudaEvent_t event_ = nullptr;
};

// Makes the NCCL calls in `calls` as one group.
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

// A non-blocking communicator, and the stream that it works on. Its owner, Connections
// (connections.h), makes it thread-safe.
class NcclConnection {
 public:
  // Uses `stream`, or a new one if it is null. REQUIRES: the GPU is current.
  NcclConnection(int rank, int size, const ncclUniqueId& id, cudaStream_t stream);
  ~NcclConnection();  // does not destroy the communicator
  NcclConnection(const NcclConnection&) = delete;
  NcclConnection& operator=(const NcclConnection&) = delete;

  int gpu() const { return gpu_; }
  cudaStream_t stream() const { return stream_; }
  ncclComm_t comm() const { return comm_; }
  // Transfers ownership to the caller, who must abort or finalise it.
  ncclComm_t take_comm() { return std::exchange(comm_, nullptr); }
  // Whether NCCL has processed the last call. Throws AbortedError if a peer or the connection has
  // failed.
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
