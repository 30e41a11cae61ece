// Numbers that stand beside tensors: they take the tensor's dtype.
#pragma once

#include <string_view>

#include "tandem/dtype.h"

namespace tandem {

// Whether `value` can be an element: integers must hold it exactly, floating types round it but
// must not overflow; bool holds 0 and 1.
bool holds(DType dtype, double value);
// Throws InvalidArgumentError "[op] expected a number that int32 holds, got 2.5" unless it does.
void check_number(std::string_view op, DType dtype, double value);

// `value` as an element. REQUIRES: holds(dtype_of<T>, value).
template <class T>
T to_element(double value) {
  if constexpr (sizeof(T) == 2)
    return T(static_cast<float>(value));
  else
    return static_cast<T>(value);
}

}  // namespace tandem
