// Convolutions and attention through cuDNN 9, which is optional both when the module is built and
// when it runs.
#pragma once

#include <algorithm>

#include "op/op.h"
#include "ops/attention_sizes.h"
#include "ops/conv_shape.h"
#include "tandem/nn.h"

namespace tandem::cuda {

enum class ConvPass : std::uint8_t { kForward, kBackwardInput, kBackwardFilter };

struct CudnnConv {
  ConvPass pass = ConvPass::kForward;
  ConvShape shape;    // with as much padding after as before: see with_even_padding()
  bool bias = false;  // forward: [out], added to y
  nn::Activation activation = nn::Activation::kLinear;  // forward: linear, ReLU or ReLU6, on y
  auto operator<=>(const CudnnConv&) const = default;
};

// The same convolution of a larger image: what the padding has more on one side than on the other
// is part of the image, as in TensorFlow. (Some engines of cuDNN, seen with 9.19, take two sizes of
// padding and compute with the first alone.)
inline ConvShape with_even_padding(ConvShape s) {
  const auto even = [](std::int64_t& size, std::int64_t& before, std::int64_t& after) {
    const std::int64_t both = std::min(before, after);
    size += before + after - 2 * both;
    before = after = both;
  };
  even(s.h, s.pad_top, s.pad_bottom);
  even(s.w, s.pad_left, s.pad_right);
  return s;
}

// Images are channels-last (NHWC), as everywhere in Tandem. The kernel is [out, kh, kw, in /
// groups].
struct ConvMemory {
  void* x = nullptr;
  void* kernel = nullptr;
  void* y = nullptr;
  void* bias = nullptr;
};

class CudnnPlan;
// The plan by which cuDNN computes `conv` on the context's device. `alignment` is that of the
// memory, in bytes. The plan is chosen at the first call and cached. Returns null if cuDNN has no
// engine for it or is missing, which is logged once. Throws as check_cudnn() does.
CudnnPlan* cudnn_plan(KernelContext& context, const CudnnConv& conv, unsigned alignment);

// Runs a plan on the context's stream. It overwrites the result of the pass: x, kernel or y.
// REQUIRES: the memory has the plan's alignment.
void cudnn_run(KernelContext& context, CudnnPlan& plan, const ConvMemory& memory);

enum class AttentionPass : std::uint8_t { kForward, kBackward };

// Attention without dropout. The causal mask is the only one.
struct CudnnAttention {
  AttentionPass pass;
  DType dtype;
  AttentionSizes sizes;
  bool causal;
  auto operator<=>(const CudnnAttention&) const = default;
};

// The operations' tensors (ops/nn/attention.h), with log_sums in float32. The forward pass writes
// result and log_sums; the backward pass writes dquery, dkey and dvalue.
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

// Computes attention on the context's stream, by a plan that is chosen at the first call and
// cached. Returns false without computing if cuDNN is missing or does not support it. Throws as
// check_cudnn() does.
bool cudnn_attention(KernelContext& context, const CudnnAttention& attention, double scale,
                     const AttentionMemory& memory);

}  // namespace tandem::cuda
