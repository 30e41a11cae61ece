// Tensors from literals and vectors.
#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "core/status.h"
#include "op/dtype_switch.h"
#include "ops/math/number.h"
#include "ops/math/placed.h"
#include "runtime/trace.h"
#include "tandem/creation.h"
#include "tensor/tensor_impl.h"

namespace tandem {
namespace {

// The shape of the nested lists, and their numbers in row-major order.
struct Flattened {
  Dims sizes;
  std::vector<const Literal*> numbers;
  bool any_float = false, any_integer = false, any_bool = false;

  explicit Flattened(const Literal& literal) {
    for (const Literal* first = &literal; first->kind() == Literal::Kind::kList;
         first = &first->items()[0]) {
      sizes.push_back(static_cast<std::int64_t>(first->items().size()));
      if (first->items().empty()) break;
    }
    visit(literal, 0);
  }

  DType dtype() const {
    if (any_integer && !any_float && !any_bool) return int32;
    if (any_bool && !any_float && !any_integer) return bool_;
    return float32;
  }

 private:
  void visit(const Literal& literal, int depth) {
    const bool is_list = literal.kind() == Literal::Kind::kList;
    if (is_list != (depth < sizes.size()))
      fail<InvalidArgumentError>("[Const] expected lists of one depth, got {} beside {}",
                                 is_list ? "a list" : "a number", is_list ? "a number" : "a list");
    if (!is_list) {
      numbers.push_back(&literal);
      any_float |= literal.kind() == Literal::Kind::kFloat;
      any_integer |= literal.kind() == Literal::Kind::kInteger;
      any_bool |= literal.kind() == Literal::Kind::kBool;
      return;
    }
    const auto size = static_cast<std::int64_t>(literal.items().size());
    if (size != sizes[depth])
      fail<InvalidArgumentError>(
          "[Const] expected lists of one length, {} items at depth {}, got {}", sizes[depth], depth,
          size);
    for (const Literal& item : literal.items()) visit(item, depth + 1);
  }
};

// Whether a dtype has elements of type T.
template <class T>
constexpr bool dtype_or_none =
    std::is_same_v<T, float> || std::is_same_v<T, double> || std::is_same_v<T, std::int32_t> ||
    std::is_same_v<T, std::int64_t> || std::is_same_v<T, std::uint8_t> || std::is_same_v<T, bool> ||
    std::is_same_v<T, std::int8_t> || std::is_same_v<T, std::int16_t> ||
    std::is_same_v<T, std::uint16_t> || std::is_same_v<T, std::uint32_t> ||
    std::is_same_v<T, std::uint64_t>;
// Integers, for which std::in_range() is declared.
template <class T>
constexpr bool is_whole = std::is_integral_v<T> && !std::is_same_v<T, bool>;

template <class To>
To checked_element(double number) {
  check_number("Const", dtype_of<To>, number);
  return to_element<To>(number);
}

// Integers are converted without passing through double, which would round large ones.
template <class To, class From>
To element_from(From value) {
  if constexpr (std::is_same_v<To, From>) return value;
  if constexpr (is_whole<To> && is_whole<From>)
    if (std::in_range<To>(value)) return static_cast<To>(value);
  return checked_element<To>(static_cast<double>(value));
}

template <class To>
To element_from(const Literal& literal) {
  if constexpr (is_whole<To>)
    if (literal.kind() == Literal::Kind::kInteger) {
      // From 2^63 on, the integer has the bits of an unsigned one.
      if (literal.integer() < 0 && literal.number() > 0.0)
        return element_from<To>(static_cast<std::uint64_t>(literal.integer()));
      return element_from<To>(literal.integer());
    }
  return checked_element<To>(literal.number());
}

// A tensor of `count` elements element(i), in the shape of the options.
template <class T, class F>
Tensor build(std::int64_t count, const Shape& own_shape, const ConstantOptions& options,
             const F& element) {
  const Shape shape = options.shape.known() ? options.shape : own_shape;
  if (!shape.fully_defined())
    fail<ShapeError>("[Const] expected a fully defined shape, got {}", shape.to_string());
  if (shape.too_large())
    fail<ShapeError>("[Const] expected a shape of at most {} elements, got {}", kMaxElements,
                     shape.to_string());
  const std::int64_t size = shape.num_elements();
  if (size != count && count != 1)
    fail<ShapeError>("[Const] expected {} elements for shape {}, got {}", size, shape.to_string(),
                     count);
  // Not std::vector<T>, because std::vector<bool> has no contiguous elements.
  const auto host = std::make_unique_for_overwrite<T[]>(static_cast<std::size_t>(size));
  if (count == size)
    for (std::int64_t i = 0; i < size; ++i) host[static_cast<std::size_t>(i)] = element(i);
  else
    std::fill_n(host.get(), size, element(0));
  return new_constant(shape, dtype_of<T>, host.get(), options.name);
}

}  // namespace

Tensor constant(const Literal& values, const ConstantOptions& options) {
  const Placed placed(options.device);
  const Flattened flat(values);
  const Tensor result =
      switch_any_dtype(options.dtype.value_or(flat.dtype()), [&]<class T>(TypeTag<T>) {
        return build<T>(static_cast<std::int64_t>(flat.numbers.size()), Shape(flat.sizes), options,
                        [&](std::int64_t i) {
                          return element_from<T>(*flat.numbers[static_cast<std::size_t>(i)]);
                        });
      });
  return placed.mark(result, options.requires_grad);
}

namespace detail {
namespace {

// The dtype of C++ numbers of type T.
template <class T>
constexpr DType natural_dtype() {
  if constexpr (std::is_floating_point_v<T>)
    return sizeof(T) == sizeof(float) ? float32 : float64;
  else if constexpr (std::is_same_v<T, bool> || std::is_same_v<T, std::uint8_t>)
    return dtype_of<T>;
  else
    return sizeof(T) < sizeof(std::int32_t) || std::is_same_v<T, std::int32_t> ? int32 : int64;
}

template <class From>
Tensor constant_from(const From* numbers, std::size_t count, const Shape& own_shape,
                     const ConstantOptions& options) {
  const DType dtype = options.dtype.value_or(natural_dtype<From>());
  const Shape& shape = options.shape.known() ? options.shape : own_shape;
  const auto size = static_cast<std::int64_t>(count);
  if constexpr (dtype_or_none<From>)  // copied directly, without a second host copy
    if (dtype == dtype_of<From> && shape.fully_defined() && !shape.too_large() &&
        shape.num_elements() == size)
      return new_constant(shape, dtype, numbers, options.name);
  return switch_any_dtype(dtype, [&]<class T>(TypeTag<T>) {
    return build<T>(size, own_shape, options, [&](std::int64_t i) {
      return element_from<T>(numbers[static_cast<std::size_t>(i)]);
    });
  });
}

// Calls f with a null pointer to the type that `type` describes.
template <class F>
Tensor with_number_type(NumberType type, const F& f) {
  if (type.floating) {
    if (type.size == sizeof(float)) return f(static_cast<const float*>(nullptr));
    if (type.size == sizeof(double)) return f(static_cast<const double*>(nullptr));
    return f(static_cast<const long double*>(nullptr));
  }
  switch (type.size) {
    case 1:
      return type.is_signed ? f(static_cast<const std::int8_t*>(nullptr))
                            : f(static_cast<const std::uint8_t*>(nullptr));
    case 2:
      return type.is_signed ? f(static_cast<const std::int16_t*>(nullptr))
                            : f(static_cast<const std::uint16_t*>(nullptr));
    case 4:
      return type.is_signed ? f(static_cast<const std::int32_t*>(nullptr))
                            : f(static_cast<const std::uint32_t*>(nullptr));
    default:
      return type.is_signed ? f(static_cast<const std::int64_t*>(nullptr))
                            : f(static_cast<const std::uint64_t*>(nullptr));
  }
}

}  // namespace

Tensor constant_of(const void* numbers, std::size_t count, NumberType type, bool is_bool,
                   const Shape& shape, const ConstantOptions& options) {
  const Placed placed(options.device);
  if (is_bool)
    return placed.mark(constant_from(static_cast<const bool*>(numbers), count, shape, options),
                       options.requires_grad);
  return placed.mark(with_number_type(type,
                                      [&]<class From>(const From*) {
                                        return constant_from(static_cast<const From*>(numbers),
                                                             count, shape, options);
                                      }),
                     options.requires_grad);
}

Tensor constant_of(const std::vector<bool>& bools, const Shape& shape,
                   const ConstantOptions& options) {
  const auto copy = std::make_unique<bool[]>(bools.size());
  std::copy(bools.begin(), bools.end(), copy.get());
  return constant_of(copy.get(), bools.size(), number_type<bool>, true, shape, options);
}

void fail_ragged(std::size_t first, std::size_t row, std::size_t size) {
  fail<ShapeError>("[Const] expected rows of one length, {} numbers, got {} in row {}", first, size,
                   row);
}

}  // namespace detail

Tensor tensor(const Literal& values, const ConstantOptions& options) {
  ConstantOptions chosen = options;
  if (!chosen.dtype && Flattened(values).dtype() == int32) chosen.dtype = int64;
  return constant(values, chosen);
}

}  // namespace tandem
