// The gradient of products, for first order.
#pragma once

#include "op/op.h"

namespace tandem {

// Inputs: data [a, b, c], and the gradient [a, 1, c] of its product over axis 1. Output: the
// gradient of the data. Has no gradient: a backward pass that is itself recorded is composed of
// differentiable operations.
extern const OpDef kProdGrad;

}  // namespace tandem
