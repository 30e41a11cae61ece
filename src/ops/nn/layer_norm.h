// The operations of nn::layer_norm.
#pragma once

#include "op/op.h"

namespace tandem {

// Inputs: x [..., c], gamma [c], beta [c]. Outputs: y, and per row the mean and
// 1 / standard deviation.
extern const OpDef kLayerNorm;
// Inputs: dy, x, gamma, and the means and inverse standard deviations. Outputs: dx, dgamma, dbeta.
extern const OpDef kLayerNormGrad;

}  // namespace tandem
