// Sizes as tensors, for what is computed with them.
#pragma once

#include "tandem/tensor.h"

namespace tandem {

// The product of `sizes` as a scalar, also where some are not known before a graph runs: what
// divides a sum by how many there were.
Tensor element_count(const Shape& sizes, DType dtype);

}  // namespace tandem
