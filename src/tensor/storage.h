// Device memory that tensors share.
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
  // Throws ResourceExhaustedError, which states the shape, the device, the requested size, the
  // allocator's statistics and advice. `op`: the requesting operation, for that error.
  static RefPtr<Storage> allocate(Device& device, const Shape& shape, DType dtype,
                                  std::string_view op);
  // Wraps `bytes` bytes of device memory at `data`, which `owner` keeps alive.
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
  std::shared_ptr<void> owner_;  // null if this object owns the memory
};

}  // namespace tandem
