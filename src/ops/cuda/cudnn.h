// Convolutions through cuDNN 9, which may be missing: where the module was built, or where it runs.
#pragma once

#include "op/op.h"
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

}  // namespace tandem::cuda
