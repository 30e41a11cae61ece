// Which attentions use cuDNN on the fake GPUs, and that the results are the same.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "cuda/fake_cuda.h"
#include "tandem/tandem.h"

namespace tandem {
namespace {

struct Case {
  std::int64_t depth = 16;
  DType dtype = bfloat16;
  nn::AttentionOptions options = {};
};

std::vector<Tensor> operands(const Case& of) {
  random::set_seed(3);
  const auto sample = [&](const Shape& shape) { return cast(random::normal(shape), of.dtype); };
  return {sample({2, 20, 4, of.depth}), sample({2, 33, 2, of.depth}), sample({2, 33, 2, of.depth})};
}

// The result and the operands' gradients.
std::vector<Tensor> attend(const std::vector<Tensor>& in, const nn::AttentionOptions& options) {
  GradientTape tape;
  for (const Tensor& each : in) tape.watch(each);
  const Tensor y = nn::scaled_dot_product_attention(in[0], in[1], in[2], options);
  std::vector<Tensor> made = tape.gradient(y, in, {.output_gradient = y});
  made.push_back(y);
  return made;
}

// The number of graphs that cuDNN runs for the result and the gradients.
int cudnn_runs(const Case& of) {
  const std::vector<Tensor> in = operands(of);
  const int before = fake_cuda::host_counts().cudnn;
  for (const Tensor& each : attend(in, of.options)) cast(each, float32).to_vector<float>();
  return fake_cuda::host_counts().cudnn - before;
}

TEST(AttentionOnCudnn, IsThatOf16BitsWithoutMasks) {
  for (const DType dtype : {float16, bfloat16}) {
    EXPECT_EQ(cudnn_runs({.dtype = dtype}), 2);
    EXPECT_EQ(cudnn_runs({.dtype = dtype, .options = {.causal = true}}), 2);
  }
  EXPECT_EQ(cudnn_runs({.dtype = float32}), 0);
  EXPECT_EQ(cudnn_runs({.depth = 12}), 0);
  EXPECT_EQ(cudnn_runs({.options = {.mask = ones({33}, {.dtype = bool_})}}), 0);
  EXPECT_EQ(cudnn_runs({.options = {.dropout_rate = 0.1}}), 0);
}

TEST(AttentionOnCudnn, IsThatOfTheOtherKernels) {
  for (const bool causal : {false, true}) {
    const std::vector<Tensor> in = operands({.dtype = bfloat16});
    std::vector<Tensor> wide;
    for (const Tensor& each : in) wide.push_back(cast(each, float32));
    const std::vector<Tensor> actual = attend(in, {.causal = causal}),
                              expected = attend(wide, {.causal = causal});
    for (std::size_t i = 0; i < actual.size(); ++i) {
      const std::vector<float> a = cast(actual[i], float32).to_vector<float>(),
                               b = expected[i].to_vector<float>();
      for (std::size_t j = 0; j < a.size(); ++j)
        ASSERT_NEAR(a[j], b[j], 0.03 * std::max(1.0f, std::fabs(b[j]))) << i << " at " << j;
    }
  }
}

TEST(AttentionOnCudnn, IsRecordedInGraphs) {
  const std::vector<Tensor> in = operands({});
  const auto values = [](const std::vector<Tensor>& tensors) {
    std::vector<std::vector<float>> made;
    for (const Tensor& each : tensors) made.push_back(cast(each, float32).to_vector<float>());
    return made;
  };
  const auto expected = values(attend(in, {.causal = true}));
  const auto traced = function([](const Tensor& query, const Tensor& key, const Tensor& value) {
    return attend({query, key, value}, {.causal = true});
  });
  for (int i = 0; i < 4; ++i) EXPECT_EQ(values(traced(in[0], in[1], in[2])), expected) << i;
  EXPECT_GT(fake_cuda::graph_counts().launched, 0);
}

}  // namespace
}  // namespace tandem
