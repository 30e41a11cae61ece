// The real library's engines for attention, for a GPU that this machine does not have. Making a
// plan compiles its kernels, which needs a driver; one without GPUs suffices.
#include <dlfcn.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <vector>

#include "cuda/cudnn/described_gpu.h"
#include "ops/cuda/module/cudnn_attention_graph.h"

namespace tandem::cuda {
namespace {

AttentionSizes sizes_of(std::int64_t batch, std::int64_t queries, std::int64_t keys,
                        std::int64_t heads, std::int64_t kv_heads, std::int64_t depth,
                        std::int64_t value_depth) {
  return {Shape{batch, queries, heads, depth}, Shape{batch, keys, kv_heads, depth},
          Shape{batch, keys, kv_heads, value_depth}};
}

class CudnnAttentionEnginesSlow : public DescribedGpu {
 protected:
  void SetUp() override {
    // Lives as long as the process: cuDNN looks it up by its name.
    if (!dlopen("libcuda.so.1", RTLD_NOW)) {
      ASSERT_NE(dlopen(TANDEM_ABSENT_DRIVER, RTLD_NOW | RTLD_GLOBAL), nullptr) << dlerror();
    }
    DescribedGpu::SetUp();
  }

  std::vector<CudnnEngine> engines(const CudnnAttention& attention, bool deterministic) {
    return DescribedGpu::engines(make_graph(library_, target(), attention, deterministic),
                                 attention.dtype,
                                 {.deterministic = deterministic, .workspace = kWorkspace});
  }
};

TEST_F(CudnnAttentionEnginesSlow, AreThereForBothPasses) {
  for (const AttentionSizes& sizes :
       {sizes_of(16, 512, 512, 12, 12, 64, 64), sizes_of(2, 20, 45, 4, 2, 16, 16),
        sizes_of(1, 300, 70, 3, 1, 40, 128), sizes_of(1, 1, 33, 2, 2, 8, 8)})
    for (const bool causal : {false, true}) {
      SCOPED_TRACE(fmt::format("{} queries, {} keys, depth {}{}", sizes.queries, sizes.keys,
                               sizes.depth, causal ? ", causal" : ""));
      EXPECT_EQ(engines({AttentionPass::kForward, bfloat16, sizes, causal}, true).size(), 1u);
      for (const bool deterministic : {false, true})
        EXPECT_EQ(
            engines({AttentionPass::kBackward, bfloat16, sizes, causal}, deterministic).size(), 1u)
            << deterministic;
    }
}

TEST_F(CudnnAttentionEnginesSlow, AreThereForFloat16) {
  const AttentionSizes sizes = sizes_of(2, 128, 128, 4, 4, 128, 128);
  for (const auto pass : {AttentionPass::kForward, AttentionPass::kBackward})
    EXPECT_EQ(engines({pass, float16, sizes, true}, true).size(), 1u);
}

// cuDNN's notes do not report non-determinism, so the test excludes such engines explicitly.
TEST_F(CudnnAttentionEnginesSlow, KeepGradientsOfScoresWhereTheSameBitsAreWanted) {
  const AttentionSizes sizes = sizes_of(16, 512, 512, 12, 12, 64, 64);
  const CudnnAttention attention{AttentionPass::kBackward, bfloat16, sizes, true};
  const std::int64_t scores = sizes.batch * sizes.heads * sizes.queries * sizes.keys;
  const auto same = engines(attention, true), faster = engines(attention, false);
  ASSERT_EQ(same.size(), 1u);
  ASSERT_EQ(faster.size(), 1u);
  EXPECT_GE(same[0].workspace, scores * 2);
  EXPECT_LT(faster[0].workspace, scores);
}

}  // namespace
}  // namespace tandem::cuda
