// The dtypes of operations under autocast, against PyTorch's lists.
#include <gtest/gtest.h>

#include "op/op.h"
#include "support/errors.h"
#include "support/tensors.h"
#include "tandem/tandem.h"

namespace tandem::autocast_test {
namespace {

using testing::error_of;

const Tensor& matrix() {
  static const Tensor result = ones({4, 4}) * 0.5;
  return result;
}

amp::AutocastOptions on(const char* device, DType dtype = bfloat16) {
  return {.dtype = dtype, .device_type = device};
}

TEST(Autocast, LowersMatrixProductsAndConvolutions) {
  for (const char* device : {"cpu", "gpu"})
    for (DType dtype : {bfloat16, float16}) {
      const amp::autocast cast(on(device, dtype));
      EXPECT_EQ(matmul(matrix(), matrix()).dtype(), dtype);
      EXPECT_EQ(nn::dense(matrix(), matrix(), ones({4})).dtype(), dtype);
      EXPECT_EQ(nn::conv2d(ones({1, 4, 4, 1}), ones({3, 3, 1, 2})).dtype(), dtype);
    }
}

TEST(Autocast, ListsOfCpusAndGpusDiffer) {
  const Tensor x = cast(matrix(), bfloat16);
  {
    const amp::autocast cast(on("cpu"));
    for (const Tensor& y : {nn::softmax(x), exp(x), reduce_sum(x), log(x), pow(x, 2.0)})
      EXPECT_EQ(y.dtype(), bfloat16);
    EXPECT_EQ(reduce_prod(x).dtype(), float32);
  }
  const amp::autocast cast(on("gpu"));
  for (const Tensor& y :
       {nn::softmax(x), exp(x), reduce_sum(x), log(x), pow(x, 2.0), reduce_prod(x)})
    EXPECT_EQ(y.dtype(), float32);
  for (const Tensor& y : {nn::relu(x), tanh(x), reduce_max(x)}) EXPECT_EQ(y.dtype(), bfloat16);
}

TEST(Autocast, LossesAreFloat32) {
  const Tensor logits = cast(matrix(), bfloat16), labels = zeros({4}, {.dtype = int32});
  for (const char* device : {"cpu", "gpu"}) {
    const amp::autocast cast(on(device));
    EXPECT_EQ(nn::sparse_softmax_cross_entropy(labels, logits).dtype(), float32);
  }
}

TEST(Autocast, MixedOperandsGetTheWidestDType) {
  const Tensor low = cast(matrix(), bfloat16), half = cast(matrix(), float16);
  EXPECT_NE(error_of<InvalidArgumentError>([&] { return low + matrix(); }), "no error");
  const amp::autocast cast(bfloat16);
  EXPECT_EQ((low + matrix()).dtype(), float32);
  EXPECT_EQ((low * low).dtype(), bfloat16);
  EXPECT_EQ((low * half).dtype(), float32);
  EXPECT_EQ((low * ones({4, 4}, {.dtype = float64})).dtype(), float64);
  EXPECT_EQ(concat({low, matrix()}, 0).dtype(), float32);
}

TEST(Autocast, LeavesFloat64AndIntegersAlone) {
  const amp::autocast cast(bfloat16);
  const Tensor wide = ones({2, 2}, {.dtype = float64});
  EXPECT_EQ(matmul(wide, wide).dtype(), float64);
  const Tensor integers = ones({2, 2}, {.dtype = int32});
  EXPECT_EQ((integers + integers).dtype(), int32);
}

TEST(Autocast, ScopesNestAndMaySwitchItOff) {
  EXPECT_FALSE(amp::is_autocast_enabled());
  {
    const amp::autocast outer(bfloat16);
    EXPECT_EQ(amp::autocast_dtype(), bfloat16);
    {
      const amp::autocast off(amp::AutocastOptions{.enabled = false});
      EXPECT_FALSE(amp::is_autocast_enabled());
      EXPECT_EQ(matmul(matrix(), matrix()).dtype(), float32);
      const amp::autocast inner(float16);
      EXPECT_EQ(matmul(matrix(), matrix()).dtype(), float16);
    }
    EXPECT_EQ(matmul(matrix(), matrix()).dtype(), bfloat16);
  }
  EXPECT_EQ(matmul(matrix(), matrix()).dtype(), float32);
}

TEST(Autocast, GradientsOfWeightsAreFloat32AndEqualThoseOfExplicitCasts) {
  Variable weight(matrix());
  const Tensor x = ones({2, 4}) * 0.25;
  const auto gradient = [&](bool explicitly) {
    weight.zero_grad();
    if (explicitly) {
      const Tensor low = cast(weight.value(), bfloat16);
      const Tensor y = matmul(matmul(cast(x, bfloat16), low), low);
      reduce_sum(cast(y, float32)).backward();
    } else {
      const amp::autocast cast_scope(on("cpu"));
      const Tensor y = matmul(matmul(x, weight), weight);
      EXPECT_EQ(y.dtype(), bfloat16);
      reduce_sum(cast(y, float32)).backward();
    }
    return weight.grad();
  };
  const Tensor expected = gradient(true), actual = gradient(false);
  EXPECT_EQ(actual.dtype(), float32);
  EXPECT_EQ(testing::values_of(actual), testing::values_of(expected));
}

TEST(Autocast, CachedWeightsFollowAssignments) {
  Variable weight(matrix());
  const amp::autocast cast(on("cpu"));
  const Tensor before = matmul(matrix(), weight);
  weight.assign(weight.value() * 2.0);
  EXPECT_EQ(testing::values_of(matmul(matrix(), weight)), testing::values_of(before * 2.0));
}

TEST(Autocast, TracedFunctionsAreTracedForEachSetting) {
  int traces = 0;
  const auto product = function([&](const Tensor& x) {
    ++traces;
    return matmul(x, x);
  });
  EXPECT_EQ(product(matrix()).dtype(), float32);
  {
    const amp::autocast cast(bfloat16);
    EXPECT_EQ(product(matrix()).dtype(), bfloat16);
  }
  {
    const amp::autocast cast(float16);
    EXPECT_EQ(product(matrix()).dtype(), float16);
  }
  EXPECT_EQ(product(matrix()).dtype(), float32);
  EXPECT_EQ(traces, 3);
}

TEST(Autocast, ReplicasOfAStrategyCarryIt) {
  config::set_logical_cpus(2);
  const distribute::MirroredStrategy strategy({.devices = {"/cpu:0", "/cpu:1"}});
  std::vector<DType> dtypes(2, float32);
  const amp::autocast cast(bfloat16);
  strategy.run([&] {
    const auto me = static_cast<std::size_t>(distribute::replica_id_in_sync_group());
    dtypes[me] = matmul(matrix(), matrix()).dtype();
  });
  EXPECT_EQ(dtypes, std::vector<DType>(2, bfloat16));
}

TEST(Autocast, RefusesOtherDTypesAndDevices) {
  EXPECT_EQ(error_of<InvalidArgumentError>([] { const amp::autocast cast(float32); }),
            "[autocast] expected dtype float16 or bfloat16, got float32");
  EXPECT_EQ(error_of<InvalidArgumentError>(
                [] { const amp::autocast cast(amp::AutocastOptions{.device_type = "tpu"}); }),
            "[autocast] expected device_type 'cpu' or 'gpu', got 'tpu'");
}

}  // namespace
}  // namespace tandem::autocast_test
