// The operations of nn::dense and nn::bias_add.
#pragma once

#include "op/op.h"
#include "tandem/nn.h"

namespace tandem {

struct FusedMatMulAttrs {
  nn::Activation activation = nn::Activation::kLinear;
  TANDEM_FIELDS(activation)
};

// The tensor as a matrix whose rows are its last axis.
inline TensorView as_rows(const TensorView& view) {
  const std::int64_t columns = view.shape.word(-1);
  std::int64_t rows = 1;
  for (int i = 0; i + 1 < view.shape.rank(); ++i) rows *= view.shape.word(i);
  return {view.data, view.dtype, Shape{rows, columns}};
}

// activation(x . w + bias) with x [..., in], w [in, out] and optionally bias [out].
extern const OpDef kFusedMatMul;
// x . w + bias.
extern const OpDef kMatMulBiasAdd;
extern const OpDef kBiasAdd;
// The sum over all axes but the last.
extern const OpDef kBiasAddGrad;

}  // namespace tandem
