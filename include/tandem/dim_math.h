/// @file
/// Operations of a tensor and a size (tandem/dim.h): the size takes the tensor's dtype, as a number
/// does, also if it is unknown until the graph runs. Part of tandem/math.h.
#pragma once

#include <concepts>

#include "tandem/tensor.h"

namespace tandem {

namespace detail {
// The size as a scalar of this dtype.
Tensor scalar_of(Dim size, DType dtype);
// a = result (tandem/math.h).
Tensor& replace(Tensor& a, Tensor result);

// f(size), as a number or, if it is unknown, as a scalar of x's dtype.
template <class F>
Tensor with_size(const Tensor& x, const Dim& size, const F& f) {
  return size.known() ? f(static_cast<double>(size.value())) : f(scalar_of(size, x.dtype()));
}
}  // namespace detail

/// @cond
#define TANDEM_SIZE_RIGHT(name)                                                          \
  template <std::same_as<Dim> Size>                                                      \
  [[nodiscard]] Tensor name(const Tensor& a, const Size& b) {                            \
    return detail::with_size(a, b, [&](const auto& number) { return name(a, number); }); \
  }
#define TANDEM_SIZE_LEFT(name)                                                           \
  template <std::same_as<Dim> Size>                                                      \
  [[nodiscard]] Tensor name(const Size& a, const Tensor& b) {                            \
    return detail::with_size(b, a, [&](const auto& number) { return name(number, b); }); \
  }
/// @endcond

/// @{
/// The functions of these names in tandem/math.h, of a tensor and a size or a size and a tensor.
TANDEM_SIZE_RIGHT(add)
TANDEM_SIZE_RIGHT(subtract)
TANDEM_SIZE_LEFT(subtract)
TANDEM_SIZE_RIGHT(multiply)
TANDEM_SIZE_RIGHT(divide)
TANDEM_SIZE_LEFT(divide)
TANDEM_SIZE_RIGHT(floor_divide)
TANDEM_SIZE_RIGHT(floor_mod)
TANDEM_SIZE_RIGHT(pow)
TANDEM_SIZE_LEFT(pow)
TANDEM_SIZE_RIGHT(maximum)
TANDEM_SIZE_RIGHT(minimum)
TANDEM_SIZE_RIGHT(equal)
TANDEM_SIZE_RIGHT(not_equal)
TANDEM_SIZE_RIGHT(less)
TANDEM_SIZE_RIGHT(less_equal)
TANDEM_SIZE_RIGHT(greater)
TANDEM_SIZE_RIGHT(greater_equal)
TANDEM_SIZE_RIGHT(operator+)
TANDEM_SIZE_LEFT(operator+)
TANDEM_SIZE_RIGHT(operator-)
TANDEM_SIZE_LEFT(operator-)
TANDEM_SIZE_RIGHT(operator*)
TANDEM_SIZE_LEFT(operator*)
TANDEM_SIZE_RIGHT(operator/)
TANDEM_SIZE_LEFT(operator/)
TANDEM_SIZE_RIGHT(operator%)
TANDEM_SIZE_RIGHT(operator==)
TANDEM_SIZE_LEFT(operator==)
TANDEM_SIZE_RIGHT(operator!=)
TANDEM_SIZE_LEFT(operator!=)
TANDEM_SIZE_RIGHT(operator<)
TANDEM_SIZE_LEFT(operator<)
TANDEM_SIZE_RIGHT(operator<=)
TANDEM_SIZE_LEFT(operator<=)
TANDEM_SIZE_RIGHT(operator>)
TANDEM_SIZE_LEFT(operator>)
TANDEM_SIZE_RIGHT(operator>=)
TANDEM_SIZE_LEFT(operator>=)
/// @}
#undef TANDEM_SIZE_RIGHT
#undef TANDEM_SIZE_LEFT

/// @{
/// As the operators of a tensor and a number that change `a`.
template <std::same_as<Dim> Size>
Tensor& operator+=(Tensor& a, const Size& b) {
  return detail::replace(a, a + b);
}
template <std::same_as<Dim> Size>
Tensor& operator-=(Tensor& a, const Size& b) {
  return detail::replace(a, a - b);
}
template <std::same_as<Dim> Size>
Tensor& operator*=(Tensor& a, const Size& b) {
  return detail::replace(a, a * b);
}
template <std::same_as<Dim> Size>
Tensor& operator/=(Tensor& a, const Size& b) {
  return detail::replace(a, a / b);
}
/// @}

/// @{
/// The functions of these names in tandem/math.h, where a limit or the elements are a size.
template <class Low, class High>
requires(std::same_as<Low, Dim> || std::same_as<High, Dim>) [[nodiscard]] Tensor
    clip_by_value(const Tensor& x, const Low& low, const High& high) {
  return minimum(maximum(x, low), high);
}
template <std::same_as<Dim> Size>
[[nodiscard]] Tensor where(const Tensor& condition, const Tensor& a, const Size& b) {
  return detail::with_size(a, b, [&](const auto& number) { return where(condition, a, number); });
}
template <std::same_as<Dim> Size>
[[nodiscard]] Tensor where(const Tensor& condition, const Size& a, const Tensor& b) {
  return detail::with_size(b, a, [&](const auto& number) { return where(condition, number, b); });
}
/// @}

template <class Low, class High>
requires(std::same_as<Low, Dim> || std::same_as<High, Dim>) Tensor Tensor::clamp(const Low& low,
                                                                                 const High& high)
const { return clip_by_value(*this, low, high); }

}  // namespace tandem
