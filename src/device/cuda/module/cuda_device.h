// A logical device on a real GPU.
#pragma once

#include <functional>

#include "device/bfc_allocator.h"
#include "device/cuda/module/cuda_stream.h"
#include "device/cuda/module/pinned_staging.h"
#include "device/physical_gpu.h"

namespace tandem::cuda {

// Makes the GPU's context, for which a few hundred MiB of its memory go, unless the process has it.
// Several logical devices may share a GPU: each has a stream and memory of its own.
class CudaDevice final : public Device {
 public:
  CudaDevice(int ordinal, const LogicalGpuOptions& options);

  Allocator& allocator() override { return allocator_; }
  Stream& stream() override { return stream_; }
  void copy_from_host(void* device_memory, const void* host, std::size_t bytes) override;
  void copy_to_host(void* host, const void* device_memory, std::size_t bytes) override;
  // Directly where the GPUs reach each other's memory, else through the host.
  void copy_from_peer(void* to, const void* peer_memory, std::size_t bytes) override;

  int ordinal() const { return ordinal_; }  // CUDA's number of the GPU
  int multiprocessors() const { return multiprocessors_; }
  Fault* fault() const { return stream_.fault(); }

 private:
  const int ordinal_;
  int multiprocessors_ = 0;
  PinnedStaging staging_;
  CudaStream stream_;
  BfcAllocator allocator_;
};

}  // namespace tandem::cuda
