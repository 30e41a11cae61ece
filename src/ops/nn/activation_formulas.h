// Activations as formulas in StableHLO. The same as in ops/formula/activations.h.
#pragma once

#include "graph/stablehlo/expression.h"
#include "tandem/nn.h"

namespace tandem::stablehlo {

inline Expression relu(const Expression& x) { return x.like(0.0).where(x < 0.0, x); }
inline Expression relu6(const Expression& x) {
  const Expression low = relu(x);
  return low.like(6.0).where(low > 6.0, low);
}
inline Expression elu(const Expression& x, double alpha) {
  return (alpha * expm1(x)).where(x < 0.0, x + 0.0);
}

// An activation that can be fused into other operations (nn::is_fused).
inline Expression activated(const Expression& x, nn::Activation activation) {
  switch (activation) {
    case nn::Activation::kRelu: return relu(x);
    case nn::Activation::kRelu6: return relu6(x);
    case nn::Activation::kElu: return elu(x, 1.0);
    case nn::Activation::kSigmoid: return sigmoid(x);
    case nn::Activation::kTanh: return tanh(x);
    default: return x;
  }
}

}  // namespace tandem::stablehlo
