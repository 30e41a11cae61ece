#include "comm/nccl/module/connection.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>

#include "core/status.h"

namespace tandem::nccl_backend {
namespace {

// NCCL has no status for memory that is used up: the message of its error says so.
bool is_out_of_memory(std::string_view text) {
  constexpr std::array<std::string_view, 3> kMessages = {"out of memory", "Cannot allocate memory",
                                                         "No space left on device"};
  return std::any_of(kMessages.begin(), kMessages.end(), [&](std::string_view part) {
    return text.find(part) != std::string_view::npos;
  });
}

}  // namespace

void check(cudaError_t result, const char* call) {
  if (result == cudaErrorMemoryAllocation) {
    cudaGetLastError();  // clears the error, so that the next call does not return it
    fail<ResourceExhaustedError>("[nccl] {}: {}", call, cudaGetErrorString(result));
  }
  if (result != cudaSuccess)
    fail<UnavailableError>("[nccl] {}: {}", call, cudaGetErrorString(result));
}

void check(ncclResult_t result, const char* call) {
  if (result == ncclSuccess || result == ncclInProgress) return;
  const char* const last = ncclGetLastError(nullptr);
  if ((result == ncclSystemError || result == ncclUnhandledCudaError) && is_out_of_memory(last))
    fail<ResourceExhaustedError>(
        "[nccl] {}: {} ({}): NCCL's buffers lie beside the memory that Tandem takes; leave it some "
        "of the GPU's with config::set_memory_growth() or a memory limit, and of /dev/shm",
        call, ncclGetErrorString(result), last);
  fail<UnavailableError>("[nccl] {}: {} ({})", call, ncclGetErrorString(result), last);
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
