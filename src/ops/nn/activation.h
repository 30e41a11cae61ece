// What other operations share of the activations.
#pragma once

#include "op/op.h"
#include "tandem/nn.h"

namespace tandem::nn {

// The gradient of activation(x) with respect to x, from the result y. REQUIRES:
// is_fused(activation).
Tensor fused_activation_gradient(Activation activation, const Tensor& dy, const Tensor& y);

}  // namespace tandem::nn
