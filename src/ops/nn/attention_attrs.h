// Attributes of attention.
#pragma once

#include "ops/nn/dropout.h"

namespace tandem {

// Attributes of the operations and of their gradients. Dropout applies to the weights
// [batch, heads, queries, keys] of the global batch; a rate of 0 uses no random numbers.
struct AttentionAttrs : DropoutAttrs {
  bool causal = false;
  double softmax_scale = 1.0;
  template <class F>
  void fields(F&& f) const {
    DropoutAttrs::fields(f);
    f("causal", causal);
    f("scale", softmax_scale);
  }
};

}  // namespace tandem
