// Tensor: a small value handle on a multi-dimensional array that lives on a device.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/dtype.h"
#include "tandem/ref_counted.h"
#include "tandem/shape.h"

namespace tandem {

struct TensorImpl;
class Tensor;

struct BackwardOptions {
  bool retain_graph = false;  // keep what was recorded, so that backward() can run again
  bool create_graph =
      false;  // record the backward pass itself (higher order); implies retain_graph
};

// Dense, row-major, pictures channels last. A default-constructed tensor is undefined: it can be
// assigned to and asked defined(), anything else is a FailedPreconditionError.
//
// Copying a Tensor copies the handle. Operations never change their inputs, so sharing is safe; the
// elements of a variable change only through the variable, and a Tensor read from it earlier keeps
// the old ones.
//
// Thread safety: different handles may be used from different threads; one handle from one thread.
class Tensor {
 public:
  Tensor() = default;

  bool defined() const { return static_cast<bool>(impl_); }
  const Shape& shape() const;
  DType dtype() const;
  int rank() const { return shape().rank(); }
  // The size of `axis`; negative ones count from the end.
  std::int64_t dim(std::int64_t axis) const { return shape().dim(axis); }
  // The number of elements.
  std::int64_t size() const { return shape().num_elements(); }
  std::int64_t bytes() const { return size() * static_cast<std::int64_t>(size_of(dtype())); }
  // The full name of the device that the elements live on.
  const std::string& device() const;

  // A copy of the elements in row-major order. T must be the element type exactly
  // (InvalidArgumentError otherwise). Waits for the device.
  template <class T>
  std::vector<T> to_vector() const;
  // The only element. Throws InvalidArgumentError unless there is exactly one.
  template <class T>
  T item() const;
  // The elements themselves, for reading, while this tensor lives. Throws InvalidArgumentError when
  // T is not the element type, or when the tensor is on a device whose memory the host cannot
  // reach: copy it with cpu() first.
  template <class T>
  const T* data() const;

  // The slice at `index` of the first axis (negative ones count from the end); shares storage.
  Tensor operator[](std::int64_t index) const;
  // This tensor on the device of that name, in that element type; itself where it already is.
  Tensor to(std::string_view device) const;
  Tensor to(DType dtype) const;
  Tensor cpu() const { return to("/cpu:0"); }

  // --- gradients (see tandem/autodiff.h) ---
  // Whether operations on this tensor are recorded for gradients.
  bool requires_grad() const;
  // Makes this tensor a leaf whose gradient backward() accumulates in grad(). Floating types only.
  Tensor& set_requires_grad(bool required = true);
  // Accumulates the gradient of this scalar with respect to every leaf into the leaf's grad().
  void backward(BackwardOptions options = {}) const;
  // The same for a tensor of any shape, given the gradient of the final value with respect to it.
  void backward(const Tensor& gradient, BackwardOptions options = {}) const;
  // What backward() has accumulated in this leaf; undefined before.
  Tensor grad() const;
  void zero_grad();
  // The same elements, unknown to gradients.
  Tensor detach() const;

  // For Tandem's own floors: the implementation, never null for a defined tensor.
  explicit Tensor(RefPtr<RefCounted> impl) : impl_(std::move(impl)) {}
  const RefPtr<RefCounted>& handle() const { return impl_; }

 private:
  RefPtr<RefCounted> impl_;
};

// Prints as NumPy prints the array: "[[22. 28.]\n [49. 64.]]".
std::ostream& operator<<(std::ostream& out, const Tensor& tensor);

}  // namespace tandem
