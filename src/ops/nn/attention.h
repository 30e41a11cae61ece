// The operations of attention, their attributes, and what their kernels share.
#pragma once

#include <cmath>

#include "op/op.h"
#include "ops/attention_sizes.h"
#include "ops/nn/dropout.h"

namespace tandem {

// Attributes of the operations and of their gradients. Dropout applies to the weights
// [batch, heads, queries, keys] of the global batch; a rate of 0 uses no random numbers.
struct AttentionAttrs : DropoutAttrs {
  bool causal = false;
  double softmax_scale = 1.0;
  std::int64_t depth = 0;  // if it is not 0, the scale is 1 / sqrt(depth)
  template <class F>
  void fields(F&& f) const {
    DropoutAttrs::fields(f);
    f("causal", causal);
    f("scale", softmax_scale);
    f("depth", depth);
  }
  double score_scale() const {
    return depth == 0 ? softmax_scale : 1.0 / std::sqrt(static_cast<double>(depth));
  }
};

// A mask with strides: element [b, h, i, j] is at the sum of each index times its stride. A stride
// is 0 if the mask is broadcast along the axis.
struct AttentionMask {
  const void* data = nullptr;  // null if there is no mask
  bool allows = false;  // bool, true where a query may attend to a key; else added to the scores
  std::int64_t batch = 0, head = 0, query = 0, key = 0;

  AttentionMask() = default;
  AttentionMask(const TensorView& mask) : data(mask.data), allows(mask.dtype == DType::kBool) {
    std::int64_t* const strides[] = {&key, &query, &head, &batch};
    std::int64_t step = 1;
    for (int i = 0; i < mask.shape.rank(); ++i) {
      const std::int64_t size = mask.shape.word(mask.shape.rank() - 1 - i);
      if (size != 1) *strides[i] = step;
      step *= size;
    }
  }
};

// Inputs: query, key, value, and optionally a mask. Outputs: the result [batch, queries, heads,
// value_depth], and the log-sum-exp of each row of scores, [batch, heads, queries], in the compute
// type. A query whose keys are all masked has the result 0 and the log-sum-exp +inf.
extern const OpDef kAttention, kAttentionDropout;
// Inputs: the result's gradient, query, key, value, result, log-sums, and optionally a mask.
// Outputs: the gradients of query, key and value.
extern const OpDef kAttentionGrad, kAttentionDropoutGrad;

void attention_kernel(KernelContext& c);
void attention_grad_kernel(KernelContext& c);

}  // namespace tandem
