// The kernel that every matrix product runs on.
#pragma once

#include "op/op.h"
#include "tandem/nn.h"

namespace tandem {

struct MatrixProduct {
  bool transpose_a = false;
  bool transpose_b = false;
  nn::Activation activation = nn::Activation::kLinear;  // one that is_fused()
};

// c = activation(a . b + bias) over the last two axes, leading axes broadcasting; `bias` [n] may be
// null. REQUIRES: shapes that agree, one floating dtype.
void matrix_product(KernelContext& context, const MatrixProduct& product, const TensorView& a,
                    const TensorView& b, const TensorView* bias, const TensorView& c);

}  // namespace tandem
