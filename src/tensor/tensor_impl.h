// What a Tensor handle points to, and the internal ways of making one.
#pragma once

#include "device/device.h"
#include "tandem/tensor.h"
#include "tensor/storage.h"

namespace tandem {

namespace detail {
[[noreturn]] void undefined_tensor();
[[noreturn]] void symbolic_tensor();
}  // namespace detail

// Something recorded for gradients; op/record.h knows what.
class GradNodeBase : public RefCounted {};

// The output `index` of a recorded operation, or a leaf (index 0). Null: not recorded.
struct GradEdge {
  RefPtr<GradNodeBase> node;
  std::int32_t index = 0;
  bool of_variable = false;  // the tensor is a variable's value: its users must not change the edge
  explicit operator bool() const { return static_cast<bool>(node); }
};

struct TensorSpec {
  DType dtype = float32;
  Shape shape;
};

struct TensorImpl final : RefCounted, TensorSpec {
  std::int64_t offset = 0;    // bytes into the storage
  RefPtr<Storage> storage;    // null: symbolic
  RefPtr<RefCounted> symbol;  // what the tensor stands for (graph/node.h); null: it has elements
  GradEdge grad;

  // Throw FailedPreconditionError when the tensor is symbolic.
  std::byte* data() const { return concrete_storage().data() + offset; }
  Device& device() const { return concrete_storage().device(); }
  Storage& concrete_storage() const {
    if (!storage) [[unlikely]]
      detail::symbolic_tensor();
    return *storage;
  }
  std::size_t bytes() const {
    return static_cast<std::size_t>(shape.num_elements()) * size_of(dtype);
  }
};

inline TensorImpl& impl_of(const Tensor& tensor) {
  if (!tensor.defined()) [[unlikely]]
    detail::undefined_tensor();
  return static_cast<TensorImpl&>(*tensor.handle());
}

// Uninitialised elements on `device`. `op`: the operation that asks, for an out-of-memory error.
Tensor make_tensor(Device& device, const Shape& shape, DType dtype, std::string_view op = {});
// Another view of `base`'s storage, `offset` bytes behind base's own start; not recorded.
Tensor make_view(const Tensor& base, const Shape& shape, std::int64_t offset = 0);
// The same storage and shape, with no gradient edge.
Tensor make_alias(const Tensor& base);
// `bytes` of host memory copied to a new tensor on `device`.
Tensor from_host(Device& device, const Shape& shape, DType dtype, const void* host);
// The elements copied to host memory; waits.
void to_host(const Tensor& tensor, void* host);
// `tensor` on `device`: itself, or a copy (not recorded).
Tensor copy_to_device(const Tensor& tensor, Device& device);
// Copies the elements of `from` (same shape and dtype, any device) over those of `to`.
void copy_into(const Tensor& to, const Tensor& from);

}  // namespace tandem
