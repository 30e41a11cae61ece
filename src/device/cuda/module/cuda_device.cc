#include "device/cuda/module/cuda_device.h"

#include <memory>
#include <mutex>
#include <set>

#include "core/env.h"
#include "device/cuda/module/check.h"
#include "device/gpu_policy.h"

namespace tandem::cuda {
namespace {

// cudaFree waits for the work that uses the region.
class CudaMemory final : public RegionSource {
 public:
  explicit CudaMemory(int ordinal) : ordinal_(ordinal) {}
  void* take(std::size_t bytes) override {
    make_current(ordinal_);
    void* region = nullptr;
    const cudaError_t result = cudaMalloc(&region, bytes);
    if (result == cudaErrorMemoryAllocation) {
      cudaGetLastError();  // the allocator reports it; not to be kept for the next call
      return nullptr;
    }
    check(result, "cudaMalloc");
    return region;
  }
  void give_back(void* region, std::size_t) noexcept override {
    cudaSetDevice(ordinal_);
    cudaFree(region);
  }

 private:
  const int ordinal_;
};

// Lets the GPUs in use read each other's memory where they can.
void join_peers(int ordinal) {
  static std::mutex mutex;
  static std::set<int>* const in_use = new std::set<int>;
  const std::lock_guard lock(mutex);
  if (in_use->contains(ordinal)) return;
  const auto enable = [](int gpu, int peer) {
    int can = 0;
    check(cudaDeviceCanAccessPeer(&can, gpu, peer), "cudaDeviceCanAccessPeer");
    if (can == 0) return;
    make_current(gpu);
    const cudaError_t result = cudaDeviceEnablePeerAccess(peer, 0);
    if (result == cudaErrorPeerAccessAlreadyEnabled || result == cudaErrorTooManyPeers) {
      cudaGetLastError();  // copies work either way
      return;
    }
    check(result, "cudaDeviceEnablePeerAccess");
  };
  for (int peer : *in_use) {
    enable(ordinal, peer);
    enable(peer, ordinal);
  }
  in_use->insert(ordinal);
}

// Where launches block, nothing that is queued uses what is freed. (The address sanitizer sees kernels
// that run on the host, as in tests.)
BfcOptions allocator_options(const LogicalGpuOptions& options) {
  BfcOptions result = gpu_allocator_options(options);
  result.poison_freed = env_bool("CUDA_LAUNCH_BLOCKING").value_or(false);
  return result;
}

}  // namespace

CudaDevice::CudaDevice(int ordinal, const LogicalGpuOptions& options)
    : Device(options.name, DeviceBackend::kCuda, options.intra_op_threads),
      ordinal_(ordinal),
      staging_(ordinal),
      stream_(ordinal, options.priority),
      allocator_(allocator_options(options), std::make_unique<CudaMemory>(ordinal)) {
  check(cudaDeviceGetAttribute(&multiprocessors_, cudaDevAttrMultiProcessorCount, ordinal),
        "cudaDeviceGetAttribute");
  join_peers(ordinal);
}

void CudaDevice::copy_from_host(void* device_memory, const void* host, std::size_t bytes) {
  if (bytes > 0) staging_.copy_in(device_memory, host, bytes, stream_);
}

void CudaDevice::copy_to_host(void* host, const void* device_memory, std::size_t bytes) {
  if (bytes > 0) staging_.copy_out(host, device_memory, bytes, stream_);
}

void CudaDevice::copy_from_peer(void* to, const void* peer_memory, std::size_t bytes) {
  if (bytes == 0) return;
  make_current(ordinal_);
  // Addresses tell CUDA which GPUs they are of.
  check(cudaMemcpyAsync(to, peer_memory, bytes, cudaMemcpyDefault, stream_.handle()),
        "cudaMemcpyAsync");
}

}  // namespace tandem::cuda
