// Activations inside other operations.
#pragma once

#include "op/op.h"
#include "tandem/nn.h"

namespace tandem {

struct ActivationAttrs {
  double alpha = 0.0;
  TANDEM_FIELDS(alpha)
};

}  // namespace tandem

namespace tandem::nn {

// The gradient of activation(x) with respect to x, from the result y. REQUIRES:
// is_fused(activation). A `dy` that is moved in may be overwritten.
Tensor fused_activation_gradient(Activation activation, Tensor dy, const Tensor& y);

}  // namespace tandem::nn
