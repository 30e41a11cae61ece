#include "tensor/storage.h"

#include "core/status.h"

namespace tandem {
namespace {

std::string mebibytes(std::int64_t bytes) {
  return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / 1048576.0);
}

[[noreturn]] void out_of_memory(Device& device, const Shape& shape, DType dtype,
                                std::size_t bytes) {
  const AllocatorStats stats = device.allocator().stats();
  fail<ResourceExhaustedError>(
      "OOM when allocating tensor with shape {} and dtype {} on {} by allocator {}: requested {} "
      "({} bytes), limit {}, "
      "in use {}, reserved {}, largest free block {}, fragmentation {:.0f}%. Try a smaller batch, "
      "freeing tensors that are "
      "no longer needed, a higher memory limit for this device, or more devices.",
      shape.to_string(), name_of(dtype), device.full_name(), device.allocator().name(),
      mebibytes(static_cast<std::int64_t>(bytes)), bytes, mebibytes(stats.bytes_limit),
      mebibytes(stats.bytes_in_use), mebibytes(stats.bytes_reserved),
      mebibytes(stats.largest_free_block), 100.0 * stats.fragmentation());
}

}  // namespace

RefPtr<Storage> Storage::allocate(Device& device, const Shape& shape, DType dtype) {
  const std::size_t bytes = static_cast<std::size_t>(shape.num_elements()) * size_of(dtype);
  void* memory = device.allocator().allocate(bytes);
  if (!memory && bytes > 0) out_of_memory(device, shape, dtype, bytes);
  return RefPtr<Storage>(new Storage(device, static_cast<std::byte*>(memory), bytes));
}

Storage::~Storage() {
  if (data_) device_->allocator().deallocate(data_);
}

}  // namespace tandem
