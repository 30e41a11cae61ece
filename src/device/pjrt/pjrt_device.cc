#include "device/pjrt/pjrt_device.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <unordered_map>

#include "core/status.h"
#include "device/idle_memory.h"
#include "device/mmap_memory.h"

namespace tandem {

// --- contents ---

std::size_t PjrtContents::bytes_of(DType dtype, const Shape& shape) {
  return static_cast<std::size_t>(shape.num_elements()) * size_of(dtype);
}

void PjrtContents::download(Tensor& tensor) {
  if (tensor.host) return;
  const std::size_t all = bytes_of(tensor.buffer->dtype(), tensor.buffer->shape());
  auto host = std::make_shared<std::vector<std::byte>>(all);
  tensor.buffer->to_host(host->data(), host->size());
  tensor.host = std::move(host);
}

PjrtContents::Tensors::iterator PjrtContents::first_of(const std::byte* begin) {
  auto at = tensors_.upper_bound(const_cast<std::byte*>(begin));
  if (at != tensors_.begin() && std::prev(at)->first + std::prev(at)->second.bytes > begin) --at;
  return at;
}

PjrtContents::Tensor* PjrtContents::whole(const std::byte* begin, std::size_t bytes) {
  const auto found = tensors_.find(const_cast<std::byte*>(begin));
  if (found == tensors_.end()) return nullptr;
  const Tensor& tensor = found->second;
  return tensor.bytes == bytes && !tensor.is_part ? &found->second : nullptr;
}

// Cuts the range off from the tensors there: a part of a tensor may be written, or the place of a
// dead one, because programs reuse the memory of values.
void PjrtContents::erase_locked(std::byte* begin, std::size_t bytes) {
  std::byte* const end = begin + bytes;
  auto at = first_of(begin);
  while (at != tensors_.end() && at->first < end) {
    std::byte* const cut = at->first;
    Tensor before = std::move(at->second), after = before;
    std::byte* const cut_end = cut + before.bytes;
    at = tensors_.erase(at);
    before.is_part = after.is_part = true;
    if (cut < begin) {
      before.bytes = static_cast<std::size_t>(begin - cut);
      tensors_.emplace(cut, std::move(before));
    }
    if (cut_end > end) {
      after.bytes = static_cast<std::size_t>(cut_end - end);
      after.offset += static_cast<std::size_t>(end - cut);
      at = std::next(tensors_.emplace(end, std::move(after)).first);
    }
  }
}

void PjrtContents::erase(std::byte* begin, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  erase_locked(begin, bytes);
}

void PjrtContents::put(std::byte* at, Tensor tensor) {
  erase_locked(at, tensor.bytes);
  tensors_.emplace(at, std::move(tensor));
}

void PjrtContents::write(std::byte* to, const void* host, std::size_t bytes) {
  if (bytes == 0) return;
  const std::lock_guard lock(mutex_);
  const auto* from = static_cast<const std::byte*>(host);
  put(to, {.bytes = bytes, .host = std::make_shared<std::vector<std::byte>>(from, from + bytes)});
}

void PjrtContents::read_locked(void* host, const std::byte* from, std::size_t bytes) {
  auto* const to = static_cast<std::byte*>(host);
  const std::byte *at = from, *const end = from + bytes;
  for (auto next = first_of(from); at < end; ++next) {
    if (next == tensors_.end() || next->first > at)
      fail<InternalError>(
          "[PJRT] {} bytes of a device's memory are read, and nothing has written all of them",
          bytes);
    Tensor& tensor = next->second;
    download(tensor);
    const std::byte* const upto = std::min<const std::byte*>(next->first + tensor.bytes, end);
    std::memcpy(to + (at - from), tensor.host->data() + tensor.offset + (at - next->first),
                static_cast<std::size_t>(upto - at));
    at = upto;
  }
}

void PjrtContents::read(void* host, const std::byte* from, std::size_t bytes) {
  if (bytes == 0) return;
  const std::lock_guard lock(mutex_);
  read_locked(host, from, bytes);
}

void PjrtContents::copy(std::byte* to, PjrtContents& peer, const std::byte* from,
                        std::size_t bytes) {
  if (bytes == 0) return;
  Tensor shared{.bytes = bytes};
  {
    const std::lock_guard lock(peer.mutex_);
    if (Tensor* const tensor = peer.whole(from, bytes)) {
      if (&peer != this) download(*tensor);
      shared = *tensor;
    } else {
      shared.host = std::make_shared<std::vector<std::byte>>(bytes);
      peer.read_locked(shared.host->data(), from, bytes);
    }
  }
  if (&peer != this) shared.buffer = nullptr;
  const std::lock_guard lock(mutex_);
  put(to, std::move(shared));
}

std::shared_ptr<pjrt::Buffer> PjrtContents::buffer(std::byte* at, DType dtype, const Shape& shape) {
  const std::size_t bytes = bytes_of(dtype, shape);
  const std::lock_guard lock(mutex_);
  if (Tensor* const tensor = bytes > 0 ? whole(at, bytes) : nullptr) {
    const bool suits =
        tensor->buffer && tensor->buffer->dtype() == dtype && tensor->buffer->shape() == shape;
    if (suits) return tensor->buffer;
    download(*tensor);
    tensor->buffer = client_->from_host(tensor->host->data(), dtype, shape, device_, tensor->host);
    return tensor->buffer;
  }
  auto host = std::make_shared<std::vector<std::byte>>(std::max<std::size_t>(bytes, 1));
  if (bytes > 0) read_locked(host->data(), at, bytes);
  return client_->from_host(host->data(), dtype, shape, device_, host);
}

std::shared_ptr<pjrt::Buffer> PjrtContents::take(std::byte* at, DType dtype, const Shape& shape) {
  std::shared_ptr<pjrt::Buffer> taken = buffer(at, dtype, shape);
  erase(at, bytes_of(dtype, shape));
  return taken;
}

void PjrtContents::set(std::byte* at, std::shared_ptr<pjrt::Buffer> buffer) {
  const std::size_t bytes = bytes_of(buffer->dtype(), buffer->shape());
  if (bytes == 0) return;
  const std::lock_guard lock(mutex_);
  put(at, {.bytes = bytes, .buffer = std::move(buffer)});
}

// --- memory ---

namespace {

// Addresses that have no memory: any access is an error.
class ReservedAddresses final : public RegionSource {
 public:
  void* take(std::size_t bytes) override {
    void* const region =
        mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return region == MAP_FAILED ? nullptr : region;
  }
  void give_back(void* region, std::size_t bytes) noexcept override { munmap(region, bytes); }
};

}  // namespace

// Counts and places the tensors, and drops their contents when they are freed.
class PjrtDevice::Memory final : public Allocator {
 public:
  Memory(PjrtDevice& device, std::int64_t limit)
      : device_(device),
        addresses_({.name = fmt::format("TPU_{}_bfc", device.index()),
                    .total_bytes = static_cast<std::size_t>(limit),
                    .drain = [this] { release_idle_memory(device_); }},
                   std::make_unique<ReservedAddresses>()) {}

  const std::string& name() const override { return addresses_.name(); }
  void* allocate(std::size_t bytes) override { return note(addresses_.allocate(bytes), bytes); }
  void* try_allocate(std::size_t bytes) override {
    return note(addresses_.try_allocate(bytes), bytes);
  }
  void deallocate(void* memory) noexcept override {
    if (!memory) return;
    std::size_t bytes = 0;
    {
      const std::lock_guard lock(mutex_);
      const auto found = sizes_.find(memory);
      if (found != sizes_.end()) bytes = found->second;
      sizes_.erase(memory);
    }
    device_.contents_.erase(static_cast<std::byte*>(memory), bytes);
    addresses_.deallocate(memory);
  }
  AllocatorStats stats() const override { return addresses_.stats(); }
  void reset_peak() override { addresses_.reset_peak(); }
  std::size_t trim() override { return addresses_.trim(); }

 private:
  void* note(void* memory, std::size_t bytes) {
    if (!memory) return nullptr;
    const std::lock_guard lock(mutex_);
    sizes_[memory] = bytes;
    return memory;
  }

  PjrtDevice& device_;
  BfcAllocator addresses_;
  std::mutex mutex_;
  std::unordered_map<void*, std::size_t> sizes_;  // of the blocks in use
};

PjrtDevice::PjrtDevice(const PjrtDeviceOptions& options)
    : DeviceImpl(options.name, DeviceBackend::kPjrt, options.intra_op_threads),
      client_(options.client),
      client_index_(options.client_index),
      contents_(options.client, options.client_index),
      memory_(std::make_unique<Memory>(*this, options.memory_limit)) {}

PjrtDevice::~PjrtDevice() = default;

Allocator& PjrtDevice::allocator() { return *memory_; }

void PjrtDevice::copy_from_host(void* device_memory, const void* host, std::size_t bytes) {
  contents_.write(static_cast<std::byte*>(device_memory), host, bytes);
}

void PjrtDevice::copy_to_host(void* host, const void* device_memory, std::size_t bytes) {
  contents_.read(host, static_cast<const std::byte*>(device_memory), bytes);
}

void PjrtDevice::copy_from_peer(void* to, DeviceImpl& peer, const void* peer_memory,
                                std::size_t bytes) {
  contents_.copy(static_cast<std::byte*>(to), static_cast<PjrtDevice&>(peer).contents_,
                 static_cast<const std::byte*>(peer_memory), bytes);
}

std::int64_t memory_of(const pjrt::Client& client, int device) {
  const std::optional<pjrt::MemoryStats> stats = client.memory_stats(device);
  return stats && stats->bytes_limit ? *stats->bytes_limit : physical_memory();
}

}  // namespace tandem
