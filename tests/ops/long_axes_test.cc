// Operations along long axes and on large tensors, which kernels divide into blocks, pieces and
// passes.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "support/tensors.h"
#include "tandem/array.h"
#include "tandem/autodiff.h"
#include "tandem/device.h"
#include "tandem/math.h"
#include "tandem/nn.h"

namespace tandem::long_axes_test {
namespace {

using testing::expect_tensor;
using testing::random_tensor;
using testing::values_of;

// The mean and population variance of each column of [rows, columns].
struct Columns {
  std::vector<double> mean, variance;
};
Columns moments_of(const std::vector<double>& x, std::int64_t rows, std::int64_t columns) {
  Columns result;
  for (std::int64_t j = 0; j < columns; ++j) {
    double sum = 0.0, squares = 0.0;
    for (std::int64_t i = 0; i < rows; ++i) sum += x[static_cast<std::size_t>(i * columns + j)];
    const double mean = sum / static_cast<double>(rows);
    for (std::int64_t i = 0; i < rows; ++i)
      squares += std::pow(x[static_cast<std::size_t>(i * columns + j)] - mean, 2);
    result.mean.push_back(mean);
    result.variance.push_back(squares / static_cast<double>(rows));
  }
  return result;
}

TEST(LongAxes, BatchNormalisationOfManyRowsAndColumns) {
  constexpr double kEpsilon = 1e-3;
  for (const DType dtype : {float32, float64, bfloat16})
    for (const auto& [rows, columns] : std::vector<std::pair<std::int64_t, std::int64_t>>{
             {20'000, 3}, {3'000, 72}, {40, 1'100}}) {
      SCOPED_TRACE(std::to_string(rows) + " x " + std::to_string(columns));
      const DType statistics_dtype = dtype == float64 ? float64 : float32;
      const double tolerance = dtype == bfloat16 ? 2e-2 : 2e-5;
      const Tensor x = random_tensor({rows, columns}, 1, 7, 9, dtype);
      const Tensor gamma = random_tensor({columns}, 2, 0.5, 2, statistics_dtype);
      const Tensor beta = random_tensor({columns}, 3, -1, 1, statistics_dtype);
      const Tensor dy = random_tensor({rows, columns}, 4, -1, 1, dtype);
      GradientTape tape;
      for (const Tensor* each : {&x, &gamma, &beta}) tape.watch(*each);
      const auto result = nn::batch_norm_training(x, gamma, beta, kEpsilon);
      const auto gradients = tape.gradient(result.y, {x, gamma, beta}, {.output_gradient = dy});
      const std::vector<double> values = values_of(x), slopes = values_of(dy);
      const std::vector<double> scales = values_of(gamma), shifts = values_of(beta);
      const Columns of = moments_of(values, rows, columns);
      expect_tensor(result.mean, statistics_dtype, {columns}, of.mean, 1e-5);
      expect_tensor(result.variance, statistics_dtype, {columns}, of.variance, 1e-5);
      std::vector<double> y(values.size()), dx(values.size());
      std::vector<double> dgamma(scales.size()), dbeta(scales.size());
      const auto normal = [&](std::size_t i) {
        const std::size_t j = i % scales.size();
        return (values[i] - of.mean[j]) / std::sqrt(of.variance[j] + kEpsilon);
      };
      for (std::size_t i = 0; i < values.size(); ++i) {
        const std::size_t j = i % scales.size();
        y[i] = normal(i) * scales[j] + shifts[j];
        dgamma[j] += slopes[i] * normal(i);
        dbeta[j] += slopes[i];
      }
      const double count = static_cast<double>(rows);
      for (std::size_t i = 0; i < values.size(); ++i) {
        const std::size_t j = i % scales.size();
        dx[i] = scales[j] / std::sqrt(of.variance[j] + kEpsilon) *
                (slopes[i] - dbeta[j] / count - normal(i) * dgamma[j] / count);
      }
      expect_tensor(result.y, dtype, {rows, columns}, y, tolerance);
      expect_tensor(gradients[0], dtype, {rows, columns}, dx, tolerance);
      expect_tensor(gradients[1], statistics_dtype, {columns}, dgamma, 1e-3);
      expect_tensor(gradients[2], statistics_dtype, {columns}, dbeta, 1e-3);
    }
}

TEST(LongAxes, LayerNormalisationOfLongRowsAndManyOfThem) {
  for (const auto& [rows, columns] :
       std::vector<std::pair<std::int64_t, std::int64_t>>{{3, 1'500}, {2'000, 12}, {300, 65}}) {
    const Tensor x = random_tensor({rows, columns}, 1, 3, 5, float32);
    const Tensor gamma = random_tensor({columns}, 2, -2, 2, float32),
                 beta = random_tensor({columns}, 3, -2, 2, float32);
    const Tensor dy = random_tensor({rows, columns}, 4, -2, 2, float32);
    GradientTape tape;
    for (const Tensor* each : {&x, &gamma, &beta}) tape.watch(*each);
    const Tensor y = nn::layer_norm(x, gamma, beta, 1e-3);
    const auto gradients = tape.gradient(y, {x, gamma, beta}, {.output_gradient = dy});
    // The same, composed of operations in float64 on the host.
    const DeviceScope host("CPU:0");
    const Tensor wide = cast(x, float64), scale = cast(gamma, float64), slope = cast(dy, float64);
    const ReduceOptions last{.axis = Dims{1}, .keepdims = true};
    const Tensor centred = wide - reduce_mean(wide, last);
    const Tensor inverse = rsqrt(reduce_mean(square(centred), last) + 1e-3);
    const Tensor normal = centred * inverse, scaled = slope * scale;
    const Tensor dx = inverse * (scaled - reduce_mean(scaled, last) -
                                 normal * reduce_mean(scaled * normal, last));
    expect_tensor(y, float32, {rows, columns}, values_of(normal * scale + cast(beta, float64)),
                  2e-5);
    expect_tensor(gradients[0], float32, {rows, columns}, values_of(dx), 2e-5);
    expect_tensor(gradients[1], float32, {columns},
                  values_of(reduce_sum(slope * normal, {.axis = Dims{0}})), 2e-4);
    expect_tensor(gradients[2], float32, {columns}, values_of(reduce_sum(slope, {.axis = Dims{0}})),
                  2e-4);
  }
}

TEST(LongAxes, RunningSumsFromBothEnds) {
  for (const Shape& shape : {Shape{3, 5'000}, Shape{5, 100}, Shape{700, 9}}) {
    for (const int axis : {0, 1}) {
      std::vector<double> values;  // whole numbers, so that sums are exact
      for (std::int64_t i = 0; i < shape.num_elements(); ++i)
        values.push_back(static_cast<double>(i * 7 % 11 - 5));
      const Tensor x = cast(reshape(constant(values), shape), int32);
      const std::int64_t step = axis == 1 ? 1 : shape.word(1), length = shape.word(axis);
      std::vector<double> expected = values;
      for (std::int64_t i = 0; i < shape.num_elements(); ++i)
        if (i / step % length != 0)
          expected[static_cast<std::size_t>(i)] += expected[static_cast<std::size_t>(i - step)];
      expect_tensor(cumsum(x, axis), int32, shape, expected, 0.0);
      const Tensor wide = cast(x, float64);
      GradientTape tape;
      tape.watch(wide);
      const Tensor sums = cumsum(wide, axis);
      const Tensor gradient = tape.gradient(sums, wide, {.output_gradient = wide});
      std::vector<double> backwards = values;
      for (std::int64_t i = shape.num_elements(); i-- > 0;)
        if (i / step % length != length - 1)
          backwards[static_cast<std::size_t>(i)] += backwards[static_cast<std::size_t>(i + step)];
      expect_tensor(gradient, float64, shape, backwards, 0.0);
    }
  }
}

TEST(LongAxes, TheFirstOfEqualExtremaWins) {
  constexpr std::int64_t kLength = 5'000, kBeside = 40;
  std::vector<float> values(static_cast<std::size_t>(kLength * kBeside), 0.0f);
  std::vector<std::int64_t> expected;
  for (std::int64_t j = 0; j < kBeside; ++j) {
    const std::int64_t first = j * 97 % 4'000;
    for (const std::int64_t at : {first, first + 1, first + 300, kLength - 1})
      values[static_cast<std::size_t>(at * kBeside + j)] =
          j % 5 == 0 ? std::numeric_limits<float>::quiet_NaN() : 1.0f;
    expected.push_back(first);
  }
  const Tensor x = reshape(constant(values), {kLength, kBeside});
  EXPECT_EQ(argmax(x, 0).to_vector<std::int64_t>(), expected);
  EXPECT_EQ(argmax(transpose(x), 1).to_vector<std::int64_t>(), expected);
  EXPECT_EQ(argmin(-x, 0).to_vector<std::int64_t>(), expected);
  EXPECT_EQ(argmin(transpose(-x), 1).to_vector<std::int64_t>(), expected);
}

TEST(LongAxes, GradientsOfManyIndices) {
  for (const std::int64_t rows : {1, 7, 3'000})
    for (const std::int64_t columns : {1, 3, 8}) {
      constexpr std::int64_t kCount = 3'001;
      std::vector<std::int32_t> indices;
      for (std::int64_t i = 0; i < kCount; ++i)
        indices.push_back(static_cast<std::int32_t>(i * i * 31 % rows));
      const Tensor table = random_tensor({rows, columns}, 1, -2, 2, float32),
                   at = constant(indices);
      const Tensor slope = random_tensor({kCount, columns}, 2, -2, 2, float32);
      GradientTape tape;
      tape.watch(table);
      const Tensor y = gather(table, at);
      const Tensor gradient = tape.gradient(y, table, {.output_gradient = slope});
      std::vector<double> expected(static_cast<std::size_t>(rows * columns));
      const std::vector<double> slopes = values_of(slope);
      for (std::int64_t i = 0; i < kCount; ++i)
        for (std::int64_t j = 0; j < columns; ++j)
          expected[static_cast<std::size_t>(indices[static_cast<std::size_t>(i)] * columns + j)] +=
              slopes[static_cast<std::size_t>(i * columns + j)];
      expect_tensor(gradient, float32, {rows, columns}, expected, 1e-3);
    }
}

TEST(LongAxes, TransposesOfLargePlanesMoveEveryElement) {
  const Shape shape = {3, 70, 2, 45};
  for (const Dims& permutation : {Dims{0, 3, 2, 1}, Dims{3, 0, 2, 1}, Dims{0, 2, 1, 3}})
    for (const DType dtype : {uint8, bfloat16, float32, float64}) {
      std::vector<double> numbers;
      for (std::int64_t i = 0; i < shape.num_elements(); ++i)
        numbers.push_back(static_cast<double>(i % 251));
      const Tensor x = cast(reshape(constant(numbers), shape), dtype);
      const Tensor y = transpose(x, permutation);
      const std::vector<double> from = values_of(x);
      std::vector<double> expected;
      std::int64_t at[4];
      for (at[0] = 0; at[0] < y.dim(0); ++at[0])
        for (at[1] = 0; at[1] < y.dim(1); ++at[1])
          for (at[2] = 0; at[2] < y.dim(2); ++at[2])
            for (at[3] = 0; at[3] < y.dim(3); ++at[3]) {
              std::int64_t own[4];
              for (int axis = 0; axis < 4; ++axis) own[permutation[axis]] = at[axis];
              expected.push_back(from[static_cast<std::size_t>(
                  ((own[0] * shape[1] + own[1]) * shape[2] + own[2]) * shape[3] + own[3])]);
            }
      EXPECT_TRUE(values_of(y) == expected) << name_of(dtype);
    }
}

}  // namespace
}  // namespace tandem::long_axes_test
