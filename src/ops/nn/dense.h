// The operations behind nn::dense and nn::bias_add.
#pragma once

#include "op/op.h"

namespace tandem {

// activation(x . w + bias): x [..., in], w [in, out], and bias [out] unless there are two inputs.
extern const OpDef kFusedMatMul;
// x . w + bias.
extern const OpDef kMatMulBiasAdd;
extern const OpDef kBiasAdd;
// The sum over all axes but the last.
extern const OpDef kBiasAddGrad;

}  // namespace tandem
