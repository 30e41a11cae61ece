// An emulated GPU: it has limited memory and a stream thread that runs the CPU kernels. Its memory
// belongs to the process, but host code must not access it, as with a real GPU.
#pragma once

#include <memory>
#include <mutex>

#include "device/bfc_allocator.h"
#include "device/emulated/emulated_stream.h"
#include "device/physical_gpu.h"

namespace tandem {

class EmulatedGpu final : public DeviceImpl {
 public:
  explicit EmulatedGpu(const LogicalGpuOptions& options);
  ~EmulatedGpu() override;

  Allocator& allocator() override { return allocator_; }
  Stream& stream() override { return stream_; }
  // Small copies are stored in the queue; larger ones block the host.
  void copy_from_host(void* device_memory, const void* host, std::size_t bytes) override;
  void copy_to_host(void* host, const void* device_memory, std::size_t bytes) override;
  Stream& start_copy_ahead() override;
  // All copies are stored in the queue.
  void copy_from_host_ahead(void* device_memory, const void* host, std::size_t bytes) override;
  void copy_from_peer(void* to, DeviceImpl& peer, const void* peer_memory,
                      std::size_t bytes) override;

 private:
  // Called when an allocation finds no room: frees idle memory and memory held by queued work.
  void make_room();

  EmulatedStream stream_;
  std::once_flag copies_ahead_;
  std::unique_ptr<EmulatedStream> copy_in_;  // created at its first use
  BfcAllocator allocator_;
};

}  // namespace tandem
