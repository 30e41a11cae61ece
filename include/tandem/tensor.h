/// @file
/// Tensor: a handle to a multi-dimensional array on a device.
#pragma once

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <iosfwd>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "tandem/dtype.h"
#include "tandem/ref_counted.h"
#include "tandem/shape.h"

namespace tandem {

struct TensorImpl;
class Tensor;

/// Options of Tensor::backward(). As the arguments of torch.Tensor.backward.
struct BackwardOptions {
  bool retain_graph = false;  ///< keep the record, so that backward() can run again
  /// Records the backward pass for higher-order derivatives; implies retain_graph. grad() of a leaf
  /// then refers to the leaf: a reference cycle whose memory is kept until zero_grad(), as in
  /// PyTorch. GradientTape::gradient() creates no cycle.
  bool create_graph = false;
};

/// A range of an axis, as Python's start:stop:step. Negative positions count from the end;
/// positions outside the axis are clamped. Defaults: the whole axis in the direction of `step`.
struct Slice {
  std::optional<std::int64_t> start{};  ///< first position
  std::optional<std::int64_t> stop{};   ///< end of the range, exclusive
  std::int64_t step = 1;                ///< distance between positions; not 0
};

/// Argument of Tensor::operator() for one axis: a position, which removes the axis, or a Slice.
class AxisIndex {
 public:
  /// A position; negative ones count from the end.
  template <std::integral Integer>
  AxisIndex(Integer position)  // NOLINT: implicit
      : slice_{.start = static_cast<std::int64_t>(position)}, single_(true) {}
  /// A range.
  AxisIndex(const Slice& slice) : slice_(slice) {}  // NOLINT: implicit
  bool single() const { return single_; }           ///< whether it is a position
  /// The position. REQUIRES: single().
  std::int64_t position() const { return *slice_.start; }  // REQUIRES: single()
  const Slice& slice() const { return slice_; }            ///< the range

 private:
  Slice slice_;
  bool single_ = false;
};

/// A dense, row-major array; images are channels-last (NHWC). As tf.Tensor and torch.Tensor. A
/// default-constructed tensor is undefined: it can be assigned to and queried with defined();
/// everything else throws FailedPreconditionError.
///
/// Copies share the elements. Operations never change their inputs, so sharing is safe. A
/// variable's elements change only through the variable; a Tensor read from it earlier keeps the
/// old ones.
///
/// Thread safety: different handles may be used from different threads, one handle from one thread
/// at a time.
class Tensor {
 public:
  Tensor() = default;
  Tensor(const Tensor&) = default;
  Tensor(Tensor&&) noexcept = default;
  Tensor& operator=(const Tensor&) & = default;
  Tensor& operator=(Tensor&&) & noexcept = default;
  /// Does not compile: `x[0] = y` would change a temporary alone.
  template <class T>
  void operator=(const T&) && {
    static_assert(!std::is_same_v<T, T>,
                  "a part of a tensor cannot be assigned, because operations never change their "
                  "inputs: make a new tensor with where(), concat(), stack() or pad()");
  }

  /// False for a default-constructed tensor.
  bool defined() const { return static_cast<bool>(impl_); }
  const Shape& shape() const;                  ///< shape
  DType dtype() const;                         ///< dtype
  int rank() const { return shape().rank(); }  ///< number of axes
  /// Size of `axis`; negative ones count from the end.
  std::int64_t dim(std::int64_t axis) const { return shape().dim(axis); }
  /// The number of elements.
  std::int64_t size() const { return shape().num_elements(); }
  /// Size in bytes.
  std::int64_t bytes() const { return size() * static_cast<std::int64_t>(size_of(dtype())); }
  /// Full name of the device that holds the elements.
  const std::string& device() const;

  /// Copies the elements in row-major order. Throws InvalidArgumentError if T is not the dtype's
  /// C++ type. Waits for the device.
  template <class T>
  std::vector<T> to_vector() const;
  /// The only element. Throws InvalidArgumentError if there is another number of elements or T is
  /// not the dtype's C++ type. Waits for the device.
  template <class T>
  T item() const;
  /// The only element as a double, for every dtype; an int64 beyond 2^53 is rounded. As
  /// torch.Tensor.item.
  double item() const;
  /// The elements, for reading, valid while this tensor exists. Throws InvalidArgumentError if T is
  /// not the dtype's C++ type and for memory that the host cannot access; use cpu() first.
  template <class T>
  const T* data() const;

  /// The slice at `index` of the first axis; negative ones count from the end. Shares storage.
  Tensor operator[](std::int64_t index) const;
  /// Indexes the leading axes: `x(0, Slice{1, 3})` is Python's x[0, 1:3]. Differentiable. Shares
  /// storage if only the first axis is cut, without a step. Throws InvalidArgumentError for a
  /// position outside its axis and for more indices than axes.
  template <class... Index>
  requires(sizeof...(Index) > 0 && (std::convertible_to<const Index&, AxisIndex> && ...)) Tensor
  operator()(const Index&... indices) const {
    return at({AxisIndex(indices)...});
  }
  /// As operator() with a list of indices.
  Tensor at(std::initializer_list<AxisIndex> indices) const;
  /// @{
  /// This tensor on another device or as another dtype; itself if nothing changes. As
  /// torch.Tensor.to.
  [[nodiscard]] Tensor to(std::string_view device) const;
  [[nodiscard]] Tensor to(DType dtype) const;
  [[nodiscard]] Tensor cpu() const { return to("/cpu:0"); }
  /// @}

  /// Whether both are handles to the same tensor. (== compares elements, tandem/math.h.)
  bool same_as(const Tensor& other) const { return impl_ == other.impl_; }

  // --- methods for functions of tandem/math.h and tandem/array.h ---
  /// @{
  /// Reduces over all axes, the given ones, or one (negative: from the end). As reduce_sum() etc.
  [[nodiscard]] Tensor sum(const Dims& axes = {}, bool keepdims = false) const;
  [[nodiscard]] Tensor mean(const Dims& axes = {}, bool keepdims = false) const;
  [[nodiscard]] Tensor max(const Dims& axes = {}, bool keepdims = false) const;
  [[nodiscard]] Tensor min(const Dims& axes = {}, bool keepdims = false) const;
  [[nodiscard]] Tensor sum(std::int64_t axis, bool keepdims = false) const {
    return sum(Dims{axis}, keepdims);
  }
  [[nodiscard]] Tensor mean(std::int64_t axis, bool keepdims = false) const {
    return mean(Dims{axis}, keepdims);
  }
  [[nodiscard]] Tensor max(std::int64_t axis, bool keepdims = false) const {
    return max(Dims{axis}, keepdims);
  }
  [[nodiscard]] Tensor min(std::int64_t axis, bool keepdims = false) const {
    return min(Dims{axis}, keepdims);
  }
  /// @}
  [[nodiscard]] Tensor argmax(std::int64_t axis) const;                ///< as tandem::argmax()
  [[nodiscard]] Tensor argmin(std::int64_t axis) const;                ///< as tandem::argmin()
  [[nodiscard]] Tensor reshape(const Shape& shape) const;              ///< as tandem::reshape()
  [[nodiscard]] Tensor transpose(const Dims& permutation = {}) const;  ///< as tandem::transpose()
  /// @{
  /// As the functions of these names in tandem/math.h.
  [[nodiscard]] Tensor abs() const;
  [[nodiscard]] Tensor sqrt() const;
  [[nodiscard]] Tensor exp() const;
  [[nodiscard]] Tensor log() const;
  [[nodiscard]] Tensor square() const;
  /// @}

  // --- gradients (see tandem/autodiff.h) ---
  /// Whether operations on this tensor are recorded for gradients. As in PyTorch.
  bool requires_grad() const;
  /// Makes this tensor a leaf whose gradient backward() accumulates in grad(). Throws
  /// InvalidArgumentError for a dtype that is not floating-point and for the value of a variable;
  /// use detach() first. As torch.Tensor.requires_grad_.
  Tensor& set_requires_grad(bool required = true);
  /// Accumulates the gradient of this scalar with respect to each leaf in the leaf's grad(). As
  /// torch.Tensor.backward.
  void backward(BackwardOptions options = {}) const;
  /// The same for a tensor of any shape; `gradient` is the gradient of the final value with respect
  /// to it.
  void backward(const Tensor& gradient, BackwardOptions options = {}) const;
  /// The gradient that backward() has accumulated in this leaf; undefined if there is none.
  Tensor grad() const;
  void zero_grad();  ///< clears grad()
  /// The same elements, without a gradient. As torch.Tensor.detach.
  [[nodiscard]] Tensor detach() const;

  /// For Tandem's own code; never null for a defined tensor.
  explicit Tensor(RefPtr<RefCounted> impl) : impl_(std::move(impl)) {}
  const RefPtr<RefCounted>& handle() const { return impl_; }  ///< for Tandem's own code

 private:
  RefPtr<RefCounted> impl_;
};

/// A list of tensors as a parameter type: converts from a vector, an array, a span, or a list in
/// braces ({a, b}). Refers to the tensors, so use it for parameters only.
class TensorList : public std::span<const Tensor> {
 public:
  using std::span<const Tensor>::span;
  /// The tensors of a span.
  TensorList(std::span<const Tensor> tensors) : span(tensors) {}  // NOLINT: implicit
  /// The tensors of a list in braces.
  TensorList(std::initializer_list<Tensor> tensors)  // NOLINT: implicit
      : span(tensors.begin(), tensors.size()) {}
};

/// Prints the array as NumPy does, for example "[[22. 28.]\n [49. 64.]]".
std::ostream& operator<<(std::ostream& out, const Tensor& tensor);

}  // namespace tandem
