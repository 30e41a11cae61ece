// Tensors from values.
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

// A literal: a number, or a nested list of them. Numbers with a point make float32, others int32,
// bools bool; a list that mixes them is float32.
class Literal {
 public:
  Literal(bool value)
      : kind_(Kind::kBool), number_(value ? 1.0 : 0.0), integer_(value) {}  // NOLINT
  template <std::integral T>
  requires(!std::same_as<T, bool>) Literal(T value)  // NOLINT: implicit, as in a literal
      : kind_(Kind::kInteger),
        number_(static_cast<double>(value)),
        integer_(static_cast<std::int64_t>(value)) {}
  template <std::floating_point T>
  Literal(T value) : kind_(Kind::kFloat), number_(static_cast<double>(value)) {}  // NOLINT
  Literal(std::initializer_list<Literal> items) : kind_(Kind::kList), items_(items) {}

  enum class Kind { kBool, kInteger, kFloat, kList };
  Kind kind() const { return kind_; }
  double number() const { return number_; }
  std::int64_t integer() const { return integer_; }
  const std::vector<Literal>& items() const { return items_; }

 private:
  Kind kind_;
  double number_ = 0.0;
  std::int64_t integer_ = 0;
  std::vector<Literal> items_;
};

struct ConstantOptions {
  std::optional<DType> dtype{};
  // The same elements in another shape. A single element fills any shape.
  Shape shape{};
  std::string_view name{};
};

// A tensor of the literal's elements, on the present device. Throws InvalidArgumentError for ragged
// lists, values that the dtype cannot hold, and shapes of another number of elements.
Tensor constant(const Literal& values, const ConstantOptions& options = {});

// A tensor of the vector's elements: of shape (size), or options.shape.
template <class T>
requires std::is_arithmetic_v<T> Tensor constant(const std::vector<T>& values,
                                                 const ConstantOptions& options = {});

struct CreationOptions {
  DType dtype = float32;
  std::string_view name{};
};
// An unset shape makes a scalar.
Tensor zeros(const Shape& shape, const CreationOptions& options = {});
Tensor ones(const Shape& shape, const CreationOptions& options = {});
Tensor full(const Shape& shape, double value, const CreationOptions& options = {});
Tensor zeros_like(const Tensor& tensor);
Tensor ones_like(const Tensor& tensor);
// [start, start + delta, ...) below limit; `count` elements. int32 unless told otherwise.
Tensor range(std::int64_t limit, const CreationOptions& options = {.dtype = int32});
Tensor range(double start, double limit, double delta = 1.0, const CreationOptions& options = {});
// `count` values from `start` to `stop`, both included.
Tensor linspace(double start, double stop, std::int64_t count, const CreationOptions& options = {});
// The identity matrix, or `rows` x `columns` with ones on the main diagonal.
Tensor eye(std::int64_t rows, std::int64_t columns = -1, const CreationOptions& options = {});

}  // namespace tandem
