// What the kernels of attention share.
#pragma once

#include "op/op.h"
#include "ops/attention_sizes.h"
#include "ops/nn/dropout.h"

namespace tandem {

// Of the operations and of their gradients. What dropout drops is counted in the global batch's
// weights, [batch, heads, queries, keys]; a rate of 0 drops nothing and takes no random key.
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

// A mask as it is read: element [b, h, i, j] stands at the sum of each index times its stride,
// which is 0 where the mask repeats.
struct AttentionMask {
  const void* data = nullptr;  // null: none
  bool allows = false;         // bool, true where a query may see a key; else added to the scores
  std::int64_t batch = 0, head = 0, query = 0, key = 0;

  AttentionMask() = default;
  AttentionMask(const TensorView& mask) : data(mask.data), allows(mask.dtype == DType::kBool) {
    std::int64_t* const strides[] = {&key, &query, &head, &batch};
    std::int64_t step = 1;
    for (int i = 0; i < mask.shape.rank(); ++i) {
      const std::int64_t size = mask.shape[mask.shape.rank() - 1 - i];
      if (size != 1) *strides[i] = step;
      step *= size;
    }
  }
};

// Inputs query, key, value, and a mask unless there are three. Outputs: the result [batch, queries,
// heads, value_depth], and the logarithm of each row's sum of exp(score), [batch, heads, queries],
// in the type of sums; plus infinity for a query that sees no key, whose result is 0.
extern const OpDef kAttention, kAttentionDropout;
// Inputs: the result's gradient, query, key, value, result, log-sums, and a mask unless there are
// six. Outputs: the gradients of query, key and value.
extern const OpDef kAttentionGrad, kAttentionDropoutGrad;

void attention_kernel(KernelContext& c);
void attention_grad_kernel(KernelContext& c);

}  // namespace tandem
