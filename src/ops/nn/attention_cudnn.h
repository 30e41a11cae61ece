// Runs attention through cuDNN if it supports it.
#pragma once

#include <optional>

#include "ops/cuda/cudnn.h"
#include "ops/nn/attention_attrs.h"

namespace tandem::cuda {

// The description for cuDNN; nullopt if there is a mask or dropout. Query, key and value are inputs
// `first` to `first` + 2; a mask would be input `mask`.
inline std::optional<CudnnAttention> describe_for_cudnn(const KernelContext& c, AttentionPass pass,
                                                        int first, int mask) {
  const auto& attrs = c.attrs<AttentionAttrs>();
  if (c.inputs.size() > mask || attrs.rate > 0.0) return std::nullopt;
  return CudnnAttention{
      .pass = pass,
      .dtype = c.inputs[first].dtype,
      .sizes = {c.inputs[first].shape, c.inputs[first + 1].shape, c.inputs[first + 2].shape},
      .causal = attrs.causal};
}

// Returns false if cuDNN has not computed it.
inline bool try_cudnn(KernelContext& c) {
  const auto attention = describe_for_cudnn(c, AttentionPass::kForward, 0, 3);
  return attention && cudnn_attention(c, *attention, c.attrs<AttentionAttrs>().softmax_scale,
                                      {.query = c.inputs[0].data,
                                       .key = c.inputs[1].data,
                                       .value = c.inputs[2].data,
                                       .result = c.outputs[0].data,
                                       .log_sums = c.outputs[1].data});
}

inline bool try_cudnn_grad(KernelContext& c) {
  const auto attention = describe_for_cudnn(c, AttentionPass::kBackward, 1, 6);
  return attention && cudnn_attention(c, *attention, c.attrs<AttentionAttrs>().softmax_scale,
                                      {.query = c.inputs[1].data,
                                       .key = c.inputs[2].data,
                                       .value = c.inputs[3].data,
                                       .result = c.inputs[4].data,
                                       .log_sums = c.inputs[5].data,
                                       .dresult = c.inputs[0].data,
                                       .dquery = c.outputs[0].data,
                                       .dkey = c.outputs[1].data,
                                       .dvalue = c.outputs[2].data});
}

}  // namespace tandem::cuda
