// The real library's heuristics and plans of convolutions, for a GPU that this machine does not
// have. Every graph must be accepted and have an engine.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "cuda/cudnn/described_gpu.h"
#include "ops/cuda/module/cudnn_conv_graph.h"
#include "ops/nn/window.h"

namespace tandem::cuda {
namespace {

struct Window {
  std::int64_t size, stride = 1, dilation = 1;
};
ConvShape shape_of(std::int64_t size, std::int64_t in, std::int64_t out, Window window,
                   nn::Padding padding = nn::Padding::kSame, std::int64_t groups = 1) {
  const nn::WindowAxis axis =
      nn::place_windows(size, window.size, window.stride, window.dilation, padding);
  return with_even_padding({.n = 8,
                            .h = size,
                            .w = size,
                            .in = in,
                            .kh = window.size,
                            .kw = window.size,
                            .out = out,
                            .groups = groups,
                            .oh = axis.output,
                            .ow = axis.output,
                            .stride_h = window.stride,
                            .stride_w = window.stride,
                            .dilation_h = window.dilation,
                            .dilation_w = window.dilation,
                            .pad_top = axis.pad_begin,
                            .pad_bottom = axis.pad_end,
                            .pad_left = axis.pad_begin,
                            .pad_right = axis.pad_end});
}

const std::vector<ConvShape>& shapes() {
  static const std::vector<ConvShape> all = {
      shape_of(28, 1, 6, {5}),                              // LeNet
      shape_of(14, 6, 16, {5}, nn::Padding::kValid),        // LeNet
      shape_of(224, 3, 64, {7, 2}),                         // ResNet
      shape_of(56, 64, 64, {3}),                            // ResNet
      shape_of(56, 128, 128, {3, 2}),                       // ResNet
      shape_of(56, 256, 512, {1, 2}, nn::Padding::kValid),  // ResNet
      shape_of(12, 5, 7, {2}),                              // odd channels, even window
      shape_of(20, 16, 16, {3, 1, 2}),                      // dilated
      shape_of(28, 32, 64, {3}, nn::Padding::kSame, 4),     // groups
      shape_of(28, 48, 48, {3}, nn::Padding::kSame, 48),    // depthwise
      shape_of(28, 16, 32, {3, 2}, nn::Padding::kSame, 16)};
  return all;
}

class CudnnHeuristicsSlow : public DescribedGpu {
 protected:
  std::vector<CudnnEngine> engines(const CudnnConv& conv, const EngineRules& rules,
                                   unsigned alignment = 16) {
    return DescribedGpu::engines(make_graph(library_, target(), conv, alignment), conv.shape.dtype,
                                 rules);
  }
};

TEST_F(CudnnHeuristicsSlow, FindEnginesForEveryConvolution) {
  for (ConvShape shape : shapes())
    for (const DType dtype : {float32, float16, bfloat16, float64})
      for (const auto pass :
           {ConvPass::kForward, ConvPass::kBackwardInput, ConvPass::kBackwardFilter}) {
        shape.dtype = dtype;
        SCOPED_TRACE(fmt::format("{} {}x{} {}->{} {}x{}/{} groups {}, pass {}", name_of(dtype),
                                 shape.h, shape.w, shape.in, shape.out, shape.kh, shape.kw,
                                 shape.stride_h, shape.groups, static_cast<int>(pass)));
        const CudnnConv conv{.pass = pass, .shape = shape};
        EXPECT_EQ(engines(conv, {.workspace = kWorkspace}).size(), 1u);
        EXPECT_EQ(engines(conv, {.tf32 = true, .workspace = kWorkspace}).size(), 1u);
      }
}

TEST_F(CudnnHeuristicsSlow, FindEnginesForMemoryThatBeginsAnywhere) {
  for (const DType dtype : {float32, bfloat16}) {
    ConvShape shape = shapes()[3];
    shape.dtype = dtype;
    EXPECT_EQ(
        engines({.shape = shape}, {.workspace = kWorkspace}, static_cast<unsigned>(size_of(dtype)))
            .size(),
        1u)
        << name_of(dtype);
  }
}

TEST_F(CudnnHeuristicsSlow, FuseBiasAndActivation) {
  for (ConvShape shape : shapes())
    for (const DType dtype : {float32, float16, bfloat16})
      for (const auto activation :
           {nn::Activation::kLinear, nn::Activation::kRelu, nn::Activation::kRelu6}) {
        if (shape.groups > 1) continue;
        shape.dtype = dtype;
        SCOPED_TRACE(fmt::format("{} {}x{} {}->{} {}x{}/{} {}", name_of(dtype), shape.h, shape.w,
                                 shape.in, shape.out, shape.kh, shape.kw, shape.stride_h,
                                 static_cast<int>(activation)));
        EXPECT_EQ(engines({.shape = shape, .bias = true, .activation = activation},
                          {.tf32 = true, .workspace = kWorkspace})
                      .size(),
                  1u);
      }
}

TEST_F(CudnnHeuristicsSlow, ReturnSeveralEngines) {
  const auto found =
      engines({.shape = shapes()[3]}, {.tf32 = true, .all = true, .workspace = kWorkspace});
  EXPECT_GT(found.size(), 1u);
  for (const CudnnEngine& each : found) EXPECT_LE(each.workspace, kWorkspace);
}

}  // namespace
}  // namespace tandem::cuda
