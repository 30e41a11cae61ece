// Tensors from literals and vectors.
#include <cstring>
#include <vector>

#include "core/status.h"
#include "op/dtype_switch.h"
#include "ops/math/number.h"
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

template <class To>
To checked_element(double number) {
  check_number("Const", dtype_of<To>, number);
  return to_element<To>(number);
}

// Integers are converted without passing through double, which would round large ones.
template <class To, class From>
To element_from(From value) {
  if constexpr (std::is_same_v<To, From>)
    return value;
  else if constexpr (std::is_same_v<To, std::int64_t> && std::is_integral_v<From>)
    return static_cast<To>(value);
  else
    return checked_element<To>(static_cast<double>(value));
}

template <class To>
To element_from(const Literal& literal) {
  if constexpr (std::is_same_v<To, std::int64_t>)
    if (literal.kind() == Literal::Kind::kInteger) return literal.integer();
  return checked_element<To>(literal.number());
}

// A tensor of `count` elements element(i), in the shape of the options.
template <class T, class F>
Tensor build(std::int64_t count, const Shape& own_shape, const ConstantOptions& options,
             const F& element) {
  const Shape shape = options.shape.known() ? options.shape : own_shape;
  if (!shape.fully_defined())
    fail<InvalidArgumentError>("[Const] expected a fully defined shape, got {}", shape.to_string());
  if (shape.too_large())
    fail<InvalidArgumentError>("[Const] expected a shape of at most {} elements, got {}",
                               kMaxElements, shape.to_string());
  const std::int64_t size = shape.num_elements();
  if (size != count && count != 1)
    fail<InvalidArgumentError>("[Const] expected {} elements for shape {}, got {}", size,
                               shape.to_string(), count);
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
  const Flattened flat(values);
  return switch_dtype(options.dtype.value_or(flat.dtype()), [&]<class T>(TypeTag<T>) {
    return build<T>(static_cast<std::int64_t>(flat.numbers.size()), Shape(flat.sizes), options,
                    [&](std::int64_t i) {
                      return element_from<T>(*flat.numbers[static_cast<std::size_t>(i)]);
                    });
  });
}

template <class From>
requires std::is_arithmetic_v<From> Tensor constant(const std::vector<From>& values,
                                                    const ConstantOptions& options) {
  const auto count = static_cast<std::int64_t>(values.size());
  const Shape own_shape = {count};
  const Shape& shape = options.shape.known() ? options.shape : own_shape;
  if constexpr (!std::is_same_v<From, bool>)  // copied directly, without a second host copy
    if (options.dtype.value_or(dtype_of<From>) == dtype_of<From> && shape.fully_defined() &&
        !shape.too_large() && shape.num_elements() == count)
      return new_constant(shape, dtype_of<From>, values.data(), options.name);
  return switch_dtype(options.dtype.value_or(dtype_of<From>), [&]<class T>(TypeTag<T>) {
    return build<T>(count, own_shape, options, [&](std::int64_t i) {
      return element_from<T>(static_cast<From>(values[static_cast<std::size_t>(i)]));
    });
  });
}

template Tensor constant(const std::vector<float>&, const ConstantOptions&);
template Tensor constant(const std::vector<double>&, const ConstantOptions&);
template Tensor constant(const std::vector<std::int32_t>&, const ConstantOptions&);
template Tensor constant(const std::vector<std::int64_t>&, const ConstantOptions&);
template Tensor constant(const std::vector<std::uint8_t>&, const ConstantOptions&);
template Tensor constant(const std::vector<bool>&, const ConstantOptions&);

}  // namespace tandem
