// Element-wise operations that several files use.
#pragma once

#include "op/op.h"

namespace tandem {

extern const OpDef kAddN, kClipByValue;
extern const OpDef kPow, kPowScalar, kFloorDiv, kFloorMod;
extern const OpDef kTanhGrad, kSigmoidGrad;

}  // namespace tandem
