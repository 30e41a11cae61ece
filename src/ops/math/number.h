// Scalar operands (C++ numbers), which take the tensor's dtype.
#pragma once

#include <string_view>
#include <type_traits>

#include "tandem/dtype.h"

namespace tandem {

// Whether `value` can be converted to `dtype`: integers must represent it exactly, floating dtypes
// may round it but not overflow, and bool accepts 0 and 1.
bool holds(DType dtype, double value);
// Throws InvalidArgumentError "[op] expected a number that int32 holds, got 2.5" unless it does.
void check_number(std::string_view op, DType dtype, double value);

// Converts `value` to an element. REQUIRES: holds(dtype_of<T>, value).
template <class T>
T to_element(double value) {
  if constexpr (sizeof(T) == 2 && !std::is_integral_v<T>)
    return T(static_cast<float>(value));
  else
    return static_cast<T>(value);
}

// The number that a kernel computes with instead of `value` if it computes float16 in float32.
inline double rounded(DType dtype, double value) {
  return dtype == float16 ? static_cast<float>(to_element<Half>(value)) : value;
}

}  // namespace tandem
