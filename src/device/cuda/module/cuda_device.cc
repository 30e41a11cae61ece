#include "device/cuda/module/cuda_device.h"

#include <memory>
#include <mutex>
#include <set>
#include <utility>

#include "core/env.h"
#include "device/cuda/module/check.h"
#include "device/cuda/module/cuda_graph.h"
#include "device/gpu_policy.h"
#include "device/idle_memory.h"

namespace tandem::cuda {
namespace {

// For a batch that waits in pinned memory until the GPU has finished the step before the previous
// one: 256 MiB.
constexpr std::size_t kPiecesAhead = 64;

// cudaFree waits for the work that uses the region.
class CudaMemory final : public RegionSource {
 public:
  explicit CudaMemory(int ordinal) : ordinal_(ordinal) {}
  void* take(std::size_t bytes) override {
    const std::lock_guard lock(NativeGpu::multi_gpu_launch_mutex());
    make_current(ordinal_);
    void* region = nullptr;
    const cudaError_t result = cudaMalloc(&region, bytes);
    if (result == cudaErrorMemoryAllocation) {
      cudaGetLastError();  // clears the error, which the allocator reports
      return nullptr;
    }
    check(result, "cudaMalloc");
    return region;
  }
  void give_back(void* region, std::size_t) noexcept override {
    const std::lock_guard lock(NativeGpu::multi_gpu_launch_mutex());
    cudaSetDevice(ordinal_);
    cudaFree(region);
  }

 private:
  const int ordinal_;
};

// The GPUs in use and their peer access.
class Peers {
 public:
  static Peers& get() {
    static auto* const peers = new Peers;
    return *peers;
  }

  // Enables peer access between a GPU and those in use, where possible.
  void join(int ordinal) {
    const std::lock_guard lock(mutex_);
    if (in_use_.contains(ordinal)) return;
    for (int peer : in_use_) {
      enable(ordinal, peer);
      enable(peer, ordinal);
    }
    in_use_.insert(ordinal);
  }
  bool reach(int ordinal, int peer) {
    const std::lock_guard lock(mutex_);
    return ordinal == peer || reached_.contains({ordinal, peer});
  }

 private:
  void enable(int gpu, int peer) {
    int can = 0;
    check(cudaDeviceCanAccessPeer(&can, gpu, peer), "cudaDeviceCanAccessPeer");
    if (can == 0) return;
    make_current(gpu);
    const cudaError_t result = cudaDeviceEnablePeerAccess(peer, 0);
    if (result == cudaErrorTooManyPeers) {
      cudaGetLastError();  // copies work in either case
      return;
    }
    if (result == cudaErrorPeerAccessAlreadyEnabled)
      cudaGetLastError();  // enabled by another library of the process
    else
      check(result, "cudaDeviceEnablePeerAccess");
    reached_.insert({gpu, peer});
  }

  std::mutex mutex_;
  std::set<int> in_use_;
  std::set<std::pair<int, int>> reached_;
};

// With blocking launches, no queued work uses freed memory. (AddressSanitizer sees kernels that run
// on the host in tests.)
BfcOptions allocator_options(const LogicalGpuOptions& options, const DeviceImpl& device) {
  BfcOptions result = gpu_allocator_options(options, [&device] { release_idle_memory(device); });
  result.poison_freed = env_bool("CUDA_LAUNCH_BLOCKING").value_or(false);
  return result;
}

}  // namespace

CudaDevice::CudaDevice(int ordinal, const LogicalGpuOptions& options)
    : NativeGpu(options.name, options.intra_op_threads, ordinal),
      staging_(ordinal),
      stream_(ordinal, options.priority),
      allocator_(allocator_options(options, *this), std::make_unique<CudaMemory>(ordinal)) {
  Peers::get().join(ordinal);
}

bool CudaDevice::reaches(const NativeGpu& peer) const {
  return Peers::get().reach(ordinal(), peer.ordinal());
}

// Other devices wait for its work, so it gets the highest priority.
Stream& CudaDevice::communication_stream() {
  std::call_once(communicates_, [this] {
    communication_ = std::make_unique<CudaStream>(ordinal(), kGpuPriorities.most_urgent);
  });
  return *communication_;
}

Stream& CudaDevice::start_copy_ahead() {
  StreamCapture::refuse("copies from the host");
  std::call_once(copies_ahead_, [this] {
    copy_in_ = std::make_unique<CudaStream>(ordinal(), kGpuPriorities.least_urgent);
    staging_ahead_ = std::make_unique<PinnedStaging>(ordinal(), kPiecesAhead);
  });
  copy_in_->wait(stream_.record());
  return *copy_in_;
}

void CudaDevice::copy_from_host_ahead(void* device_memory, const void* host, std::size_t bytes) {
  if (bytes > 0) staging_ahead_->copy_in(device_memory, host, bytes, *copy_in_);
}

void CudaDevice::read(void* host, const void* device_memory, std::size_t bytes,
                      const StreamEvent& written) {
  StreamCapture::refuse("copies to the host");
  std::call_once(reads_, [this] {
    copy_out_ = std::make_unique<CudaStream>(ordinal(), kGpuPriorities.most_urgent);
    staging_read_ = std::make_unique<PinnedStaging>(ordinal());
  });
  copy_out_->wait(written);
  if (bytes > 0) staging_read_->read(host, device_memory, bytes, *copy_out_);
  written.wait();  // the event has passed: throws earlier errors
}

std::unique_ptr<RecordedWork> CudaDevice::record_work(
    const std::function<void(void* native_stream)>& enqueue,
    std::unique_ptr<RecordedWork> earlier) {
  StreamCapture recording(ordinal());
  enqueue(recording.stream());
  const cudaGraph_t graph = recording.end();
  if (earlier && static_cast<CudaGraph&>(*earlier).update(graph)) return earlier;
  return std::make_unique<CudaGraph>(ordinal(), stream_.handle(), graph);
}

void CudaDevice::copy_from_host(void* device_memory, const void* host, std::size_t bytes) {
  StreamCapture::refuse("copies from the host");
  if (bytes > 0) staging_.copy_in(device_memory, host, bytes, stream_);
}

void CudaDevice::copy_to_host(void* host, const void* device_memory, std::size_t bytes) {
  StreamCapture::refuse("copies to the host");
  if (bytes > 0) staging_.copy_out(host, device_memory, bytes, stream_);
}

void CudaDevice::copy_from_peer(void* to, DeviceImpl&, const void* peer_memory, std::size_t bytes) {
  if (bytes == 0) return;
  make_current(ordinal());
  // CUDA finds the GPUs from the addresses.
  check(cudaMemcpyAsync(to, peer_memory, bytes, cudaMemcpyDefault, stream_.handle()),
        "cudaMemcpyAsync");
}

}  // namespace tandem::cuda
