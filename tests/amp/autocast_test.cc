// The dtypes of operations under autocast, against PyTorch's lists.
#include <gtest/gtest.h>

#include "op/op.h"
#include "support/errors.h"
#include "support/gpus.h"
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
  return {.device_type = device, .dtype = dtype};
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
    for (const Tensor& y : {reduce_logsumexp(x), norm(x)}) EXPECT_EQ(y.dtype(), bfloat16);
  }
  const amp::autocast cast(on("gpu"));
  for (const Tensor& y : {nn::softmax(x), exp(x), reduce_sum(x), log(x), pow(x, 2.0),
                          reduce_prod(x), reduce_logsumexp(x), norm(x)})
    EXPECT_EQ(y.dtype(), float32);
  for (const Tensor& y : {nn::relu(x), tanh(x), reduce_max(x)}) EXPECT_EQ(y.dtype(), bfloat16);
}

TEST(Autocast, LossesAreFloat32) {
  const Tensor logits = cast(matrix(), bfloat16), labels = zeros({4}, {.dtype = int32});
  for (const char* device : {"cpu", "gpu"}) {
    const amp::autocast cast(on(device));
    EXPECT_EQ(nn::sparse_softmax_cross_entropy(labels, logits).dtype(), float32);
    EXPECT_EQ(losses::sparse_categorical_crossentropy(labels, logits).dtype(), float32);
    for (auto* loss : {losses::mse, losses::mae, losses::hinge, losses::kl_divergence})
      EXPECT_EQ(loss(logits, logits).dtype(), float32);
    EXPECT_EQ(losses::huber(logits, logits).dtype(), float32);
    EXPECT_EQ(losses::binary_crossentropy(logits, logits).dtype(), float32);
    EXPECT_EQ(losses::categorical_crossentropy(logits, logits).dtype(), float32);
    // Its square is no float16.
    const Tensor half = full({1, 1}, 300.0, {.dtype = float16});
    EXPECT_EQ(losses::mse(zeros({1, 1}), half).item<float>(), 90000.0f);
  }
  EXPECT_EQ(losses::mse(logits, logits).dtype(), bfloat16);
}

TEST(Autocast, LayersKeepActivationsOf16Bits) {
  random::set_seed(1);
  const Tensor image = cast(random::normal({2, 4, 4, 2}), bfloat16);
  const Tensor row = cast(random::normal({2, 6}), bfloat16);
  for (const char* device : {"cpu", "gpu"}) {
    const amp::autocast autocast(on(device));
    for (Layer layer : {Layer(layers::MaxPooling2D(2)), Layer(layers::AveragePooling2D(2)),
                        Layer(layers::GlobalAveragePooling2D()), Layer(layers::Flatten()),
                        Layer(layers::Activation("relu")), Layer(layers::Dropout(0.5)),
                        Layer(layers::BatchNormalization()), Layer(layers::Reshape({8, 4})),
                        Layer(layers::Conv2D(2, 3))})
      EXPECT_EQ(layer(image, {.training = true}).dtype(), bfloat16) << layer.name();
    EXPECT_EQ(layers::Add()({row, row}).dtype(), bfloat16);
    EXPECT_EQ(layers::Add()({row, tandem::cast(row, float32)}).dtype(), float32);
    EXPECT_EQ(layers::Dense(3)(row).dtype(), bfloat16);
    EXPECT_EQ(layers::Softmax()(row).dtype(), on(device).device_type == "gpu" ? float32 : bfloat16);
    EXPECT_EQ(layers::LayerNormalization()(row).dtype(),
              on(device).device_type == "gpu" ? float32 : bfloat16);
    EXPECT_EQ(layers::Flatten()(tandem::cast(image, float64)).dtype(), float32);
  }
  EXPECT_EQ(layers::Flatten()(image).dtype(), float32);
}

TEST(Autocast, SavesTheMemoryOfActivations) {
  testing::use_gpus(1);
  random::set_seed(1);
  const DeviceScope gpu("/gpu:0");
  const Tensor x = random::normal({32, 16, 16, 3}), y = random::normal({32, 10});
  const auto peak = [&](bool lowers, bool traced) {
    std::vector<Layer> all;
    for (int block = 0; block < 3; ++block)
      all.insert(all.end(),
                 {layers::Conv2D(32, 3, {.padding = "same"}), layers::BatchNormalization(),
                  layers::Activation("relu"), layers::Dropout(0.1)});
    all.insert(all.end(), {layers::GlobalAveragePooling2D(), layers::Dense(10)});
    Sequential model(all);
    model.build({-1, 16, 16, 3});
    optimizers::Optimizer optimizer = optimizers::SGD(0.01, model.parameters());
    const auto body = [&](const Tensor& images, const Tensor& targets) {
      optimizer.zero_grad();
      const amp::autocast autocast({.dtype = float16, .enabled = lowers});
      const Tensor loss = reduce_mean(losses::mse(targets, model(images, true)));
      loss.backward();
      optimizer.step();
      return loss;
    };
    const auto step = function(body);
    for (int i = 0; i < 2; ++i) {
      if (i == 1) config::reset_memory_stats("GPU:0");
      (traced ? step(x, y) : body(x, y)).item<float>();
    }
    return static_cast<double>(config::get_memory_info("GPU:0").peak);
  };
  for (const bool traced : {false, true})
    EXPECT_LT(peak(true, traced), 0.75 * peak(false, traced)) << traced;
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

TEST(Autocast, TakesTheDeviceTypeFirst) {
  const amp::autocast cast("cpu", bfloat16);
  EXPECT_EQ(amp::autocast_dtype(), bfloat16);
  const amp::autocast off("cpu", bfloat16, /*enabled=*/false);
  EXPECT_FALSE(amp::is_autocast_enabled());
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
