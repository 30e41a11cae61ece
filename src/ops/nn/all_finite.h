// Whether the elements of many tensors are finite, in one operation.
#pragma once

#include "tandem/tensor.h"

namespace tandem {

// A bool scalar: whether no element of `tensors`, which are floating, is infinite or NaN. Not
// differentiable. Throws InvalidArgumentError without tensors and for other dtypes.
Tensor all_finite(TensorList tensors);

}  // namespace tandem
