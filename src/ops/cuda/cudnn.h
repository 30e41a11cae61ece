// Convolutions and attention through cuDNN 9, which may be missing: where the module was built, or
// where it runs.
#pragma once

#include "op/op.h"
#include "ops/attention_sizes.h"
#include "ops/conv_shape.h"
#include "tandem/nn.h"

namespace tandem::cuda {

enum class ConvPass : std::uint8_t { kForward, kBackwardInput, kBackwardFilter };

struct CudnnConv {
  ConvPass pass = ConvPass::kForward;
  ConvShape shape;
  bool bias = false;                                    // forward: [out], added to y
  nn::Activation activation = nn::Activation::kLinear;  // forward: linear, ReLU or ReLU6, of y
  auto operator<=>(const CudnnConv&) const = default;
};

// Pictures lie as Tandem's do, channels last. The kernel lies [out, kh, kw, in / groups].
struct ConvMemory {
  void* x = nullptr;
  void* kernel = nullptr;
  void* y = nullptr;
  void* bias = nullptr;
};

class CudnnPlan;
// How cuDNN computes `conv` on the context's device, with memory of this alignment in bytes: chosen
// at the first call for it, and remembered. Null where cuDNN is not there, which is said once, or
// has no engine for it. Throws what a failure of cuDNN means.
CudnnPlan* cudnn_plan(KernelContext& context, const CudnnConv& conv, unsigned alignment);

// On the context's stream. x, kernel or y, which the pass makes, is overwritten. REQUIRES: memory
// of the plan's alignment.
void cudnn_run(KernelContext& context, CudnnPlan& plan, const ConvMemory& memory);

enum class AttentionPass : std::uint8_t { kForward, kBackward };

// Without dropout, and without a mask but the causal one.
struct CudnnAttention {
  AttentionPass pass;
  DType dtype;
  AttentionSizes sizes;
  bool causal;
  auto operator<=>(const CudnnAttention&) const = default;
};

// Tensors as those of the operations (ops/nn/attention.h), log_sums in float32. The forward pass
// makes result and log_sums, the backward pass what begins with d but dresult.
struct AttentionMemory {
  void* query = nullptr;
  void* key = nullptr;
  void* value = nullptr;
  void* result = nullptr;
  void* log_sums = nullptr;
  void* dresult = nullptr;
  void* dquery = nullptr;
  void* dkey = nullptr;
  void* dvalue = nullptr;
};

// Computes it on the context's stream, by a plan that is chosen at the first call and remembered.
// False, and nothing is done, where cuDNN is not there or does not take it. Throws what a failure
// of cuDNN means.
bool cudnn_attention(KernelContext& context, const CudnnAttention& attention, double scale,
                     const AttentionMemory& memory);

}  // namespace tandem::cuda
