// A logical CPU: kernels run on the calling thread and its team, in the memory of the process.
#pragma once

#include "device/bfc_allocator.h"
#include "device/device.h"

namespace tandem {

// Runs work immediately on the calling thread.
class InlineStream final : public Stream {
 public:
  Execution execution() const override { return Execution::kInline; }
  void enqueue(std::function<void()> task) override { task(); }
  StreamEvent record() override { return StreamEvent(); }
  void wait(const StreamEvent& event) override { event.wait(); }
  void synchronize() override {}
};

// Each logical CPU has its own allocator, as GPUs do: replicas do not share a lock, and statistics
// are per device. Its limit is the host's memory; regions grow as needed.
class CpuDevice final : public DeviceImpl {
 public:
  CpuDevice(DeviceName name, int intra_op_threads);

  Allocator& allocator() override { return allocator_; }
  Stream& stream() override { return stream_; }
  void copy_from_host(void* device_memory, const void* host, std::size_t bytes) override;
  void copy_to_host(void* host, const void* device_memory, std::size_t bytes) override;
  Stream& start_copy_ahead() override { return stream_; }
  void copy_from_host_ahead(void* device_memory, const void* host, std::size_t bytes) override {
    copy_from_host(device_memory, host, bytes);
  }
  void copy_from_peer(void* to, DeviceImpl& peer, const void* peer_memory,
                      std::size_t bytes) override;

 private:
  InlineStream stream_;
  BfcAllocator allocator_;
};

// "AMD EPYC"; "CPU" if the system does not report the model.
std::string cpu_model_name();

}  // namespace tandem
