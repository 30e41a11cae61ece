/// @file
/// Tensors from values: constants, ranges and filled tensors. Named as in TensorFlow.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "tandem/tensor.h"

namespace tandem {

/// A number or a nested list of numbers, as in constant({{1.0, 2.0}, {3.0, 4.0}}). Floating-point
/// numbers give float32, integers int32, bools bool; a list that mixes them gives float32.
class Literal {
 public:
  /// A bool.
  Literal(bool value)
      : kind_(Kind::kBool), number_(value ? 1.0 : 0.0), integer_(value) {}  // NOLINT
  /// An integer.
  template <std::integral T>
  requires(!std::same_as<T, bool>) Literal(T value)  // NOLINT: implicit, as in a literal
      : kind_(Kind::kInteger),
        number_(static_cast<double>(value)),
        integer_(static_cast<std::int64_t>(value)) {}
  /// A size. Throws InvalidArgumentError if it is unknown: a list has numbers only.
  Literal(const Dim& size) : Literal(size.value()) {}  // NOLINT: implicit
  /// A floating-point number.
  template <std::floating_point T>
  Literal(T value) : kind_(Kind::kFloat), number_(static_cast<double>(value)) {}  // NOLINT
  /// A list.
  Literal(std::initializer_list<Literal> items) : kind_(Kind::kList), items_(items) {}

  /// Kind of a literal.
  enum class Kind {
    kBool,     ///< a bool
    kInteger,  ///< an integer
    kFloat,    ///< a floating-point number
    kList,     ///< a list of literals
  };
  Kind kind() const { return kind_; }        ///< kind of this literal
  double number() const { return number_; }  ///< value as double; 0 for lists
  /// Value as integer; 0 unless it is an integer or a bool.
  std::int64_t integer() const { return integer_; }
  const std::vector<Literal>& items() const { return items_; }  ///< elements of a list

 private:
  Kind kind_;
  double number_ = 0.0;
  std::int64_t integer_ = 0;
  std::vector<Literal> items_;
};

/// Options of constant().
struct ConstantOptions {
  std::optional<DType> dtype{};  ///< default: by the elements
  /// Shape of the result, with as many elements. A single element fills any shape.
  Shape shape{};
  std::string_view device{};   ///< device of the result; default: the current one
  bool requires_grad = false;  ///< as Tensor::set_requires_grad()
  std::string_view name{};     ///< name of the operation in a graph
};

/// Returns a tensor of these elements on the current device. Throws InvalidArgumentError for ragged
/// lists, values that the dtype cannot hold, and shapes with another number of elements. As
/// tf.constant.
[[nodiscard]] Tensor constant(const Literal& values, const ConstantOptions& options = {});
namespace detail {
Tensor constant_of(Dim size, const ConstantOptions& options);
}  // namespace detail
/// A size as a tensor, also one that is unknown until the graph runs; int32 without a dtype.
template <std::same_as<Dim> Size>
[[nodiscard]] Tensor constant(const Size& size, const ConstantOptions& options = {}) {
  return detail::constant_of(size, options);
}

namespace detail {

// The kind of a C++ number.
struct NumberType {
  std::uint8_t size = 0;  // in bytes
  bool is_signed = false, floating = false;
};
template <class T>
constexpr NumberType number_type = {sizeof(T), std::is_signed_v<T>, std::is_floating_point_v<T>};

// constant() of `count` numbers of this type at `numbers`, of shape `shape` unless the options have
// one.
Tensor constant_of(const void* numbers, std::size_t count, NumberType type, bool is_bool,
                   const Shape& shape, const ConstantOptions& options);
// The same for bools.
Tensor constant_of(const std::vector<bool>& bools, const Shape& shape,
                   const ConstantOptions& options);
[[noreturn]] void fail_ragged(std::size_t first, std::size_t row, std::size_t size);

}  // namespace detail

/// @{
/// Returns a tensor of these numbers, of shape [size] or options.shape. Without a dtype they keep
/// theirs; int32 stands for the smaller integers that have no dtype, int64 for unsigned ones of 32
/// and 64 bits. As tf.constant.
template <detail::Arithmetic T>
[[nodiscard]] Tensor constant(std::span<const T> values, const ConstantOptions& options = {}) {
  return detail::constant_of(values.data(), values.size(), detail::number_type<T>,
                             std::is_same_v<T, bool>,
                             Shape{static_cast<std::int64_t>(values.size())}, options);
}
template <detail::Arithmetic T>
[[nodiscard]] Tensor constant(std::span<T> values, const ConstantOptions& options = {}) {
  return constant(std::span<const T>(values), options);
}
template <detail::Arithmetic T, std::size_t kSize>
[[nodiscard]] Tensor constant(const std::array<T, kSize>& values,
                              const ConstantOptions& options = {}) {
  return constant(std::span<const T>(values), options);
}
template <detail::Arithmetic T>
[[nodiscard]] Tensor constant(const std::vector<T>& values, const ConstantOptions& options = {}) {
  if constexpr (std::is_same_v<T, bool>)
    return detail::constant_of(values, Shape{static_cast<std::int64_t>(values.size())}, options);
  else
    return constant(std::span<const T>(values), options);
}
/// @}
/// @{
/// The same with a shape or a dtype alone: constant(numbers, {2, 3}), constant({1, 2}, float32).
template <class Numbers, std::same_as<Shape> S = Shape>
requires requires(const Numbers& n) {
  constant(n);
} &&(!std::convertible_to<Numbers, Literal>) [[nodiscard]] Tensor
    constant(const Numbers& values, const S& shape) {
  return constant(values, ConstantOptions{.shape = shape});
}
template <class Numbers>
requires requires(const Numbers& n) {
  constant(n);
} &&(!std::convertible_to<Numbers, Literal>) [[nodiscard]] Tensor
    constant(const Numbers& values, DType dtype) {
  return constant(values, ConstantOptions{.dtype = dtype});
}
[[nodiscard]] inline Tensor constant(const Literal& values, DType dtype) {
  return constant(values, ConstantOptions{.dtype = dtype});
}
/// @}
/// The same of the rows of a matrix, of shape [rows, columns]. Throws InvalidArgumentError for rows
/// of different lengths.
template <detail::Arithmetic T>
[[nodiscard]] Tensor constant(const std::vector<std::vector<T>>& rows,
                              const ConstantOptions& options = {}) {
  std::vector<T> numbers;
  const std::size_t columns = rows.empty() ? 0 : rows.front().size();
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (rows[i].size() != columns) detail::fail_ragged(columns, i, rows[i].size());
    numbers.insert(numbers.end(), rows[i].begin(), rows[i].end());
  }
  const Shape shape{static_cast<std::int64_t>(rows.size()), static_cast<std::int64_t>(columns)};
  if constexpr (std::is_same_v<T, bool>)
    return detail::constant_of(numbers, shape, options);
  else
    return detail::constant_of(numbers.data(), numbers.size(), detail::number_type<T>, false, shape,
                               options);
}
template <detail::Arithmetic Number>
Tensor::Tensor(const std::vector<Number>& numbers) : Tensor(constant(numbers)) {}
template <detail::Arithmetic Number>
Tensor::Tensor(const std::vector<Number>& numbers, const Shape& shape)
    : Tensor(constant(numbers, ConstantOptions{.shape = shape})) {}
template <class Number>
requires detail::Arithmetic<std::remove_cv_t<Number>> Tensor::Tensor(std::span<Number> numbers,
                                                                     const Shape& shape)
    : Tensor(constant(numbers, ConstantOptions{.shape = shape})) {}
template <detail::Arithmetic Number>
Tensor::Tensor(const Number* numbers, const Shape& shape)
    : Tensor(std::span(numbers, static_cast<std::size_t>(shape.num_elements())), shape) {}
template <detail::Arithmetic Number>
Tensor::Tensor(const std::vector<std::vector<Number>>& rows) : Tensor(constant(rows)) {}

/// @{
/// As constant(), but integers without a dtype are int64. As torch.tensor.
[[nodiscard]] Tensor tensor(const Literal& values, const ConstantOptions& options = {});
[[nodiscard]] inline Tensor tensor(const Literal& values, DType dtype) {
  return tensor(values, {.dtype = dtype});
}
template <class Numbers>
requires requires(const Numbers& n) {
  constant(n);
} &&(!std::convertible_to<Numbers, Literal>) [[nodiscard]] Tensor
    tensor(const Numbers& values, const ConstantOptions& options = {}) {
  return constant(values, options);
}
template <class Numbers>
requires(!std::convertible_to<Numbers, Literal>) [[nodiscard]] Tensor
    tensor(const Numbers& values, DType dtype) {
  return tensor(values, ConstantOptions{.dtype = dtype});
}
/// @}

/// Options of the functions below.
struct CreationOptions {
  DType dtype = float32;       ///< dtype of the result
  std::string_view device{};   ///< device of the result; default: the current one
  bool requires_grad = false;  ///< as Tensor::set_requires_grad()
  std::string_view name{};     ///< name of the operation in a graph
};
/// The options of the functions above and below, set one after another:
/// `zeros({3}, TensorOptions().dtype(float64).requires_grad(true))`. As torch::TensorOptions.
class TensorOptions {
 public:
  TensorOptions() = default;
  /// Sets the dtype.
  TensorOptions dtype(DType dtype) && {
    dtype_ = dtype;
    return std::move(*this);
  }
  /// Sets the device.
  TensorOptions device(std::string_view device) && {
    device_ = device;
    return std::move(*this);
  }
  /// Sets whether the tensor gets a gradient.
  TensorOptions requires_grad(bool required = true) && {
    requires_grad_ = required;
    return std::move(*this);
  }
  /// @{
  /// The options, valid while this object lives.
  operator CreationOptions() const {  // NOLINT: implicit
    return {.dtype = dtype_.value_or(float32), .device = device_, .requires_grad = requires_grad_};
  }
  operator ConstantOptions() const {  // NOLINT: implicit
    return {.dtype = dtype_, .device = device_, .requires_grad = requires_grad_};
  }
  /// @}

 private:
  std::optional<DType> dtype_;
  std::string device_;
  bool requires_grad_ = false;
};
namespace detail {
Tensor full_of(const Shape& shape, Dim value, const CreationOptions& options);
Tensor range_of(Dim start, Dim limit, const CreationOptions& options);
}  // namespace detail
/// @{
/// Returns a tensor filled with zeros, ones or `value`. An unset shape gives a scalar. As tf.zeros,
/// tf.ones and tf.fill.
[[nodiscard]] Tensor zeros(const Shape& shape, const CreationOptions& options = {});
[[nodiscard]] Tensor ones(const Shape& shape, const CreationOptions& options = {});
[[nodiscard]] Tensor full(const Shape& shape, double value, const CreationOptions& options = {});
template <std::same_as<Dim> Size>
[[nodiscard]] Tensor full(const Shape& shape, const Size& value,
                          const CreationOptions& options = {}) {
  return detail::full_of(shape, value, options);
}
[[nodiscard]] inline Tensor zeros(const Shape& shape, DType dtype) {
  return zeros(shape, {.dtype = dtype});
}
[[nodiscard]] inline Tensor ones(const Shape& shape, DType dtype) {
  return ones(shape, {.dtype = dtype});
}
[[nodiscard]] inline Tensor full(const Shape& shape, double value, DType dtype) {
  return full(shape, value, {.dtype = dtype});
}
/// @}
/// @{
/// Returns zeros or ones of the tensor's shape and dtype. As tf.zeros_like and tf.ones_like.
[[nodiscard]] Tensor zeros_like(const Tensor& tensor);
[[nodiscard]] Tensor ones_like(const Tensor& tensor);
/// @}
/// @{
/// Returns start, start + delta, ... up to but without `limit`; by default int32 for integers and
/// float32 otherwise. Throws InvalidArgumentError for bounds that are NaN. As tf.range, but empty
/// if delta leads away from the limit.
[[nodiscard]] Tensor range(Dim limit, const CreationOptions& options = {.dtype = int32});
template <class A, class B>
requires detail::DimPair<A, B>
[[nodiscard]] Tensor range(const A& start, const B& limit,
                           const CreationOptions& options = {.dtype = int32}) {
  return detail::range_of(start, limit, options);
}
[[nodiscard]] Tensor range(double start, double limit, double delta = 1.0,
                           const CreationOptions& options = {});
template <std::floating_point T>
[[nodiscard]] Tensor range(T limit, const CreationOptions& options = {}) {
  return range(0.0, static_cast<double>(limit), 1.0, options);
}
template <std::integral T, std::integral U, std::integral V = int>
[[nodiscard]] Tensor range(T start, U limit, V delta = 1,
                           const CreationOptions& options = {.dtype = int32}) {
  return range(static_cast<double>(start), static_cast<double>(limit), static_cast<double>(delta),
               options);
}
/// @}
/// @{
/// As range(), but int64 for integers. As torch.arange and numpy.arange.
template <class T, class U = T, class V = int>
requires std::is_arithmetic_v<T> && std::is_arithmetic_v<U> && std::is_arithmetic_v<V>
[[nodiscard]] Tensor arange(T start, U limit, V delta = 1) {
  constexpr bool kIntegers = std::integral<T> && std::integral<U> && std::integral<V>;
  return range(static_cast<double>(start), static_cast<double>(limit), static_cast<double>(delta),
               CreationOptions{.dtype = kIntegers ? int64 : float32});
}
template <class T>
requires std::is_arithmetic_v<T>
[[nodiscard]] Tensor arange(T limit) { return arange(T{0}, limit); }
template <class T>
requires std::is_arithmetic_v<T>
[[nodiscard]] Tensor arange(T limit, const CreationOptions& options) {
  return range(0.0, static_cast<double>(limit), 1.0, options);
}
template <class T>
requires std::is_arithmetic_v<T>
[[nodiscard]] Tensor arange(T limit, DType dtype) { return arange(limit, {.dtype = dtype}); }
template <std::same_as<Dim> Size>
[[nodiscard]] Tensor arange(const Size& limit, const CreationOptions& options = {.dtype = int64}) {
  return range(limit, options);
}
template <std::same_as<Dim> Size>
[[nodiscard]] Tensor arange(const Size& limit, DType dtype) {
  return range(limit, {.dtype = dtype});
}
template <class A, class B>
requires detail::DimPair<A, B>
[[nodiscard]] Tensor arange(const A& start, const B& limit, DType dtype = int64) {
  return detail::range_of(start, limit, {.dtype = dtype});
}
template <class T, class U>
requires std::is_arithmetic_v<T> && std::is_arithmetic_v<U>
[[nodiscard]] Tensor arange(T start, U limit, DType dtype) {
  return range(static_cast<double>(start), static_cast<double>(limit), 1.0,
               CreationOptions{.dtype = dtype});
}
/// @}
/// Returns `count` evenly spaced values from `start` to `stop`, both included. As tf.linspace.
[[nodiscard]] Tensor linspace(double start, double stop, Dim count,
                              const CreationOptions& options = {});
/// Returns a `rows` x `columns` matrix (square if columns is -1) with ones on the main diagonal and
/// zeros elsewhere. Throws InvalidArgumentError for other negative columns. As tf.eye.
[[nodiscard]] Tensor eye(Dim rows, Dim columns = -1, const CreationOptions& options = {});
/// @{
/// The elements of matrices, the last two axes of x, on and below (tril) or above (triu) a
/// diagonal, and zeros elsewhere. `diagonal`: 0 the main one, positive above it. Throws ShapeError
/// unless these axes have known sizes. As torch.tril and torch.triu.
[[nodiscard]] Tensor tril(const Tensor& x, std::int64_t diagonal = 0);
[[nodiscard]] Tensor triu(const Tensor& x, std::int64_t diagonal = 0);
/// @}

namespace detail {
// `made` on the device of the options, and with a gradient if they say so.
Tensor with_options(Tensor made, const CreationOptions& options);
}  // namespace detail

}  // namespace tandem
