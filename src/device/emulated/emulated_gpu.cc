#include "device/emulated/emulated_gpu.h"

#include <cstring>
#include <utility>

#include "device/busy_share.h"
#include "device/gpu_policy.h"
#include "device/idle_memory.h"
#include "device/mmap_memory.h"

namespace tandem {
namespace {

// Regions are released in stream order, because earlier work may still use them. Taking one costs
// nothing until its pages are touched.
class EmulatedMemory final : public RegionSource {
 public:
  explicit EmulatedMemory(EmulatedStream& stream) : stream_(stream) {}
  void* take(std::size_t bytes) override { return map_memory(bytes); }
  void give_back(void* region, std::size_t bytes) noexcept override {
    stream_.enqueue_at_once([region, bytes] { unmap_memory(region, bytes); });
  }

 private:
  EmulatedStream& stream_;
};

// Copies the host's current contents when it is called.
std::function<void()> kept_copy(void* to, const void* from, std::size_t bytes) {
  const std::shared_ptr<std::byte[]> kept(new std::byte[bytes]);
  std::memcpy(kept.get(), from, bytes);
  return [=] { std::memcpy(to, kept.get(), bytes); };
}

class PhysicalEmulatedGpu final : public PhysicalGpu {
 public:
  explicit PhysicalEmulatedGpu(std::int64_t memory) : memory_(memory) {}
  config::DeviceDetails details() const override {
    return {.device_name = "Emulated GPU", .memory_bytes = memory_, .emulated = true};
  }
  // No reserve: nothing else uses this memory.
  std::int64_t memory_limit(double fraction) const override {
    if (fraction == 0.0) return memory_;
    return static_cast<std::int64_t>(static_cast<double>(memory_) * fraction);
  }
  // Host threads have no priorities: all values are accepted and ignored.
  PriorityRange priority_range() const override { return kGpuPriorities; }
  std::unique_ptr<DeviceImpl> make_device(const LogicalGpuOptions& options) const override {
    return std::make_unique<EmulatedGpu>(options);
  }

 private:
  std::int64_t memory_;
};

}  // namespace

EmulatedGpu::EmulatedGpu(const LogicalGpuOptions& options)
    : DeviceImpl(options.name, DeviceBackend::kEmulatedGpu, options.intra_op_threads),
      stream_(options.intra_op_threads, "tandem-gpu" + std::to_string(index() % 10000)),
      allocator_(gpu_allocator_options(
                     options, [this] { make_room(); }, stream_.thread_id()),
                 std::make_unique<EmulatedMemory>(stream_)) {}

EmulatedGpu::~EmulatedGpu() {
  if (copy_in_) copy_in_->drain();
  stream_.drain();  // the current work may free memory
}

void EmulatedGpu::make_room() {
  release_idle_memory(*this);
  stream_.drain();
}

void EmulatedGpu::copy_from_host(void* device_memory, const void* host, std::size_t bytes) {
  if (bytes == 0) return;
  if (bytes > kKeptInQueue) {
    stream_.enqueue([=] { std::memcpy(device_memory, host, bytes); });
    stream_.record().wait();
    return;
  }
  stream_.enqueue(kept_copy(device_memory, host, bytes), bytes);
}

Stream& EmulatedGpu::start_copy_ahead() {
  std::call_once(copies_ahead_, [this] {
    copy_in_ = std::make_unique<EmulatedStream>(1, "tandem-copy" + std::to_string(index() % 1000));
  });
  copy_in_->follow(stream_);
  return *copy_in_;
}

void EmulatedGpu::copy_from_host_ahead(void* device_memory, const void* host, std::size_t bytes) {
  if (bytes > 0) copy_in_->enqueue(kept_copy(device_memory, host, bytes), bytes);
}

void EmulatedGpu::copy_to_host(void* host, const void* device_memory, std::size_t bytes) {
  if (bytes == 0) return;
  stream_.enqueue([=] { std::memcpy(host, device_memory, bytes); });
}

void EmulatedGpu::copy_from_peer(void* to, DeviceImpl&, const void* peer_memory,
                                 std::size_t bytes) {
  if (bytes == 0) return;
  stream_.enqueue([=] { std::memcpy(to, peer_memory, bytes); });
}

std::optional<double> busy_share(DeviceImpl& device) {
  if (device.backend() != DeviceBackend::kEmulatedGpu) return std::nullopt;
  return static_cast<EmulatedStream&>(device.stream()).busy_share();
}

void reset_busy_share(DeviceImpl& device) {
  if (device.backend() == DeviceBackend::kEmulatedGpu)
    static_cast<EmulatedStream&>(device.stream()).reset_busy_share();
}

PhysicalGpus emulated_gpus(int count, std::int64_t memory_mib) {
  PhysicalGpus gpus;
  for (int i = 0; i < count; ++i)
    gpus.push_back(std::make_shared<PhysicalEmulatedGpu>(memory_mib << 20));
  return gpus;
}

}  // namespace tandem
