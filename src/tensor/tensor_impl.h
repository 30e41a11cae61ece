// The implementation of Tensor, and internal functions that create tensors.
#pragma once

#include <cstddef>
#include <memory>
#include <string_view>
#include <utility>

#include "device/device.h"
#include "tandem/dtype.h"
#include "tandem/ref_counted.h"
#include "tandem/shape.h"
#include "tandem/tensor.h"

namespace tandem {

namespace detail {
[[noreturn]] void undefined_tensor();
[[noreturn]] void symbolic_tensor();
}  // namespace detail

// Device memory that tensors share.
class Storage final : public RefCounted {
 public:
  // Throws ResourceExhaustedError, which states the shape, the device, the requested size, the
  // allocator's statistics and advice. `op`: the requesting operation, for that error.
  static RefPtr<Storage> allocate(DeviceImpl& device, const Shape& shape, DType dtype,
                                  std::string_view op);
  // Wraps `bytes` bytes of device memory at `data`, which `owner` keeps alive.
  static RefPtr<Storage> adopt(DeviceImpl& device, std::shared_ptr<void> owner, void* data,
                               std::size_t bytes);
  // The same for memory of the program at `owner`, which is never written to.
  static RefPtr<Storage> adopt_constant(DeviceImpl& device, std::shared_ptr<void> owner,
                                        std::size_t bytes);
  ~Storage() override;

  DeviceImpl& device() const { return *device_; }
  std::byte* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }
  // Whether the memory may be written to by who has the only reference.
  bool reusable() const { return !constant_ && unique(); }
  // Whether only this program can write to the memory: it is not a host program's, for example.
  bool own() const { return !owner_; }

 private:
  Storage(DeviceImpl& device, std::byte* data, std::size_t bytes, std::shared_ptr<void> owner = {})
      : device_(&device), data_(data), bytes_(bytes), owner_(std::move(owner)) {}
  DeviceImpl* device_;
  std::byte* data_;
  std::size_t bytes_;
  std::shared_ptr<void> owner_;  // null if this object owns the memory
  bool constant_ = false;
};

// A node of the gradient graph: a recorded operation or a leaf (op/record.h).
class GradNodeBase : public RefCounted {};

// The output `index` of a recorded operation, or a leaf (index 0). Null if nothing is recorded.
struct GradEdge {
  RefPtr<GradNodeBase> node;
  std::int32_t index = 0;
  bool of_variable = false;  // the tensor is a variable's value, whose edge must not be changed
  explicit operator bool() const { return static_cast<bool>(node); }
};

struct TensorType {
  DType dtype = float32;
  Shape shape;
};

struct TensorImpl final : RefCounted, TensorType {
  std::int64_t offset = 0;    // bytes into the storage
  RefPtr<Storage> storage;    // null if symbolic
  RefPtr<RefCounted> symbol;  // of a symbolic tensor (graph/node.h); null for a concrete one
  GradEdge grad;
  bool of_leaf = false;  // a leaf's accumulated gradient, as users get it

  // Throw FailedPreconditionError if the tensor is symbolic.
  std::byte* data() const { return concrete_storage().data() + offset; }
  DeviceImpl& device() const { return concrete_storage().device(); }
  Storage& concrete_storage() const {
    if (!storage) [[unlikely]]
      detail::symbolic_tensor();
    return *storage;
  }
  std::size_t bytes() const {
    return static_cast<std::size_t>(shape.num_elements()) * size_of(dtype);
  }
};

// Whether nothing else refers to the tensor and its memory, so that its memory may be reused.
inline bool reusable(const TensorImpl& tensor) {
  return tensor.unique() && tensor.storage->reusable();
}

inline TensorImpl& impl_of(const Tensor& tensor) {
  if (!tensor.defined()) [[unlikely]]
    detail::undefined_tensor();
  return static_cast<TensorImpl&>(*tensor.handle());
}

// Uninitialised elements on `device`. `op`: the requesting operation, for an out-of-memory error.
Tensor make_tensor(DeviceImpl& device, const Shape& shape, DType dtype, std::string_view op = {});
// A view of `base`'s storage, `offset` bytes after base's first element; not recorded.
Tensor make_view(const Tensor& base, const Shape& shape, std::int64_t offset = 0);
// The same storage and shape, with no gradient edge.
Tensor make_alias(const Tensor& base);
// `bytes` of host memory copied to a new tensor on `device`.
Tensor from_host(DeviceImpl& device, const Shape& shape, DType dtype, const void* host);
// The elements copied to host memory; waits.
void to_host(const Tensor& tensor, void* host);
// `tensor` on `device`: itself, or a copy (not recorded).
Tensor copy_to_device(const Tensor& tensor, DeviceImpl& device);
// Copies the elements of `from` (same shape and dtype, any device) over those of `to`.
void copy_into(const Tensor& to, const Tensor& from);

}  // namespace tandem
