// An emulated GPU: bounded memory of its own and a stream thread, on which the CPU's kernels run.
// Its memory is the process's, but host code must not read it, as it could not on a real GPU.
#pragma once

#include <memory>
#include <mutex>

#include "device/bfc_allocator.h"
#include "device/emulated/emulated_stream.h"
#include "device/physical_gpu.h"

namespace tandem {

class EmulatedGpu final : public Device {
 public:
  explicit EmulatedGpu(const LogicalGpuOptions& options);
  ~EmulatedGpu() override;

  Allocator& allocator() override { return allocator_; }
  Stream& stream() override { return stream_; }
  // Small pieces are kept in the queue; larger ones are waited for.
  void copy_from_host(void* device_memory, const void* host, std::size_t bytes) override;
  void copy_to_host(void* host, const void* device_memory, std::size_t bytes) override;
  Stream& start_copy_ahead() override;
  // All is kept in the queue.
  void copy_from_host_ahead(void* device_memory, const void* host, std::size_t bytes) override;
  void copy_from_peer(void* to, const void* peer_memory, std::size_t bytes) override;

 private:
  // For an allocation that finds no room: frees what nobody uses, and what queued work holds.
  void make_room();

  EmulatedStream stream_;
  std::once_flag copies_ahead_;
  std::unique_ptr<EmulatedStream> copy_in_;  // made when it is first used
  BfcAllocator allocator_;
};

}  // namespace tandem
