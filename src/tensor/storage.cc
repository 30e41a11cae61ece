#include "tensor/storage.h"

#include "core/status.h"
#include "device/memory_report.h"

namespace tandem {

RefPtr<Storage> Storage::allocate(Device& device, const Shape& shape, DType dtype,
                                  std::string_view op) {
  if (shape.too_large()) [[unlikely]]
    fail<InvalidArgumentError>("[{}] expected a tensor of at most {} elements, got shape {}",
                               op.empty() ? "Tensor" : op, kMaxElements, shape.to_string());
  const std::size_t bytes = static_cast<std::size_t>(shape.num_elements()) * size_of(dtype);
  void* memory = device.allocator().allocate(bytes);
  if (!memory && bytes > 0) [[unlikely]]
    throw_out_of_memory(device, {.what = fmt::format("tensor with shape {} and dtype {}",
                                                     shape.to_string(), name_of(dtype)),
                                 .op = op,
                                 .bytes = bytes});
  return RefPtr<Storage>(new Storage(device, static_cast<std::byte*>(memory), bytes));
}

RefPtr<Storage> Storage::adopt(Device& device, std::shared_ptr<void> owner, void* data,
                               std::size_t bytes) {
  return RefPtr<Storage>(
      new Storage(device, static_cast<std::byte*>(data), bytes, std::move(owner)));
}

Storage::~Storage() {
  if (data_ && !owner_) device_->allocator().deallocate(data_);
}

}  // namespace tandem
