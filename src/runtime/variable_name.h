// The names of variables in messages.
#pragma once

#include <string>

#include "tensor/tensor_impl.h"

namespace tandem {

// "'NAME'", or "(unnamed, of shape (3, 4) and dtype float32)".
std::string quoted_name(const std::string& name, const TensorType& spec);

}  // namespace tandem
