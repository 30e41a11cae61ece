/// @file
/// Tensors from values: constants, ranges and filled tensors. Named as in TensorFlow.
#pragma once

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string_view>
#include <type_traits>
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
  std::optional<DType> dtype{};  ///< default: by the elements, as Literal says
  /// Shape of the result, with as many elements. A single element fills any shape.
  Shape shape{};
  std::string_view name{};  ///< name of the operation in a graph
};

/// Returns a tensor of these elements on the current device. Throws InvalidArgumentError for ragged
/// lists, values that the dtype cannot hold, and shapes with another number of elements. As
/// tf.constant.
[[nodiscard]] Tensor constant(const Literal& values, const ConstantOptions& options = {});

/// Returns a tensor of the vector's elements, of shape [size] or options.shape. As tf.constant.
template <class T>
requires std::is_arithmetic_v<T> Tensor constant(const std::vector<T>& values,
                                                 const ConstantOptions& options = {});

/// Options of the functions below.
struct CreationOptions {
  DType dtype = float32;    ///< dtype of the result
  std::string_view name{};  ///< name of the operation in a graph
};
/// @{
/// Returns a tensor filled with zeros, ones or `value`. An unset shape gives a scalar. As tf.zeros,
/// tf.ones and tf.fill.
[[nodiscard]] Tensor zeros(const Shape& shape, const CreationOptions& options = {});
[[nodiscard]] Tensor ones(const Shape& shape, const CreationOptions& options = {});
[[nodiscard]] Tensor full(const Shape& shape, double value, const CreationOptions& options = {});
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
[[nodiscard]] Tensor range(std::int64_t limit, const CreationOptions& options = {.dtype = int32});
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
/// Returns `count` evenly spaced values from `start` to `stop`, both included. As tf.linspace.
[[nodiscard]] Tensor linspace(double start, double stop, std::int64_t count,
                              const CreationOptions& options = {});
/// Returns a `rows` x `columns` matrix (square if columns is -1) with ones on the main diagonal and
/// zeros elsewhere. Throws InvalidArgumentError for other negative columns. As tf.eye.
[[nodiscard]] Tensor eye(std::int64_t rows, std::int64_t columns = -1,
                         const CreationOptions& options = {});

}  // namespace tandem
