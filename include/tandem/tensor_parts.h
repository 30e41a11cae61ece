/// @file
/// The classes beside Tensor: values with their positions, rows, readers of elements, and lists.
/// Included by tandem/tensor.h, at its end.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <span>
#include <tuple>
#include <type_traits>
#include <utility>

namespace tandem {

/// Values and where they were found: a tensor of the values that also is the pair of both, `auto
/// [values, indices] = x.max(1)` or `std::get<1>(x.max(1))`. As the named tuples of torch.max,
/// torch.sort and torch.topk.
class ValuesAndIndices : public Tensor, public std::tuple<Tensor, Tensor> {
 public:
  ValuesAndIndices() = default;
  /// These values and positions.
  ValuesAndIndices(const Tensor& values, const Tensor& indices)
      : Tensor(values),
        std::tuple<Tensor, Tensor>(values, indices),
        values(values),
        indices(indices) {}
  /// Does not compile: the values in Python, the row of position 0 of a tensor.
  template <class Index>
  void operator[](const Index&) const {
    static_assert(detail::kNever<Index>,
                  "max(axis), min(axis), sort() and topk() give values and indices: write .values "
                  "or .indices, and for the values alone x.amax(axis)[i] or .values[i]");
  }

  Tensor values;   ///< values
  Tensor indices;  ///< positions along the axis
};

template <class T>
T Tensor::at(std::initializer_list<AxisIndex> position) const {
  return at(position).template item<T>();
}
template <class T, detail::Integer First, detail::Integer... Rest>
T Tensor::at(First first, Rest... rest) const {
  return at<T>({AxisIndex(first), AxisIndex(rest)...});
}

template <class Hook>
RemovableHandle Tensor::register_hook(Hook hook) const {
  return add_hook([hook = std::move(hook)](const Tensor& gradient) mutable -> Tensor {
    constexpr bool kReplaces = !std::is_void_v<std::invoke_result_t<Hook&, const Tensor&>>;
    if constexpr (kReplaces) return Tensor(hook(gradient));
    hook(gradient);
    return {};
  });
}

}  // namespace tandem

/// @cond
template <>
struct std::tuple_size<tandem::ValuesAndIndices> : std::integral_constant<std::size_t, 2> {};
template <std::size_t I>
struct std::tuple_element<I, tandem::ValuesAndIndices> {
  using type = tandem::Tensor;
};
/// @endcond

namespace tandem {

/// @cond
template <detail::Integer Axis>
ValuesAndIndices Tensor::max(Axis axis, bool keepdims) const {
  return max_along(axis, keepdims);
}
template <detail::Integer Axis>
ValuesAndIndices Tensor::min(Axis axis, bool keepdims) const {
  return min_along(axis, keepdims);
}
/// @endcond

/// An iterator over the slices of a tensor's first axis.
class Tensor::RowIterator {
 public:
  using iterator_category = std::input_iterator_tag;  ///< category
  using value_type = Tensor;                          ///< a slice
  using difference_type = std::int64_t;               ///< difference
  using pointer = const Tensor*;                      ///< not used
  using reference = Tensor;                           ///< slices are made when they are read

  RowIterator() = default;
  /// At slice `row` of `tensor`.
  RowIterator(Tensor tensor, std::int64_t row) : tensor_(std::move(tensor)), row_(row) {}
  Tensor operator*() const { return tensor_[row_]; }  ///< the slice
  /// @{
  /// The next slice.
  RowIterator& operator++() {
    ++row_;
    return *this;
  }
  RowIterator operator++(int) {
    RowIterator before = *this;
    ++row_;
    return before;
  }
  /// @}
  /// Whether both are at the same position.
  friend bool operator==(const RowIterator& a, const RowIterator& b) { return a.row_ == b.row_; }

 private:
  Tensor tensor_;
  std::int64_t row_ = 0;
};

/// Reads the elements of a tensor by its indices. Valid while the tensor exists.
template <class T, int kRank>
class TensorAccessor {
 public:
  /// Reads elements in row-major order with these sizes.
  TensorAccessor(const T* data, const std::int64_t* sizes) : data_(data), sizes_(sizes) {}
  std::int64_t size(int axis) const { return sizes_[axis]; }  ///< size of an axis
  /// The element or the part at this position, which is not checked.
  decltype(auto) operator[](std::int64_t index) const {
    if constexpr (kRank == 1) {
      return static_cast<const T&>(data_[index]);
    } else {
      std::int64_t stride = 1;
      for (int axis = 1; axis < kRank; ++axis) stride *= sizes_[axis];
      return TensorAccessor<T, kRank - 1>(data_ + index * stride, sizes_ + 1);
    }
  }

 private:
  const T* data_;
  const std::int64_t* sizes_;
};

/// The elements of a temporary tensor, which this keeps: what data() of a temporary returns. Used
/// as a pointer, of which a copy is valid while this exists.
template <class T>
class TemporaryData {
 public:
  /// Keeps `tensor`. Throws as its data().
  explicit TemporaryData(Tensor tensor)
      : tensor_(std::move(tensor)), data_(std::as_const(tensor_).template data<T>()) {}
  T operator*() const { return *data_; }                           ///< the first element
  T operator[](std::int64_t index) const { return data_[index]; }  ///< an element, not checked
  const T* get() const& { return data_; }                          ///< the elements
  operator const T*() const& { return data_; }                     ///< the elements NOLINT
  /// Does not compile: the pointer would dangle.
  template <class Pointer>
  requires std::is_pointer_v<Pointer>
  operator Pointer() const&& {  // NOLINT: as a pointer
    static_assert(detail::kNever<Pointer>,
                  "the elements are gone when the temporary tensor ends: keep the tensor in a "
                  "variable, const Tensor y = f(x); const float* p = y.data<float>(); or write "
                  "auto p = f(x).data<float>(), which keeps them");
  }

 private:
  Tensor tensor_;
  const T* data_;
};

/// @cond
template <class T>
TemporaryData<T> Tensor::data() const&& {
  return TemporaryData<T>(*this);
}
template <class T>
TemporaryData<T> Tensor::data_ptr() const&& {
  return TemporaryData<T>(*this);
}
template <class Element, int kRank>
TensorAccessor<Element, kRank> Tensor::accessor() const& {
  check_accessor(kRank);
  return {data<Element>(), shape().words().begin()};
}
/// @endcond

namespace detail {
// A vector, an array or a span of tensors. Cheaper to compile than a conversion to std::span.
template <class Range>
concept HoldsTensors = requires(const Range& range) {
  requires std::same_as<std::remove_cvref_t<decltype(*std::data(range))>, Tensor>;
  std::size(range);
};
}  // namespace detail

/// A list of tensors as a parameter type: converts from a vector, an array, a span, or a list in
/// braces ({a, b}). Refers to the tensors, so use it for parameters only.
class TensorList : public std::span<const Tensor> {
 public:
  /// The tensors of a range. An object that is usable as one tensor is not taken for a list.
  template <class Range>
  requires(detail::HoldsTensors<Range> && !std::convertible_to<const Range&, const Tensor&>)
      TensorList(const Range& tensors)  // NOLINT: implicit
      : span(std::data(tensors), std::size(tensors)) {}
  /// The tensors of a list in braces.
  TensorList(std::initializer_list<Tensor> tensors)  // NOLINT: implicit
      : span(tensors.begin(), tensors.size()) {}
};

}  // namespace tandem
