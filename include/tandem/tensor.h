/// @file
/// Tensor: a handle to a multi-dimensional array on a device.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <iosfwd>
#include <iterator>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "tandem/device.h"
#include "tandem/dtype.h"
#include "tandem/in_place.h"
#include "tandem/method_options.h"
#include "tandem/ref_counted.h"
#include "tandem/removable_handle.h"
#include "tandem/shape.h"
#include "tandem/slice.h"

namespace tandem {

struct TensorImpl;
class ValuesAndIndices;
class Tensor;
template <class T, int kRank>
class TensorAccessor;

template <class T>
class TemporaryData;

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
class Tensor : public detail::InPlaceFunctions {
 public:
  Tensor() = default;
  Tensor(const Tensor&) = default;
  Tensor(Tensor&&) noexcept = default;
  Tensor& operator=(const Tensor&) & = default;
  Tensor& operator=(Tensor&&) & noexcept = default;
  /// Does not compile: `x[0] = y` would change a temporary alone.
  template <class T>
  void operator=(const T&) && {
    part<T>();
  }
  /// @{
  /// A copy of numbers: a vector, in another shape as well, those of a span, those at a pointer,
  /// as many as the shape has, or rows of equal lengths. As constant() (tandem/creation.h, which
  /// must be included).
  template <detail::Arithmetic Number>
  explicit Tensor(const std::vector<Number>& numbers);
  template <detail::Arithmetic Number>
  Tensor(const std::vector<Number>& numbers, const Shape& shape);
  template <class Number>
  requires detail::Arithmetic<std::remove_cv_t<Number>> Tensor(std::span<Number> numbers,
                                                               const Shape& shape);
  template <detail::Arithmetic Number>
  Tensor(const Number* numbers, const Shape& shape);
  template <detail::Arithmetic Number>
  explicit Tensor(const std::vector<std::vector<Number>>& rows);
  /// @}

  /// False for a default-constructed tensor.
  bool defined() const { return static_cast<bool>(impl_); }
  const Shape& shape() const&;                 ///< shape
  Shape shape() const&& { return shape(); }    ///< shape, of a temporary
  DType dtype() const;                         ///< dtype
  int rank() const { return shape().rank(); }  ///< number of axes
  /// Size of `axis`; negative ones count from the end.
  Dim dim(std::int64_t axis) const { return shape().dim(axis); }
  /// The number of elements.
  Dim size() const { return shape().elements(); }
  /// Size in bytes. Throws InvalidArgumentError if it is unknown.
  std::int64_t bytes() const {
    return shape().num_elements() * static_cast<std::int64_t>(size_of(dtype()));
  }
  const Shape& sizes() const& { return shape(); }          ///< as shape()
  Shape sizes() const&& { return shape(); }                ///< as shape()
  Dim size(std::int64_t axis) const { return dim(axis); }  ///< as dim(axis)
  std::int64_t dim() const { return rank(); }              ///< as rank()
  std::int64_t ndim() const { return rank(); }             ///< as rank()
  Dim numel() const { return size(); }                     ///< as size()
  Dim num_elements() const { return size(); }              ///< as size()
  std::string to_string() const;                           ///< what << prints
  std::int64_t nbytes() const { return bytes(); }          ///< as bytes()
  DType scalar_type() const { return dtype(); }            ///< as dtype()
  /// @{
  /// Full name of the device that holds the elements.
  const std::string& device() const&;
  std::string device() const&& { return device(); }
  /// @}

  /// Copies the elements in row-major order. Throws InvalidArgumentError if T is not the dtype's
  /// C++ type. Waits for the device.
  template <class T>
  std::vector<T> to_vector() const;
  /// The only element as a T, as torch::Tensor::item; a bool is whether it is not zero. Throws
  /// ShapeError if there is another number of elements, and InvalidArgumentError for a fraction as
  /// an integer and a value beyond T's range. Waits for the device.
  template <class T>
  T item() const;
  /// The only element as a double, for every dtype; an int64 beyond 2^53 is rounded. As
  /// torch.Tensor.item.
  double item() const;
  /// item() as a C++ number or condition: `if (all(a == b))`, `double(loss)`.
  template <detail::Arithmetic Number>
  explicit operator Number() const {
    return static_cast<Number>(item());
  }
  /// The elements, for reading, valid while this tensor exists. Throws InvalidArgumentError if T is
  /// not the dtype's C++ type and for memory that the host cannot access; use cpu() first.
  template <class T>
  const T* data() const&;
  /// The same of a temporary, which the result keeps: `auto p = (a + b).data<float>();` is used as
  /// a pointer. A plain pointer would dangle, and does not compile.
  template <class T>
  TemporaryData<T> data() const&&;
  /// data() and size() as a span. Not for bool.
  template <class T>
  std::span<const T> span() const& {
    return {data<T>(), static_cast<std::size_t>(size())};
  }
  /// Does not compile: the elements of a temporary tensor would be gone.
  template <class T>
  std::span<const T> span() const&& {
    return of_temporary<T>(), std::span<const T>();
  }
  /// The elements, for writing. If other tensors share the memory, or a gradient needs it, this one
  /// gets memory of its own first: no other tensor changes. Throws as data(). As
  /// torch.Tensor.data_ptr.
  template <class T>
  T* data_ptr() &;
  /// @{
  /// As data().
  template <class T>
  const T* data_ptr() const& {
    return data<T>();
  }
  template <class T>
  TemporaryData<T> data_ptr() const&&;
  /// @}
  /// @{
  /// The elements, for reading, as `a[i][j]` of a tensor of kRank axes. Throws InvalidArgumentError
  /// for another rank, and as data(). Not of a temporary. As torch.Tensor.accessor.
  template <class T, int kRank>
  TensorAccessor<T, kRank> accessor() const&;
  template <class T, int kRank>
  TensorAccessor<T, kRank> accessor() const&& {
    return of_temporary<T>(), TensorAccessor<T, kRank>(nullptr, nullptr);
  }
  /// @}

  /// @{
  /// The slice at `index` of the first axis; negative ones count from the end. Shares storage.
  Tensor operator[](std::int64_t index) const { return row(index); }
  template <std::same_as<Dim> Position>
  Tensor operator[](const Position& index) const {
    return row(index);
  }
  /// @}
  /// A range of the first axis: `x[Slice(0, 10)]` is Python's x[0:10]. As at().
  Tensor operator[](const Slice& range) const { return at({range}); }
  /// Indexes the leading axes, at least one of them by a Slice: `x[{Slice(1, 5), 0}]`. As at().
  /// Throws InvalidArgumentError for positions alone, which NumPy takes for rows: write x(1, 2) for
  /// Python's x[1, 2] and `x[constant({1, 2})]` for rows.
  Tensor operator[](std::initializer_list<AxisIndex> indices) const;
  /// The slices of the first axis at the int32 or int64 positions of `index`, as gather(), or those
  /// for which the bool `index` is true, as boolean_mask(). As x[index] in NumPy and PyTorch.
  Tensor operator[](const Tensor& index) const;
  /// Indexes the leading axes: `x(0, Slice{1, 3})` is Python's x[0, 1:3]. Differentiable. Shares
  /// storage if only the first axis is cut, without a step. Throws InvalidArgumentError for a
  /// position outside its axis and for more indices than axes.
  template <class... Index>
  requires(sizeof...(Index) > 0 && (std::convertible_to<const Index&, AxisIndex> && ...)) Tensor
  operator()(const Index&... indices) const {
    return at({AxisIndex(indices)...});
  }
  /// @{
  /// As operator() with a list of indices.
  [[nodiscard]] Tensor at(std::initializer_list<AxisIndex> indices) const {
    return at(std::span<const AxisIndex>(indices.begin(), indices.size()));
  }
  [[nodiscard]] Tensor at(std::span<const AxisIndex> indices) const;
  /// @}
  /// As at().
  [[nodiscard]] Tensor index(std::initializer_list<AxisIndex> indices) const { return at(indices); }
  /// The elements of axis 0 for which the bool vector `mask` is true; for a mask of this tensor's
  /// shape all such elements, as a vector. As boolean_mask().
  [[nodiscard]] Tensor index(const Tensor& mask) const { return masked_select(mask); }
  /// @{
  /// The element at this position of each axis. Throws as at() and item<T>().
  template <class T>
  T at(std::initializer_list<AxisIndex> position) const;
  template <class T, detail::Integer First, detail::Integer... Rest>
  T at(First first, Rest... rest) const;
  /// @}
  class RowIterator;
  /// @{
  /// Iterates over the slices of the first axis, which share storage: `for (Tensor row : matrix)`.
  /// Throws InvalidArgumentError for a scalar and for a size that is not known.
  RowIterator begin() const;
  RowIterator end() const;
  /// @}
  /// @{
  /// This tensor on another device or as another dtype; itself if nothing changes. `non_blocking`
  /// has no effect. As torch.Tensor.to.
  [[nodiscard]] Tensor to(std::string_view device) const;
  [[nodiscard]] Tensor to(DType dtype) const;
  template <std::same_as<DeviceType> Type>
  [[nodiscard]] Tensor to(Type type) const {
    return to(Device(type).name());
  }
  [[nodiscard]] Tensor to(std::string_view device, DType dtype) const {
    return to(device).to(dtype);
  }
  template <std::same_as<bool> Bool>
  [[nodiscard]] Tensor to(std::string_view device, [[maybe_unused]] Bool non_blocking) const {
    return to(device);
  }
  [[nodiscard]] Tensor cuda() const { return to("/gpu:0"); }
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
  /// @}
  /// @{
  /// The largest or smallest elements along an axis, and their positions: `auto [values, indices] =
  /// x.max(1)`; the result is also usable as the values. As torch.Tensor.max and min.
  template <detail::Integer Axis>
  [[nodiscard]] ValuesAndIndices max(Axis axis, bool keepdims = false) const;
  template <detail::Integer Axis>
  [[nodiscard]] ValuesAndIndices min(Axis axis, bool keepdims = false) const;
  /// @}
  /// @{
  /// As maximum() and minimum().
  [[nodiscard]] Tensor max(const Tensor& other) const { return maximum(other); }
  [[nodiscard]] Tensor min(const Tensor& other) const { return minimum(other); }
  /// @}
  /// @{
  /// The largest or smallest elements along axes, alone.
  [[nodiscard]] Tensor amax(const Dims& axes = {}, bool keepdims = false) const {
    return max(axes, keepdims);
  }
  [[nodiscard]] Tensor amin(const Dims& axes = {}, bool keepdims = false) const {
    return min(axes, keepdims);
  }
  [[nodiscard]] Tensor amax(std::int64_t axis, bool keepdims = false) const {
    return max(Dims{axis}, keepdims);
  }
  [[nodiscard]] Tensor amin(std::int64_t axis, bool keepdims = false) const {
    return min(Dims{axis}, keepdims);
  }
  /// @}
  /// @{
  /// As tandem::argmax() and argmin().
  [[nodiscard]] Tensor argmax(std::int64_t axis, bool keepdims = false) const;
  [[nodiscard]] Tensor argmin(std::int64_t axis, bool keepdims = false) const;
  /// @}
  /// @{
  /// The position of the largest or smallest element of all, in row-major order; int64.
  [[nodiscard]] Tensor argmax() const { return flatten().argmax(0); }
  [[nodiscard]] Tensor argmin() const { return flatten().argmin(0); }
  /// @}
  [[nodiscard]] Tensor reshape(const Shape& shape) const;  ///< as tandem::reshape()
  /// The same with the sizes as arguments: x.reshape(-1, 4).
  template <class... Size>
  requires(sizeof...(Size) > 0 && (std::convertible_to<const Size&, Dim> && ...))
      [[nodiscard]] Tensor reshape(const Size&... sizes) const {
    return reshape(Shape({Dim(sizes)...}));
  }
  [[nodiscard]] Tensor transpose(const Dims& permutation = {}) const;  ///< as tandem::transpose()
  /// Exchanges two axes; negative ones count from the end. As torch.Tensor.transpose.
  [[nodiscard]] Tensor transpose(std::int64_t axis, std::int64_t other) const;
  /// @{
  /// As the functions of these names in tandem/math.h.
  [[nodiscard]] Tensor abs() const;
  [[nodiscard]] Tensor sqrt() const;
  [[nodiscard]] Tensor rsqrt() const;
  [[nodiscard]] Tensor exp() const;
  [[nodiscard]] Tensor log() const;
  [[nodiscard]] Tensor sin() const;
  [[nodiscard]] Tensor cos() const;
  [[nodiscard]] Tensor tanh() const;
  [[nodiscard]] Tensor sigmoid() const;
  [[nodiscard]] Tensor square() const;
  [[nodiscard]] Tensor sign() const;
  [[nodiscard]] Tensor floor() const;
  [[nodiscard]] Tensor ceil() const;
  [[nodiscard]] Tensor round() const;
  [[nodiscard]] Tensor pow(double exponent) const;
  [[nodiscard]] Tensor pow(const Tensor& exponent) const;
  [[nodiscard]] Tensor pow(Dim exponent) const;
  [[nodiscard]] Tensor matmul(const Tensor& other) const;
  [[nodiscard]] Tensor cumsum(std::int64_t axis) const;
  [[nodiscard]] ValuesAndIndices sort(std::int64_t axis = -1, bool descending = false) const;
  [[nodiscard]] Tensor argsort(std::int64_t axis = -1, bool descending = false) const;
  [[nodiscard]] ValuesAndIndices topk(std::int64_t k, std::int64_t axis = -1,
                                      bool largest = true) const;
  [[nodiscard]] Tensor log1p() const;
  [[nodiscard]] Tensor expm1() const;
  [[nodiscard]] Tensor erf() const;
  [[nodiscard]] Tensor reciprocal() const;
  [[nodiscard]] Tensor maximum(const Tensor& other) const;
  [[nodiscard]] Tensor minimum(const Tensor& other) const;
  [[nodiscard]] Tensor logical_and(const Tensor& other) const;
  [[nodiscard]] Tensor logical_or(const Tensor& other) const;
  [[nodiscard]] Tensor logical_not() const;
  [[nodiscard]] Tensor tril(std::int64_t diagonal = 0) const;
  [[nodiscard]] Tensor triu(std::int64_t diagonal = 0) const;
  /// @}
  [[nodiscard]] Tensor isnan() const;                                            ///< as is_nan()
  [[nodiscard]] Tensor isfinite() const;                                         ///< as is_finite()
  [[nodiscard]] Tensor mm(const Tensor& other) const { return matmul(other); }   ///< as matmul()
  [[nodiscard]] Tensor bmm(const Tensor& other) const { return matmul(other); }  ///< as matmul()
  [[nodiscard]] Tensor dot(const Tensor& other) const { return matmul(other); }  ///< as matmul()
  [[nodiscard]] Tensor mv(const Tensor& other) const { return matmul(other); }   ///< as matmul()
  [[nodiscard]] Tensor flip(const Dims& axes) const;                             ///< as reverse()
  [[nodiscard]] Tensor flip(std::int64_t axis) const { return flip(Dims{axis}); }  ///< as reverse()
  [[nodiscard]] std::vector<Tensor> unbind(std::int64_t axis = 0) const;           ///< as unstack()
  [[nodiscard]] Tensor logsumexp(std::int64_t axis,
                                 bool keepdims = false) const;  ///< as reduce_logsumexp()
  [[nodiscard]] Tensor relu() const;                            ///< as nn::relu()
  [[nodiscard]] Tensor softmax(std::int64_t axis) const;        ///< as nn::softmax()
  [[nodiscard]] Tensor log_softmax(std::int64_t axis) const;    ///< as nn::log_softmax()
  [[nodiscard]] Tensor clamp(double low, double high) const;    ///< as clip_by_value()
  [[nodiscard]] Tensor clamp(double low) const;                 ///< as maximum()
  [[nodiscard]] Tensor clamp_min(double low) const;             ///< as maximum()
  [[nodiscard]] Tensor clamp_max(double high) const;            ///< as minimum()
  /// @{
  /// The same with sizes, which may be unknown until the graph runs.
  template <class Low, class High>
  requires(std::same_as<Low, Dim> || std::same_as<High, Dim>) [[nodiscard]] Tensor
      clamp(const Low& low, const High& high) const;
  [[nodiscard]] Tensor clamp(Dim low) const;
  [[nodiscard]] Tensor clamp_min(Dim low) const;
  [[nodiscard]] Tensor clamp_max(Dim high) const;
  /// @}
  [[nodiscard]] Tensor norm() const;  ///< Euclidean, of all elements
  /// @{
  /// The norm of order `p`, of all elements or along an axis; infinity: the largest absolute value.
  /// As torch.Tensor.norm.
  [[nodiscard]] Tensor norm(double p) const;
  [[nodiscard]] Tensor norm(double p, std::int64_t axis, bool keepdims = false) const;
  /// @}
  [[nodiscard]] Tensor prod() const;  ///< product of all elements
  /// @{
  /// Standard deviation and variance of all elements or along an axis, divided by n - 1, or by n if
  /// not `unbiased`. As torch.Tensor.std and var; reduce_std() and NumPy divide by n.
  [[nodiscard]] Tensor std(bool unbiased = true) const;
  [[nodiscard]] Tensor var(bool unbiased = true) const;
  template <detail::Integer Axis>
  [[nodiscard]] Tensor std(Axis axis, bool unbiased = true, bool keepdims = false) const {
    return std_along(axis, unbiased, keepdims);
  }
  template <detail::Integer Axis>
  [[nodiscard]] Tensor var(Axis axis, bool unbiased = true, bool keepdims = false) const {
    return var_along(axis, unbiased, keepdims);
  }
  /// @}
  /// Parts of `axis` of equal sizes, the last one smaller if it does not divide: at most `parts`.
  /// As torch.Tensor.chunk.
  [[nodiscard]] std::vector<Tensor> chunk(std::int64_t parts, std::int64_t axis = 0) const;
  /// The diagonal of the matrices in two axes, as a last axis; `offset`: 0 the main one, positive
  /// above it. Throws ShapeError unless these axes have known sizes. As torch.Tensor.diagonal.
  [[nodiscard]] Tensor diagonal(std::int64_t offset = 0, std::int64_t axis = 0,
                                std::int64_t other = 1) const;
  [[nodiscard]] Tensor any() const;  ///< as reduce_any()
  [[nodiscard]] Tensor all() const;  ///< as reduce_all()
  /// @{
  /// The same along an axis.
  [[nodiscard]] Tensor any(std::int64_t axis, bool keepdims = false) const;
  [[nodiscard]] Tensor all(std::int64_t axis, bool keepdims = false) const;
  [[nodiscard]] Tensor prod(std::int64_t axis, bool keepdims = false) const;
  /// @}
  [[nodiscard]] Tensor flatten() const { return reshape({-1}); }  ///< a vector of all elements
  /// The axes from `start` to `end`, both included, as one; negative ones count from the end. At
  /// most one of these axes may have a size that is not known. As torch.Tensor.flatten.
  [[nodiscard]] Tensor flatten(std::int64_t start, std::int64_t end = -1) const;
  [[nodiscard]] Tensor view(const Shape& shape) const { return reshape(shape); }  ///< as reshape()
  /// As reshape().
  template <class... Size>
  requires(sizeof...(Size) > 0 && (std::convertible_to<const Size&, Dim> && ...))
      [[nodiscard]] Tensor view(const Size&... sizes) const {
    return reshape(sizes...);
  }
  /// The shape of `other`.
  [[nodiscard]] Tensor view_as(const Tensor& other) const { return reshape(other.shape()); }
  [[nodiscard]] Tensor reshape_as(const Tensor& other) const {
    return reshape(other.shape());
  }  ///< the same
  [[nodiscard]] Tensor type_as(const Tensor& other) const {
    return to(other.dtype());
  }  ///< the dtype of `other`
  /// The same with the axes as arguments.
  template <detail::Integer... Axis>
  requires(sizeof...(Axis) > 1) [[nodiscard]] Tensor permute(Axis... axes) const {
    return permute(Dims{static_cast<std::int64_t>(axes)...});
  }
  [[nodiscard]] Tensor permute(const Dims& axes) const {
    return transpose(axes);
  }                                                              ///< as transpose
  [[nodiscard]] Tensor T() const { return transpose(); }         ///< the axes in reverse order
  [[nodiscard]] Tensor t() const { return transpose(); }         ///< as T()
  [[nodiscard]] Tensor mT() const { return transpose(-2, -1); }  ///< each matrix transposed
  [[nodiscard]] Tensor unsqueeze(std::int64_t axis) const;       ///< as expand_dims()
  [[nodiscard]] Tensor squeeze(const Dims& axes = {}) const;     ///< as tandem::squeeze()
  [[nodiscard]] Tensor squeeze(std::int64_t axis) const {
    return squeeze(Dims{axis});
  }                                                       ///< one axis
  [[nodiscard]] Tensor expand(const Shape& shape) const;  ///< as broadcast_to()
  [[nodiscard]] Tensor expand_as(const Tensor& other) const {
    return expand(other.shape());
  }                                                           ///< as expand()
  [[nodiscard]] Tensor repeat(const Sizes& multiples) const;  ///< as tile()
  /// Rows [begin, end) of the first axis. As slice_rows(), which is the name to write: libtorch's
  /// slice(dim, start) has the same arguments and another meaning.
  [[deprecated(
      "slice(begin, end) takes rows; libtorch's slice(dim, start) is x.slice(dim, start, None): "
      "write x[Slice(begin, end)], or x.slice(axis, begin, end)")]] [[nodiscard]] Tensor
  slice(Dim begin, Dim end) const;
  /// Positions from `begin` on of `axis`: `x.slice(0, 5, None)`.
  [[nodiscard]] Tensor slice(std::int64_t axis, Dim begin, std::nullopt_t end,
                             std::int64_t step = 1) const;
  /// Positions begin, begin + step, ... before `end` of `axis`. As torch.Tensor.slice.
  [[nodiscard]] Tensor slice(std::int64_t axis, Dim begin, Dim end, std::int64_t step = 1) const;
  /// `length` positions of `axis` from `begin` on. As torch.Tensor.narrow.
  [[nodiscard]] Tensor narrow(std::int64_t axis, Dim begin, Dim length) const {
    return slice(axis, begin, begin + length);
  }
  /// The slice at `index` of `axis`, which is removed. As torch.Tensor.select.
  [[nodiscard]] Tensor select(std::int64_t axis, Dim index) const;
  /// As gather(). As torch.Tensor.index_select.
  [[nodiscard]] Tensor index_select(std::int64_t axis, const Tensor& indices) const;
  /// As take_along_axis(). As torch.Tensor.gather.
  [[nodiscard]] Tensor gather(std::int64_t axis, const Tensor& indices) const;
  /// As tandem::roll().
  [[nodiscard]] Tensor roll(std::int64_t shift, std::int64_t axis) const;
  /// Parts of `size` positions of `axis`, the last one smaller if it does not divide. As
  /// torch.Tensor.split; tandem::split() takes the number of parts.
  [[nodiscard]] std::vector<Tensor> split(std::int64_t size, std::int64_t axis = 0) const;
  /// Whether both have the same shape and equal elements. Waits for the device. As
  /// torch.Tensor.equal.
  bool equal(const Tensor& other) const;
  [[nodiscard]] Tensor masked_select(const Tensor& mask) const;  ///< as boolean_mask()
  /// @{
  /// This tensor with `value`, which takes its dtype, where the bool `mask` is true. The mask
  /// broadcasts to the shape. As torch.Tensor.masked_fill.
  [[nodiscard]] Tensor masked_fill(const Tensor& mask, double value) const;
  [[nodiscard]] Tensor masked_fill(const Tensor& mask, Dim value) const;
  /// @}
  /// This tensor: all are dense and row-major.
  [[nodiscard]] Tensor contiguous() const { return *this; }
  bool is_contiguous() const { return defined(); }  ///< true
  /// A tensor with the same elements. Since operations never change a tensor it shares storage; its
  /// gradient flows on to this one, as in PyTorch.
  [[nodiscard]] Tensor clone() const;
  [[nodiscard]] Tensor numpy() const { return *this; }  ///< this tensor
  /// The elements, as to_vector(). As numpy.ndarray.tolist of a vector.
  template <class T>
  std::vector<T> tolist() const {
    return to_vector<T>();
  }
  /// The only element, as item<T>(): `loss.numpy<float>()`. See to_vector() for several.
  template <class T>
  T numpy() const {
    return item<T>();
  }
  /// @{
  /// Element-wise comparison. As equal(), not_equal(), less(), ...
  [[nodiscard]] Tensor eq(const Tensor& other) const;
  [[nodiscard]] Tensor ne(const Tensor& other) const;
  [[nodiscard]] Tensor lt(const Tensor& other) const;
  [[nodiscard]] Tensor le(const Tensor& other) const;
  [[nodiscard]] Tensor gt(const Tensor& other) const;
  [[nodiscard]] Tensor ge(const Tensor& other) const;
  [[nodiscard]] Tensor eq(double other) const;
  [[nodiscard]] Tensor ne(double other) const;
  [[nodiscard]] Tensor lt(double other) const;
  [[nodiscard]] Tensor le(double other) const;
  [[nodiscard]] Tensor gt(double other) const;
  [[nodiscard]] Tensor ge(double other) const;
  [[nodiscard]] Tensor eq(Dim other) const;
  [[nodiscard]] Tensor ne(Dim other) const;
  [[nodiscard]] Tensor lt(Dim other) const;
  [[nodiscard]] Tensor le(Dim other) const;
  [[nodiscard]] Tensor gt(Dim other) const;
  [[nodiscard]] Tensor ge(Dim other) const;
  /// @}
  /// @{
  /// Arithmetic, as the operators.
  [[nodiscard]] Tensor add(const Tensor& other) const;
  [[nodiscard]] Tensor sub(const Tensor& other) const;
  [[nodiscard]] Tensor mul(const Tensor& other) const;
  [[nodiscard]] Tensor div(const Tensor& other) const;
  [[nodiscard]] Tensor add(double other) const;
  [[nodiscard]] Tensor sub(double other) const;
  [[nodiscard]] Tensor mul(double other) const;
  [[nodiscard]] Tensor div(double other) const;
  [[nodiscard]] Tensor add(Dim other) const;
  [[nodiscard]] Tensor sub(Dim other) const;
  [[nodiscard]] Tensor mul(Dim other) const;
  [[nodiscard]] Tensor div(Dim other) const;
  [[nodiscard]] Tensor neg() const;
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
  /// As set_requires_grad().
  Tensor& requires_grad_(bool required = true) & { return set_requires_grad(required); }
  /// As set_requires_grad().
  Tensor requires_grad_(bool required = true) && { return set_requires_grad(required); }
  /// Whether backward() accumulates a gradient in grad(), or there is none. As torch's is_leaf.
  bool is_leaf() const;
  /// The gradient that backward() has accumulated in this leaf; undefined if there is none.
  Tensor grad() const;
  void zero_grad();  ///< clears grad()
  /// `w.grad().zero_()` is w.zero_grad(), in PyTorch's words: the next backward() starts from zero.
  /// Throws FailedPreconditionError for a tensor that grad() has not returned.
  void zero_() &&;
  /// Does not compile: write `x = zeros_like(x)`.
  template <class T = void>
  void zero_() & {
    in_place<T>();
  }
  /// Calls `hook` with each gradient of this tensor during a backward pass, before it is used or
  /// accumulated; a hook that returns a defined tensor of the same shape and dtype replaces it. In
  /// a traced function the hook runs while the function is traced. Throws InvalidArgumentError for
  /// a tensor without gradient. As torch.Tensor.register_hook.
  template <class Hook>
  RemovableHandle register_hook(Hook hook) const;
  /// The same elements, without a gradient. As torch.Tensor.detach.
  [[nodiscard]] Tensor detach() const;

  /// For Tandem's own code; never null for a defined tensor.
  explicit Tensor(RefPtr<RefCounted> impl) : impl_(std::move(impl)) {}
  const RefPtr<RefCounted>& handle() const { return impl_; }  ///< for Tandem's own code
  /// For Tandem's own code: dim(axis).word().
  std::int64_t size_word(std::int64_t axis) const { return shape().word(axis); }

 private:
  RemovableHandle add_hook(std::function<Tensor(const Tensor& gradient)> hook) const;
  Tensor row(Dim index) const;
  void check_accessor(int rank) const;
  Tensor std_along(std::int64_t axis, bool unbiased, bool keepdims) const;
  Tensor var_along(std::int64_t axis, bool unbiased, bool keepdims) const;
  ValuesAndIndices max_along(std::int64_t axis, bool keepdims) const;
  ValuesAndIndices min_along(std::int64_t axis, bool keepdims) const;

  RefPtr<RefCounted> impl_;
};

/// Prints the array as NumPy does, for example "[[22. 28.]\n [49. 64.]]".
std::ostream& operator<<(std::ostream& out, const Tensor& tensor);

}  // namespace tandem

#include "tandem/tensor_parts.h"
