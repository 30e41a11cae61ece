// Sizes as tensors, for computing with sizes that may be unknown.
#pragma once

#include "tandem/tensor.h"

namespace tandem {

// The product of `sizes` as a scalar, for example the divisor of a mean. Sizes may be unknown until
// a graph runs.
Tensor element_count(const Shape& sizes, DType dtype);

}  // namespace tandem
