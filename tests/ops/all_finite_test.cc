#include "ops/nn/all_finite.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "support/tensors.h"
#include "tandem/errors.h"
#include "tandem/math.h"

namespace tandem::all_finite_test {
namespace {

using testing::values_of;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Ones, but for one element.
Tensor with(double value, std::int64_t at, std::int64_t size, DType dtype) {
  std::vector<double> values(static_cast<std::size_t>(size), 1.0);
  values[static_cast<std::size_t>(at)] = value;
  return cast(constant(values), dtype);
}

bool finite(const std::vector<Tensor>& tensors) { return all_finite(tensors).item<bool>(); }

TEST(AllFinite, FindsOneElementAnywhere) {
  for (DType dtype : {float32, float64, float16, bfloat16})
    for (std::int64_t size : {1, 2, 31, 1000, 100003})
      for (std::int64_t at : {std::int64_t{0}, size / 2, size - 1}) {
        EXPECT_TRUE(finite({with(-2.0, at, size, dtype)})) << name_of(dtype) << size;
        for (double bad : {kInfinity, -kInfinity, std::nan("")})
          EXPECT_FALSE(finite({with(bad, at, size, dtype)})) << name_of(dtype) << size << bad;
      }
}

TEST(AllFinite, TakesTheLargestNumbers) {
  EXPECT_TRUE(finite({full({3}, std::numeric_limits<float>::max())}));
  EXPECT_TRUE(finite({full({3}, -65504.0, {.dtype = float16})}));
  EXPECT_TRUE(finite({full({3}, std::numeric_limits<double>::max(), {.dtype = float64})}));
}

TEST(AllFinite, TakesManyTensorsOfAnyShapesAndDTypes) {
  std::vector<Tensor> tensors;
  for (int i = 0; i < 500; ++i)
    tensors.push_back(
        with(1.0, 0, 1 + i % 7, std::vector<DType>{float32, float16, bfloat16, float64}[i % 4]));
  tensors.push_back(zeros({0, 3}));
  tensors.push_back(ones({2, 3, 4}));
  EXPECT_TRUE(finite(tensors));
  for (std::size_t bad : {std::size_t{0}, std::size_t{250}, std::size_t{499}}) {
    std::vector<Tensor> others = tensors;
    others[bad] = others[bad] * kInfinity;
    EXPECT_FALSE(finite(others)) << bad;
  }
}

TEST(AllFinite, RefusesNoTensorsAndIntegers) {
  EXPECT_THROW(all_finite({}), InvalidArgumentError);
  EXPECT_THROW(finite({zeros({2}, {.dtype = int32})}), InvalidArgumentError);
}

}  // namespace
}  // namespace tandem::all_finite_test
