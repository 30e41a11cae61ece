// An emulated GPU: bounded memory of its own and a stream thread, on which the CPU's kernels run.
// Its memory is the process's, but host code must not read it, as it could not on a real GPU.
#pragma once

#include "device/bfc_allocator.h"
#include "device/emulated/emulated_stream.h"
#include "device/physical_gpu.h"

namespace tandem {

class EmulatedGpu final : public Device {
 public:
  explicit EmulatedGpu(const LogicalGpuOptions& options);
  ~EmulatedGpu() override { stream_.drain(); }  // the work at hand may free memory

  Allocator& allocator() override { return allocator_; }
  Stream& stream() override { return stream_; }
  // Small pieces are kept in the queue; larger ones are waited for.
  void copy_from_host(void* device_memory, const void* host, std::size_t bytes) override;
  void copy_to_host(void* host, const void* device_memory, std::size_t bytes) override;
  void copy_from_peer(void* to, const void* peer_memory, std::size_t bytes) override;

 private:
  EmulatedStream stream_;
  BfcAllocator allocator_;
};

}  // namespace tandem
