// Memory of a device that tensors share.
#pragma once

#include <cstddef>
#include <memory>
#include <string_view>
#include <utility>

#include "device/device.h"
#include "tandem/dtype.h"
#include "tandem/ref_counted.h"
#include "tandem/shape.h"

namespace tandem {

class Storage final : public RefCounted {
 public:
  // Throws ResourceExhaustedError with the shape, the device, the request, the allocator's figures
  // and what to try. `op`: the operation that asks, for that error.
  static RefPtr<Storage> allocate(Device& device, const Shape& shape, DType dtype,
                                  std::string_view op);
  // `bytes` bytes at `data`, of memory of the device that `owner` keeps.
  static RefPtr<Storage> adopt(Device& device, std::shared_ptr<void> owner, void* data,
                               std::size_t bytes);
  ~Storage() override;

  Device& device() const { return *device_; }
  std::byte* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }

 private:
  Storage(Device& device, std::byte* data, std::size_t bytes, std::shared_ptr<void> owner = {})
      : device_(&device), data_(data), bytes_(bytes), owner_(std::move(owner)) {}
  Device* device_;
  std::byte* data_;
  std::size_t bytes_;
  std::shared_ptr<void> owner_;  // null: the memory is this one's, of the device's allocator
};

}  // namespace tandem
