#include "comm/nccl/module/connection.h"

#include <cstring>

#include "core/status.h"

namespace tandem::nccl_backend {

void check(cudaError_t result, const char* call) {
  if (result != cudaSuccess)
    fail<UnavailableError>("[nccl] {}: {}", call, cudaGetErrorString(result));
}

void check(ncclResult_t result, const char* call) {
  if (result != ncclSuccess && result != ncclInProgress)
    fail<UnavailableError>("[nccl] {}: {} ({})", call, ncclGetErrorString(result),
                           ncclGetLastError(nullptr));
}

void use_gpu(int gpu) { check(cudaSetDevice(gpu), "cudaSetDevice"); }

CudaEvent::CudaEvent() {
  check(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "cudaEventCreate");
}

CudaEvent::~CudaEvent() { cudaEventDestroy(event_); }

void CudaEvent::record(cudaStream_t stream) {
  check(cudaEventRecord(event_, stream), "cudaEventRecord");
}

void CudaEvent::hold(cudaStream_t stream) const {
  check(cudaStreamWaitEvent(stream, event_, 0), "cudaStreamWaitEvent");
}

bool CudaEvent::passed() const {
  const cudaError_t result = cudaEventQuery(event_);
  if (result == cudaErrorNotReady) {
    // not ready is not an error: clears it, so that the next call does not return it
    cudaGetLastError();
    return false;
  }
  check(result, "cudaEventQuery");
  return true;
}

NcclConnection::NcclConnection(int rank, int size, const ncclUniqueId& id, cudaStream_t stream)
    : stream_(stream), owns_stream_(!stream) {
  check(cudaGetDevice(&gpu_), "cudaGetDevice");
  if (owns_stream_)
    check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreate");
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  const ncclResult_t result = ncclCommInitRankConfig(&comm_, size, id, rank, &config);
  if (result == ncclSuccess || result == ncclInProgress) return;
  if (owns_stream_) cudaStreamDestroy(stream_);
  check(result, "ncclCommInitRankConfig");
}

NcclConnection::~NcclConnection() {
  if (owns_stream_) cudaStreamDestroy(stream_);
}

bool NcclConnection::ready() const {
  ncclResult_t state = ncclSuccess;
  check(ncclCommGetAsyncError(comm_, &state), "ncclCommGetAsyncError");
  if (state != ncclSuccess && state != ncclInProgress)
    fail<AbortedError>("[nccl] {} ({})", ncclGetErrorString(state), ncclGetLastError(comm_));
  return state == ncclSuccess;
}

std::string new_id() {
  ncclUniqueId id;
  check(ncclGetUniqueId(&id), "ncclGetUniqueId");
  return {id.internal, sizeof(id.internal)};
}

ncclUniqueId id_of(const std::string& text) {
  ncclUniqueId id;
  if (text.size() != sizeof(id.internal))
    fail<UnavailableError>("[nccl] the store does not contain an NCCL id");
  std::memcpy(id.internal, text.data(), sizeof(id.internal));
  return id;
}

}  // namespace tandem::nccl_backend
