// Tensor: a small value handle on a multi-dimensional array that lives on a device.
#pragma once

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <iosfwd>
#include <optional>
#include <span>
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
  /// Records the backward pass itself, for higher orders; implies retain_graph. The leaf's grad()
  /// then holds what it was computed from, the leaf included: a reference cycle, whose memory stays
  /// until zero_grad(), as in PyTorch. GradientTape::gradient() makes no such cycle.
  bool create_graph = false;
};

/// A part of an axis, as Python's start:stop:step. Negative positions count from the end; those
/// outside the axis are cut off. Not given: from one end to the other, in the direction of `step`,
/// which is not 0.
struct Slice {
  std::optional<std::int64_t> start{};
  std::optional<std::int64_t> stop{};  // not included
  std::int64_t step = 1;
};

/// What Tensor::operator() takes for an axis: a position, which removes the axis, or a Slice.
class AxisIndex {
 public:
  template <std::integral Integer>
  AxisIndex(Integer position)  // NOLINT: implicit
      : slice_{.start = static_cast<std::int64_t>(position)}, single_(true) {}
  AxisIndex(const Slice& slice) : slice_(slice) {}  // NOLINT: implicit
  bool single() const { return single_; }
  std::int64_t position() const { return *slice_.start; }  // REQUIRES: single()
  const Slice& slice() const { return slice_; }

 private:
  Slice slice_;
  bool single_ = false;
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
  /// The only element of whatever dtype, as a double (an int64 beyond 2^53 is rounded).
  double item() const;
  // The elements themselves, for reading, while this tensor lives. Throws InvalidArgumentError when
  // T is not the element type, or when the tensor is on a device whose memory the host cannot
  // reach: copy it with cpu() first.
  template <class T>
  const T* data() const;

  // The slice at `index` of the first axis (negative ones count from the end); shares storage.
  Tensor operator[](std::int64_t index) const;
  /// A part of this tensor, one index for each leading axis: `x(0, Slice{1, 3})` is Python's
  /// x[0, 1:3]. Shares storage where only the first axis is cut, without a step. Has a gradient.
  /// Throws InvalidArgumentError for a position outside its axis and for more indices than axes.
  template <class... Index>
  requires(sizeof...(Index) > 0 && (std::convertible_to<const Index&, AxisIndex> && ...)) Tensor
  operator()(const Index&... indices) const {
    return at({AxisIndex(indices)...});
  }
  Tensor at(std::initializer_list<AxisIndex> indices) const;
  // This tensor on the device of that name, in that element type; itself where it already is.
  Tensor to(std::string_view device) const;
  Tensor to(DType dtype) const;
  Tensor cpu() const { return to("/cpu:0"); }

  /// Whether this is a handle on the same tensor as `other` (== compares elements, tandem/math.h).
  bool same_as(const Tensor& other) const { return impl_ == other.impl_; }

  // --- what the functions of tandem/math.h and tandem/array.h do, by the same names ---
  /// Reductions over all axes, over those given, or over one (negative: from the end).
  Tensor sum(const Dims& axes = {}, bool keepdims = false) const;
  Tensor mean(const Dims& axes = {}, bool keepdims = false) const;
  Tensor max(const Dims& axes = {}, bool keepdims = false) const;
  Tensor min(const Dims& axes = {}, bool keepdims = false) const;
  Tensor sum(std::int64_t axis, bool keepdims = false) const { return sum(Dims{axis}, keepdims); }
  Tensor mean(std::int64_t axis, bool keepdims = false) const { return mean(Dims{axis}, keepdims); }
  Tensor max(std::int64_t axis, bool keepdims = false) const { return max(Dims{axis}, keepdims); }
  Tensor min(std::int64_t axis, bool keepdims = false) const { return min(Dims{axis}, keepdims); }
  Tensor argmax(std::int64_t axis) const;
  Tensor argmin(std::int64_t axis) const;
  Tensor reshape(const Shape& shape) const;
  Tensor transpose(const Dims& permutation = {}) const;
  Tensor abs() const;
  Tensor sqrt() const;
  Tensor exp() const;
  Tensor log() const;
  Tensor square() const;

  // --- gradients (see tandem/autodiff.h) ---
  // Whether operations on this tensor are recorded for gradients.
  bool requires_grad() const;
  // Makes this tensor a leaf whose gradient backward() accumulates in grad(). Floating types only.
  // The value of a variable stays as the variable was made (InvalidArgumentError): detach() first.
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

/// Tensors as a parameter takes them: a vector, an array, a span, or a list in braces ({a, b}).
/// It refers to them, so it is for parameters only.
class TensorList : public std::span<const Tensor> {
 public:
  using std::span<const Tensor>::span;
  TensorList(std::span<const Tensor> tensors) : span(tensors) {}  // NOLINT: implicit
  TensorList(std::initializer_list<Tensor> tensors)               // NOLINT: implicit
      : span(tensors.begin(), tensors.size()) {}
};

// Prints as NumPy prints the array: "[[22. 28.]\n [49. 64.]]".
std::ostream& operator<<(std::ostream& out, const Tensor& tensor);

}  // namespace tandem
