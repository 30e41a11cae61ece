// The element-wise operations on two operands that are defined in several files.
#pragma once

#include "op/op.h"

namespace tandem {

extern const OpDef kAddN;
extern const OpDef kPow, kPowScalar, kFloorDiv, kFloorMod;
extern const OpDef kTanhGrad, kSigmoidGrad;

}  // namespace tandem
