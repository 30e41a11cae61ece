// Initial values of variables that a function makes while it is traced.
#pragma once

#include <string_view>

#include "tandem/tensor.h"

namespace tandem {

// The elements of the initial value of a variable. If it is symbolic, it is computed at once.
// Throws InvalidArgumentError if the trace must not create variables, or if the value depends on
// the function's arguments.
Tensor initial_value(const Tensor& tensor, std::string_view variable);

}  // namespace tandem
