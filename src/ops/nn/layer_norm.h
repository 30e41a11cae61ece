// The operations behind nn::layer_norm.
#pragma once

#include "op/op.h"

namespace tandem {

// Inputs x [..., c], gamma [c], beta [c]; outputs y, and each row's mean and 1 / standard
// deviation.
extern const OpDef kLayerNorm;
// Inputs dy, x, gamma and the row's figures; outputs dx, dgamma, dbeta.
extern const OpDef kLayerNormGrad;

}  // namespace tandem
