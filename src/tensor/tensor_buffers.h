// Converts tensors to the buffers of communicators.
#pragma once

#include "comm/communicator.h"
#include "tensor/tensor_impl.h"

namespace tandem {

// The elements of a tensor.
inline Buffer buffer_of(const Tensor& tensor) {
  const TensorImpl& impl = impl_of(tensor);
  return {impl.data(), impl.shape.num_elements(), impl.dtype};
}

// `tensor` on `device`, in memory that nothing else refers to and without a gradient edge. Returns
// a copy unless `tensor` meets this already.
inline Tensor exclusive_on(DeviceImpl& device, Tensor tensor) {
  const TensorImpl& impl = impl_of(tensor);
  if (&impl.device() == &device && reusable(impl)) {
    impl_of(tensor).grad = {};
    return tensor;
  }
  Tensor copy = make_tensor(device, impl.shape, impl.dtype);
  copy_into(copy, tensor);
  return copy;
}

}  // namespace tandem
