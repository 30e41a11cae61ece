// A logical CPU: kernels run on the calling thread and its team, memory is the process's.
#pragma once

#include "device/bfc_allocator.h"
#include "device/device.h"

namespace tandem {

// Work runs at once, on the calling thread.
class InlineStream final : public Stream {
 public:
  Execution execution() const override { return Execution::kInline; }
  void enqueue(std::function<void()> task) override { task(); }
  Event record() override { return Event(); }
  void wait(const Event& event) override { event.wait(); }
  void synchronize() override {}
};

// Each logical CPU has an allocator of its own, as GPUs have: replicas do not meet on its lock, and
// statistics are a device's. Its limit is the machine's memory, its regions grow as needed.
class CpuDevice final : public Device {
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
  void copy_from_peer(void* to, const void* peer_memory, std::size_t bytes) override;

 private:
  InlineStream stream_;
  BfcAllocator allocator_;
};

// "AMD EPYC"; "CPU" where the system does not tell.
std::string cpu_model_name();

}  // namespace tandem
