// A logical device on a real GPU.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <utility>

#include "device/bfc_allocator.h"
#include "device/cuda/module/cuda_stream.h"
#include "device/cuda/module/pinned_staging.h"
#include "device/native_gpu.h"
#include "device/physical_gpu.h"

namespace tandem::cuda {

// Creates the GPU's context, which takes a few hundred MiB of its memory, unless the process has
// one. Several logical devices may share a GPU; each has its own stream and memory.
class CudaDevice final : public NativeGpu {
 public:
  CudaDevice(int ordinal, const LogicalGpuOptions& options);

  Allocator& allocator() override { return allocator_; }
  Stream& stream() override { return stream_; }
  void copy_from_host(void* device_memory, const void* host, std::size_t bytes) override;
  void copy_to_host(void* host, const void* device_memory, std::size_t bytes) override;
  Stream& start_copy_ahead() override;
  void copy_from_host_ahead(void* device_memory, const void* host, std::size_t bytes) override;
  void read(void* host, const void* device_memory, std::size_t bytes,
            const StreamEvent& written) override;
  // Direct if the GPUs can access each other's memory, otherwise through the host.
  void copy_from_peer(void* to, DeviceImpl& peer, const void* peer_memory,
                      std::size_t bytes) override;

  // True for the same GPU, and for those with CUDA peer access.
  bool reaches(const NativeGpu& peer) const override;
  Stream& communication_stream() override;
  void fail_stream(std::shared_ptr<SharedFailure> failure) override {
    stream_.fail(std::move(failure));
  }
  std::unique_ptr<RecordedWork> record_work(const std::function<void(void* native_stream)>& enqueue,
                                            std::unique_ptr<RecordedWork> earlier) override;
  Fault* fault() const { return stream_.fault(); }

 private:
  PinnedStaging staging_;
  CudaStream stream_;
  // Created at their first use.
  std::once_flag communicates_, copies_ahead_, reads_;
  std::unique_ptr<PinnedStaging> staging_ahead_, staging_read_;
  std::unique_ptr<CudaStream> communication_, copy_in_, copy_out_;
  BfcAllocator allocator_;
};

}  // namespace tandem::cuda
