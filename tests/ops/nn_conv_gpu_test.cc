// Convolutions of sizes for which cuDNN has specialised engines, on a real GPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "ops/nn_reference.h"
#include "support/expects.h"
#include "tandem/config.h"
#include "tandem/nn.h"

namespace tandem::nn_conv_gpu_test {
namespace {

using nn::Conv2DOptions;
using testing::expect_like_float64;
using testing::random_tensor;
using testing::values_of;

bool on_real_gpu() {
  const auto gpus = config::list_physical_devices("GPU");
  return !gpus.empty() && !config::get_device_details(gpus[0]).emulated;
}

struct Case {
  Shape x, kernel;
  Conv2DOptions options;
};
const std::vector<Case>& cases() {
  static const std::vector<Case> all = {
      {{2, 28, 28, 16}, {3, 3, 16, 24}, {.padding = nn::Padding::kSame}},
      {{2, 28, 28, 16}, {3, 3, 16, 24}, {.strides = 2, .padding = nn::Padding::kSame}},
      {{2, 28, 28, 3}, {7, 7, 3, 16}, {.strides = 2, .padding = nn::Padding::kSame}},
      {{2, 28, 28, 16}, {1, 1, 16, 32}, {}},
      {{2, 28, 28, 16}, {1, 1, 16, 32}, {.strides = 2}},
      {{2, 28, 28, 32}, {3, 3, 1, 32}, {.padding = nn::Padding::kSame, .groups = 32}},
      {{2, 20, 20, 16}, {3, 3, 8, 24}, {.padding = nn::Padding::kSame, .groups = 2}},
      {{2, 28, 28, 16},
       {3, 3, 16, 24},
       {.padding = nn::Padding::kSame, .dilations = 2, .activation = nn::Activation::kTanh}}};
  return all;
}

testing::TensorFunction function_of(const Conv2DOptions& options) {
  return
      [options](const std::vector<Tensor>& in) { return nn::conv2d(in[0], in[1], in[2], options); };
}

std::vector<Tensor> inputs_of(const Case& c) {
  return {random_tensor(c.x, 1, -1, 1), random_tensor(c.kernel, 2, -0.5, 0.5),
          random_tensor({c.kernel[3]}, 3, -1, 1)};
}

void expect_all_like_float64() {
  for (const Case& c : cases()) {
    SCOPED_TRACE(c.x.to_string() + c.kernel.to_string());
    const std::vector<Tensor> in = inputs_of(c);
    expect_like_float64(function_of(c.options), in, float32, 0x1p-6);  // TF32 has 10 bits
    expect_like_float64(function_of(c.options), in, float16, 0x1p-5);
    expect_like_float64(function_of(c.options), in, bfloat16, 0x1p-2);
  }
}

TEST(OnGpuConv2D, IsLikeFloat64) {
  TANDEM_REQUIRE(on_real_gpu(), "gpu");
  expect_all_like_float64();
}

TEST(OnGpuConv2D, IsLikeFloat64WithAutotuning) {
  ::setenv("TANDEM_CUDNN_AUTOTUNE", "true", 1);
  TANDEM_REQUIRE(on_real_gpu(), "gpu");
  expect_all_like_float64();
}

TEST(OnGpuConv2D, IsDeterministic) {
  TANDEM_REQUIRE(on_real_gpu(), "gpu");
  for (const Case& c : cases())
    for (const DType dtype : {float32, bfloat16}) {
      SCOPED_TRACE(c.x.to_string() + c.kernel.to_string());
      std::vector<Tensor> in = inputs_of(c);
      for (Tensor& each : in) each = cast(each, dtype);
      const auto run = [&] {
        GradientTape tape;
        for (const Tensor& each : in) tape.watch(each);
        const Tensor y = function_of(c.options)(in);
        std::vector<Tensor> results = tape.gradient(y, in);
        results.push_back(y);
        std::vector<double> values;
        for (const Tensor& each : results) {
          const std::vector<double> of_one = values_of(each);
          values.insert(values.end(), of_one.begin(), of_one.end());
        }
        return values;
      };
      const std::vector<double> first = run();
      for (int i = 0; i < 3; ++i) EXPECT_TRUE(run() == first);
    }
}

}  // namespace
}  // namespace tandem::nn_conv_gpu_test
