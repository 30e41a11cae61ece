// Gradients of variances and products.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "support/gradient_check.h"
#include "support/tensors.h"
#include "support/thread_counts.h"
#include "tandem/array.h"
#include "tandem/autodiff.h"
#include "tandem/creation.h"
#include "tandem/function.h"
#include "tandem/math.h"

namespace tandem::reduce_gradient_test {
namespace {

using testing::epsilon_of;
using testing::expect_error;
using testing::expect_tensor;
using testing::random_tensor;
using testing::values_of;

using Reduction = Tensor (*)(const Tensor&, const ReduceOptions&);

// The gradient of the results, in x's dtype.
Tensor slope_of(const Tensor& x, const Shape& results) {
  return cast(random_tensor(results, 5, 0.5, 1.5), x.dtype());
}

Tensor gradient_of(Reduction reduce, const Tensor& x, const Dims& axes) {
  GradientTape tape;
  tape.watch(x);
  const Tensor y = reduce(x, {.axis = axes});
  return tape.gradient(y, x, {.output_gradient = slope_of(x, y.shape())});
}

// Sizes around those of blocks, and axes of which some are neighbours.
struct Sizes {
  Shape shape;
  Dims axes;
};
const std::vector<Sizes>& sizes() {
  static const std::vector<Sizes> all = {
      {{10000}, {0}},        {{4096}, {0}},    {{3, 4097}, {1}},
      {{5, 63}, {1}},        {{7, 200}, {1}},  {{150, 300}, {0}},
      {{2, 130, 140}, {1}},  {{64, 3}, {0}},   {{65, 2, 3, 70}, {0, 3}},
      {{3, 40, 70}, {1, 2}}, {{4, 1, 5}, {1}}, {{6, 5, 4, 3}, {1, 3}}};
  return all;
}

// By the definition, in double. REQUIRES: no element is 0.
std::vector<double> product_gradient(const Tensor& x, const Dims& axes) {
  const Tensor wide = cast(x, float64);
  const Tensor y = reduce_prod(wide, {.axis = axes});
  const Tensor slope = cast(slope_of(x, y.shape()), float64);
  const Shape kept = reduce_prod(wide, {.axis = axes, .keepdims = true}).shape();
  return values_of(reshape(y * slope, kept) / wide);
}

TEST(ReduceGradient, OfProductsInEveryDtype) {
  for (const DType dtype : testing::kFloatingTypes)
    for (const auto& [shape, axes] : sizes()) {
      SCOPED_TRACE(::testing::Message() << shape << dtype);
      const Tensor x = random_tensor(shape, 3, 0.99, 1.01, dtype);
      const double tolerance = (size_of(dtype) == 2 ? 4 : 300) * epsilon_of(dtype);
      expect_tensor(gradient_of(reduce_prod, x, axes), dtype, shape, product_gradient(x, axes),
                    tolerance);
    }
}

TEST(ReduceGradient, OfProductsWithZerosInLargeBlocks) {
  for (const Shape& shape : {Shape({9000, 1}), Shape({9000, 3})}) {
    std::vector<double> values(static_cast<std::size_t>(shape.num_elements()), 1.0);
    values[static_cast<std::size_t>(4500 * shape[1])] = 0.0;  // a single zero in column 0
    const Tensor x = constant(values, {.dtype = float32, .shape = shape});
    GradientTape tape;
    tape.watch(x);
    std::vector<double> expected(values.size(), 0.0);
    expected[static_cast<std::size_t>(4500 * shape[1])] = 1.0;
    for (std::size_t i = 0; i < expected.size(); ++i)
      if (i % static_cast<std::size_t>(shape[1]) != 0) expected[i] = 1.0;
    expect_tensor(tape.gradient(reduce_prod(x, {.axis = {0}}), x), float32, shape, expected);
  }
}

// By the definition, in double.
std::vector<double> variance_gradient(const Tensor& x, const Dims& axes) {
  const Tensor wide = cast(x, float64);
  const Tensor mean = reduce_mean(wide, {.axis = axes, .keepdims = true});
  const Tensor y = reduce_variance(x, {.axis = axes});
  const Tensor slope = cast(slope_of(x, y.shape()), float64);
  const double count = static_cast<double>(x.size()) / static_cast<double>(y.size());
  return values_of((wide - mean) * reshape(slope, mean.shape()) * (2.0 / count));
}

TEST(ReduceGradient, OfVariancesInEveryDtype) {
  for (const DType dtype : testing::kFloatingTypes)
    for (const auto& [shape, axes] : sizes()) {
      SCOPED_TRACE(::testing::Message() << shape << dtype);
      const Tensor x = random_tensor(shape, 3, -1, 1, dtype);
      expect_tensor(gradient_of(reduce_variance, x, axes), dtype, shape, variance_gradient(x, axes),
                    4 * epsilon_of(dtype));
    }
}

TEST(ReduceGradient, VariancesAroundALargeMeanStayAccurate) {
  for (const auto& [shape, axes] : sizes()) {
    SCOPED_TRACE(::testing::Message() << shape);
    const Tensor x = cast(random_tensor(shape, 3, 4095, 4097), float32);
    const Tensor exact = reduce_variance(cast(x, float64), {.axis = axes});
    expect_tensor(reduce_variance(x, {.axis = axes}), float32, exact.shape(), values_of(exact),
                  1e-5);
  }
}

TEST(ReduceGradient, TheSameBitsForAnyNumberOfThreads) {
  for (const Reduction reduce : {Reduction(reduce_variance), Reduction(reduce_prod)})
    for (const auto& [shape, axes] : sizes())
      for (const DType dtype : {float32, bfloat16})
        testing::expect_same_bits_with_any_team([&] {
          const Tensor x = random_tensor(shape, 3, 0.9, 1.1, dtype);
          std::vector<double> values = values_of(gradient_of(reduce, x, axes));
          for (const double value : values_of(reduce(x, {.axis = axes}))) values.push_back(value);
          return values;
        });
}

TEST(ReduceGradient, OfVariancesInTracesOfUnknownSizes) {
  const auto step = function(
      [](const Tensor& x) {
        GradientTape tape;
        tape.watch(x);
        return tape.gradient(reduce_variance(x, {.axis = {0}}), x);
      },
      {.input_signature = {{.shape = {-1, 2}}}});
  expect_tensor(step(constant({{1.0, 5.0}, {3.0, 5.0}})), float32, {2, 2}, {-1, 0, 1, 0});
  expect_tensor(step(constant({{1.0, 5.0}, {2.0, 5.0}, {3.0, 8.0}})), float32, {3, 2},
                {-2.0 / 3, -2.0 / 3, 0, -2.0 / 3, 2.0 / 3, 4.0 / 3}, 1e-6);
}

}  // namespace
}  // namespace tandem::reduce_gradient_test
