// cuDNN descriptions of convolutions, and the choice of engines, with a fake of cuDNN.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "cuda/cudnn/fake_cudnn.h"
#include "cuda/fake_cuda.h"
#include "device/cuda/module/cuda_device.h"
#include "device/cuda/module/cuda_gpus.h"
#include "device/discovery.h"
#include "ops/cuda/module/cudnn_conv_graph.h"
#include "ops/cuda/module/cudnn_engines.h"
#include "ops/nn/conv_plain.h"
#include "tandem/errors.h"

namespace tandem::cuda {
namespace {

using Four = std::array<std::int64_t, 4>;
using Two = std::array<std::int64_t, 2>;

// 3x2 windows, SAME padding, strides of 2, images of 8x7 in 2 groups.
ConvShape given_shape(DType dtype) {
  return {.dtype = dtype,
          .n = 2,
          .h = 8,
          .w = 7,
          .in = 4,
          .kh = 3,
          .kw = 2,
          .out = 6,
          .groups = 2,
          .oh = 4,
          .ow = 4,
          .stride_h = 2,
          .stride_w = 2,
          .pad_top = 0,
          .pad_bottom = 1,
          .pad_left = 0,
          .pad_right = 1};
}
ConvShape shape_of(DType dtype) { return with_even_padding(given_shape(dtype)); }

TEST(CudnnShape, HasTheUnevenPartOfPaddingInItsImage) {
  ConvShape expected = given_shape(float32);
  expected.h = 9;
  expected.pad_bottom = 0;
  expected.w = 8;
  expected.pad_right = 0;
  EXPECT_EQ(with_even_padding(given_shape(float32)), expected);
  ConvShape shape = expected;
  shape.pad_top = shape.pad_bottom = 2;
  EXPECT_EQ(with_even_padding(shape), shape);
  shape.pad_top = 3;
  shape.pad_left = 1;
  expected.h = 10;
  expected.pad_top = expected.pad_bottom = 2;
  expected.w = 9;
  EXPECT_EQ(with_even_padding(shape), expected);
}

TEST(CudnnDescription, HasChannelsLast) {
  const ConvDescription description = describe({.shape = shape_of(bfloat16)});
  EXPECT_EQ(description.x.sizes, (Four{2, 4, 9, 8}));
  EXPECT_EQ(description.x.strides, (Four{9 * 8 * 4, 1, 8 * 4, 4}));
  EXPECT_EQ(description.kernel.sizes, (Four{6, 2, 3, 2}));  // in / groups
  EXPECT_EQ(description.kernel.strides, (Four{3 * 2 * 2, 1, 2 * 2, 2}));
  EXPECT_EQ(description.y.sizes, (Four{2, 6, 4, 4}));
  EXPECT_EQ(description.y.strides, (Four{4 * 4 * 6, 1, 4 * 6, 6}));
  EXPECT_EQ(description.bias.sizes, (Four{1, 6, 1, 1}));
  EXPECT_EQ(description.pads, (Two{0, 0}));
  EXPECT_EQ(description.strides, (Two{2, 2}));
  EXPECT_EQ(description.dilations, (Two{1, 1}));
  EXPECT_EQ(description.x.type, CUDNN_DATA_BFLOAT16);
  EXPECT_EQ(description.bias.type, CUDNN_DATA_BFLOAT16);
  EXPECT_EQ(description.compute, CUDNN_DATA_FLOAT);
}

TEST(CudnnDescription, SumsFloat64InFloat64) {
  EXPECT_EQ(describe({.shape = shape_of(float64)}).compute, CUDNN_DATA_DOUBLE);
  EXPECT_EQ(describe({.shape = shape_of(float16)}).compute, CUDNN_DATA_FLOAT);
  EXPECT_EQ(describe({.shape = shape_of(float16)}).x.type, CUDNN_DATA_HALF);
}

TEST(CudnnRules, KeepTheResultsExactAndTheSame) {
  constexpr auto kTensorCore = CUDNN_NUMERICAL_NOTE_TENSOR_CORE;
  using Notes = std::vector<cudnnBackendNumericalNote_t>;
  const auto allowed = [](const Notes& notes, DType dtype, const EngineRules& rules) {
    return is_allowed(notes, dtype, rules);
  };
  EXPECT_TRUE(allowed({kTensorCore}, float16, {}));
  EXPECT_TRUE(allowed({kTensorCore}, bfloat16, {}));
  EXPECT_FALSE(allowed({kTensorCore}, float32, {}));
  EXPECT_TRUE(allowed({kTensorCore}, float32, {.tf32 = true}));
  EXPECT_FALSE(allowed({CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS}, float32, {.tf32 = true}));
  EXPECT_FALSE(allowed({CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION}, float16, {}));
  const Notes random = {CUDNN_NUMERICAL_NOTE_FFT, CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC};
  EXPECT_FALSE(allowed(random, float32, {}));
  EXPECT_TRUE(allowed(random, float32, {.deterministic = false}));
}

TEST(CudnnRules, ComeFromTheEnvironment) {
  const EngineRules usual = rules_from_environment();
  EXPECT_TRUE(usual.deterministic);
  EXPECT_FALSE(usual.all);
  EXPECT_EQ(usual.workspace, std::int64_t{1} << 30);
  ::setenv("TF_DETERMINISTIC_OPS", "0", 1);
  ::setenv("TANDEM_CUDNN_AUTOTUNE", "1", 1);
  ::setenv("TF_CUDNN_USE_AUTOTUNE", "0", 1);
  ::setenv("TANDEM_CUDNN_WORKSPACE_LIMIT_IN_MB", "3", 1);
  const EngineRules set = rules_from_environment();
  EXPECT_FALSE(set.deterministic);
  EXPECT_TRUE(set.all) << "ours counts where both are set";
  EXPECT_EQ(set.workspace, std::int64_t{3} << 20);
}

template <class E>
void expect_error(cudnnStatus_t status) {
  try {
    check_cudnn(*cudnn(), status, "cudnnSomething");
    ADD_FAILURE() << "no error for " << status;
  } catch (const E& error) {
    EXPECT_STREQ(error.what(), "[cuda] cudnnSomething: an error of the fake (its explanation)");
  }
}

TEST(CudnnErrors, HaveTypesAndExplanations) {
  EXPECT_NO_THROW(check_cudnn(*cudnn(), CUDNN_STATUS_SUCCESS, "cudnnSomething"));
  expect_error<UnavailableError>(CUDNN_STATUS_NOT_INITIALIZED);
  expect_error<UnavailableError>(CUDNN_STATUS_SUBLIBRARY_LOADING_FAILED);
  expect_error<UnavailableError>(CUDNN_STATUS_EXECUTION_FAILED_CUDA_DRIVER);
  expect_error<InternalError>(CUDNN_STATUS_BAD_PARAM_NULL_POINTER);
  expect_error<InternalError>(CUDNN_STATUS_INTERNAL_ERROR_UNEXPECTED_VALUE);
  expect_error<UnimplementedError>(CUDNN_STATUS_NOT_SUPPORTED_LAYOUT);
  expect_error<ResourceExhaustedError>(CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED);
  EXPECT_TRUE(is_refusal(CUDNN_STATUS_NOT_SUPPORTED_GRAPH_PATTERN));
  EXPECT_TRUE(is_refusal(CUDNN_STATUS_EXECUTION_FAILED_CUDA_DRIVER));
  EXPECT_FALSE(is_refusal(CUDNN_STATUS_BAD_PARAM));
  EXPECT_FALSE(is_refusal(CUDNN_STATUS_SUBLIBRARY_LOADING_FAILED));
  EXPECT_FALSE(is_refusal(CUDNN_STATUS_SUCCESS));
}

TEST(CudnnLibrary, ThatIsNotThereIsAnErrorThatSaysWhatToDo) {
  try {
    load_cudnn("libcudnn_of_nowhere.so.9");
    FAIL();
  } catch (const UnavailableError& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("libcudnn_of_nowhere.so.9"), std::string::npos) << text;
    EXPECT_NE(text.find("LD_LIBRARY_PATH"), std::string::npos) << text;
  }
  EXPECT_THROW(load_cudnn("libc.so.6"), UnavailableError);
}

// A device on a fake GPU, and a kernel's context on it.
class CudnnPlans : public ::testing::Test {
 protected:
  CudnnPlans() {
    fake_cuda::set_gpus({{}});
    device_ = find_gpus()[0]->make_device(
        {.name = local_device_name("GPU", 0), .memory_limit = std::int64_t{64} << 20});
    context_.workspace = device_.get();
    context_.native_stream = device_->stream().native_handle();
  }

  CudnnPlan* plan(const CudnnConv& conv = {.shape = shape_of(float32)}) {
    return cudnn_plan(context_, conv, 16);
  }
  // The workspaces of the engines that ran when the plan was executed.
  std::vector<std::int64_t> run(CudnnPlan& plan) {
    std::vector<float> x(448), kernel(72), y(192);
    const std::size_t before = fake_cudnn::calls().runs.size();
    cudnn_run(context_, plan, {.x = x.data(), .kernel = kernel.data(), .y = y.data()});
    device_->stream().synchronize();
    context_.end_call();
    const std::vector<std::int64_t> runs = fake_cudnn::calls().runs;
    return {runs.begin() + static_cast<std::ptrdiff_t>(before), runs.end()};
  }

  std::unique_ptr<DeviceImpl> device_;
  KernelContext context_;
};

TEST_F(CudnnPlans, ComputeWhatTheCpuComputes) {
  const ConvShape shape = shape_of(float64);
  const std::int64_t taps = 3 * 2 * 2, out = 6;
  std::vector<double> x(576), kernel(72), bias(6), y(192), as_cudnn(72);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<double>(i % 13) - 6;
  for (std::size_t i = 0; i < kernel.size(); ++i) kernel[i] = static_cast<double>(i % 7) - 3;
  for (std::size_t i = 0; i < bias.size(); ++i) bias[i] = static_cast<double>(i) - 2;
  for (std::int64_t tap = 0; tap < taps; ++tap)
    for (std::int64_t o = 0; o < out; ++o)
      as_cudnn[static_cast<std::size_t>(o * taps + tap)] =
          kernel[static_cast<std::size_t>(tap * out + o)];
  std::vector<double> expected(192);
  plain_conv_forward(shape, x.data(), kernel.data(), bias.data(), expected.data());
  for (double& each : expected) each = std::clamp(each, 0.0, 6.0);
  CudnnPlan* fused = plan({.shape = shape, .bias = true, .activation = nn::Activation::kRelu6});
  ASSERT_NE(fused, nullptr);
  cudnn_run(context_, *fused,
            {.x = x.data(), .kernel = as_cudnn.data(), .y = y.data(), .bias = bias.data()});
  device_->stream().synchronize();
  EXPECT_EQ(y, expected);
}

TEST_F(CudnnPlans, AreMadeOnceForAConvolution) {
  CudnnPlan* first = plan();
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(plan(), first);
  EXPECT_EQ(fake_cudnn::calls().heuristics.size(), 1u);
  EXPECT_NE(cudnn_plan(context_, {.shape = shape_of(float32)}, 4), first) << "other memory";
  EXPECT_NE(plan({.shape = shape_of(float16)}), first);
  EXPECT_NE(plan({.pass = ConvPass::kBackwardFilter, .shape = shape_of(float32)}), first);
  EXPECT_EQ(fake_cudnn::calls().heuristics.size(), 4u);
  EXPECT_EQ(fake_cudnn::calls().handles, 1);
}

TEST_F(CudnnPlans, TakeTheFirstEngineThatMayBe) {
  fake_cudnn::set_engines(CUDNN_HEUR_MODE_A,
                          {{.notes = {CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC}, .workspace = 1},
                           {.workspace = 2, .plan = CUDNN_STATUS_NOT_SUPPORTED_SHAPE},
                           {.workspace = 5, .plan = CUDNN_STATUS_EXECUTION_FAILED_CUDA_DRIVER},
                           {.workspace = std::int64_t{2} << 30},
                           {.workspace = 3},
                           {.workspace = 4}});
  CudnnPlan* made = plan();
  ASSERT_NE(made, nullptr);
  EXPECT_EQ(run(*made), (std::vector<std::int64_t>{3}));
  EXPECT_EQ(run(*made), (std::vector<std::int64_t>{3}));
}

TEST_F(CudnnPlans, AskTheFallbackLast) {
  fake_cudnn::set_engines(CUDNN_HEUR_MODE_A, {});
  fake_cudnn::set_engines(CUDNN_HEUR_MODE_B, {{.plan = CUDNN_STATUS_NOT_SUPPORTED}});
  fake_cudnn::set_engines(CUDNN_HEUR_MODE_FALLBACK, {{.workspace = 7}});
  CudnnPlan* made = plan();
  ASSERT_NE(made, nullptr);
  EXPECT_EQ(run(*made), (std::vector<std::int64_t>{7}));
  EXPECT_EQ(fake_cudnn::calls().heuristics,
            (std::vector{CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_B, CUDNN_HEUR_MODE_FALLBACK}));
}

TEST_F(CudnnPlans, AreNoneWhereThereIsNoEngine) {
  for (const auto mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_B, CUDNN_HEUR_MODE_FALLBACK})
    fake_cudnn::set_engines(mode, {});
  EXPECT_EQ(plan(), nullptr);
  EXPECT_EQ(plan(), nullptr);
  EXPECT_EQ(fake_cudnn::calls().heuristics.size(), 3u) << "and that is remembered";
}

TEST_F(CudnnPlans, AreNoneWhereTheGraphIsRefused) {
  fake_cudnn::set_fusion(CUDNN_STATUS_NOT_SUPPORTED_GRAPH_PATTERN);
  EXPECT_EQ(plan({.shape = shape_of(float32), .bias = true}), nullptr);
  EXPECT_NE(plan(), nullptr);
}

TEST_F(CudnnPlans, ThatFailAreErrors) {
  fake_cudnn::set_engines(CUDNN_HEUR_MODE_A, {{.run = CUDNN_STATUS_EXECUTION_FAILED}});
  EXPECT_THROW(run(*plan()), UnavailableError);
  fake_cudnn::set_engines(CUDNN_HEUR_MODE_A, {{.plan = CUDNN_STATUS_BAD_PARAM}});
  EXPECT_THROW(plan({.shape = shape_of(float64)}), InternalError);
}

TEST_F(CudnnPlans, AreTriedOutOnce) {
  ::setenv("TANDEM_CUDNN_AUTOTUNE", "1", 1);
  fake_cudnn::set_engines(
      CUDNN_HEUR_MODE_A,
      {{.workspace = 1, .run = CUDNN_STATUS_EXECUTION_FAILED}, {.workspace = 2}});
  CudnnPlan* made = plan();
  ASSERT_NE(made, nullptr);
  EXPECT_EQ(run(*made), (std::vector<std::int64_t>{1, 2, 2, 2, 2, 2}));
  EXPECT_EQ(run(*made), (std::vector<std::int64_t>{2}));
}

}  // namespace
}  // namespace tandem::cuda
