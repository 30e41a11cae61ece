#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "support/gradient_check.h"
#include "tandem/math.h"

namespace tandem::clip_test {
namespace {

using namespace testing;

TEST(Clip, ByValue) {
  for (DType dtype : testing::kFloatingTypes)
    expect_tensor(clip_by_value(constant({-2.0, 0.25, 3.0}, {.dtype = dtype}), -1.0, 1.0), dtype,
                  Shape({3}), {-1.0, 0.25, 1.0});
  expect_tensor(clip_by_value(constant({-2, 1, 9}), 0, 5), int32, Shape({3}), {0, 1, 5});
  expect_tensor(clip_by_value(zeros(Shape({0})), 0, 1), float32, Shape({0}), {});
  expect_gradients(
      [](const std::vector<Tensor>& x) { return clip_by_value(square(x[0]), 0.5, 2.0); },
      {random_tensor(Shape({8}), 1)});
  expect_error<InvalidArgumentError>([] { clip_by_value(zeros(Shape({1})), 1.0, 0.0); },
                                     "[ClipByValue] expected low <= high, got 1 and 0");
}

TEST(Clip, ByNormScalesLongerTensorsAlone) {
  const Tensor x = constant({3.0, 4.0});
  expect_tensor(clip_by_norm(x, 1.0), float32, Shape({2}), {0.6, 0.8}, 1e-7);
  expect_tensor(clip_by_norm(x, 10.0), float32, Shape({2}), {3.0, 4.0});
  expect_tensor(clip_by_norm(zeros(Shape({2})), 1.0), float32, Shape({2}), {0.0, 0.0});
  expect_gradients([](const std::vector<Tensor>& v) { return clip_by_norm(v[0], 1.0); },
                   {random_tensor(Shape({4}), 2)});
  expect_error<InvalidArgumentError>([&] { clip_by_norm(x, 0.0); },
                                     "[clip_by_norm] expected a clip_norm above 0, got 0");
}

TEST(Clip, GlobalNormOfAllTensors) {
  const std::vector<Tensor> tensors = {random_tensor(Shape({3, 4}), 1), Tensor(),
                                       random_tensor(Shape({5}), 2)};
  double squares = 0;
  for (const Tensor& tensor : tensors)
    if (tensor.defined())
      for (double value : values_of(tensor)) squares += value * value;
  const double expected = std::sqrt(squares);
  EXPECT_NEAR(global_norm(tensors).item<double>(), expected, 1e-14 * expected);
  expect_gradients([](const std::vector<Tensor>& x) { return global_norm(x); },
                   {random_tensor(Shape({3}), 3), random_tensor(Shape({2, 2}), 4)});
  expect_error<InvalidArgumentError>([] { global_norm(std::vector<Tensor>(2)); },
                                     "[global_norm] expected at least one defined tensor");
}

TEST(Clip, ByGlobalNormScalesAllEqually) {
  const std::vector<Tensor> tensors = {constant({3.0, 0.0}), Tensor(),
                                       constant({4.0}, {.dtype = float16})};
  const ClippedTensors clipped = clip_by_global_norm(tensors, 1.0);
  EXPECT_NEAR(clipped.norm.item<float>(), 5.0, 1e-6);
  expect_tensor(clipped.tensors[0], float32, Shape({2}), {0.6, 0.0}, 1e-6);
  EXPECT_FALSE(clipped.tensors[1].defined());
  expect_tensor(clipped.tensors[2], float16, Shape({1}), {0.8}, 1e-3);
  expect_tensor(clip_by_global_norm(tensors, 6.0).tensors[0], float32, Shape({2}), {3.0, 0.0});
}

// As TensorFlow: one overflowed gradient must not silently stop all others.
TEST(Clip, AnInfiniteGlobalNormMakesAllNaN) {
  const double infinity = std::numeric_limits<double>::infinity();
  for (const double value : {infinity, 3e30}) {
    const ClippedTensors clipped =
        clip_by_global_norm(std::vector{constant({value, 1.0}), constant({2.0})}, 1.0);
    for (const Tensor& tensor : clipped.tensors)
      for (const double element : testing::values_of(tensor)) EXPECT_TRUE(std::isnan(element));
  }
}

// The norm of float16 gradients may be far beyond float16.
TEST(Clip, NormsOfSixteenBitTensorsDoNotOverflow) {
  const Tensor x = full({4}, 64000.0, {.dtype = float16});
  const ClippedTensors clipped = clip_by_global_norm(std::vector{x, Tensor()}, 1000.0);
  testing::expect_tensor(clipped.norm, float32, Shape::scalar(), {128000.0});
  testing::expect_tensor(clipped.tensors[0], float16, {4}, std::vector<double>(4, 500.0));
  testing::expect_tensor(clip_by_norm(x, 1000.0), float16, {4}, std::vector<double>(4, 500.0));
}

TEST(Clip, SixteenBitGradientsAreThoseOfFloat32) {
  const Tensor x = random_tensor(Shape({40}), 1, -2, 2, bfloat16);
  const auto gradient = [](const Tensor& at) {
    GradientTape tape;
    tape.watch(at);
    return tape.gradient(reduce_sum(cast(square(clip_by_norm(at, 1.0)), float32)), at);
  };
  const Tensor mine = gradient(x), wide = gradient(cast(x, float32));
  EXPECT_EQ(mine.dtype(), bfloat16);
  testing::expect_tensor(cast(mine, float32), float32, Shape({40}), values_of(wide), 1e-2);
}

}  // namespace
}  // namespace tandem::clip_test
