// Numbers of the program in tensors, and elements of tensors as numbers.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "support/tensors.h"
#include "tandem/tandem.h"

namespace tandem::elements_test {
namespace {

using namespace testing;

TEST(Tensor, CopiesNumbersOfTheProgram) {
  std::vector<float> numbers{1, 2, 3, 4, 5, 6};
  const std::span<const float> constant_numbers(numbers);
  const std::span<float> all(numbers);
  const Tensor of_vector(numbers, {2, 3}), of_span(constant_numbers, {3, 2}),
      of_pointer(numbers.data() + 1, {2, 2}), of_mutable(all, {6});
  numbers.assign(6, 0);
  expect_tensor(of_vector, float32, {2, 3}, {1, 2, 3, 4, 5, 6});
  expect_tensor(of_span, float32, {3, 2}, {1, 2, 3, 4, 5, 6});
  expect_tensor(of_pointer, float32, {2, 2}, {2, 3, 4, 5});
  expect_tensor(of_mutable, float32, {6}, {1, 2, 3, 4, 5, 6});
  EXPECT_THROW(static_cast<void>(Tensor(constant_numbers, {5})), InvalidArgumentError);
  EXPECT_THROW(static_cast<void>(Tensor(numbers.data(), {-1, 3})), InvalidArgumentError);
}

TEST(Tensor, ReadsAnElementAtItsPosition) {
  const Tensor x = range(0.0, 6.0, 1.0, {.dtype = float64}).reshape({2, 3});
  EXPECT_EQ(x.at<double>(1, 2), 5.0);
  EXPECT_EQ(x.at<int>(-1, 0), 3);
  EXPECT_EQ(x.at<int>({0, 1}), 1);
  EXPECT_EQ(x[1].at<int>(1), 4);
  EXPECT_THROW(x.at<double>(1), InvalidArgumentError);
}

TEST(TensorMethods, ItemConvertsAnyDtype) {
  for (const DType dtype : {float32, float64, float16, bfloat16, int32, int64, uint8})
    EXPECT_EQ(constant(3.0, {.dtype = dtype}).item(), 3.0) << name_of(dtype);
  EXPECT_EQ(constant(true).item(), 1.0);
  expect_error<InvalidArgumentError>([] { ones({2}).item(); }, "one element, got shape (2,)");
}

TEST(TensorMethods, ItemOfAnotherTypeKeepsTheNumber) {
  EXPECT_EQ(constant(7).item<double>(), 7.0);
  EXPECT_EQ(constant(std::int64_t{7}).item<int>(), 7);
  EXPECT_EQ(constant(-3.0f).item<std::int64_t>(), -3);
  EXPECT_EQ(constant(0.1, {.dtype = float64}).item<float>(), 0.1f);
  EXPECT_EQ(constant(2.5, {.dtype = bfloat16}).item<double>(), 2.5);
  EXPECT_TRUE(constant(2).item<bool>());
  EXPECT_FALSE(constant(0.0).item<bool>());
  EXPECT_EQ(constant(true).item<int>(), 1);
  const std::uint64_t largest = std::numeric_limits<std::uint64_t>::max();
  EXPECT_EQ(constant(largest, {.dtype = uint64}).item<std::uint64_t>(), largest);
  EXPECT_TRUE(std::isinf(constant(INFINITY).item<double>()));
  EXPECT_TRUE(std::isnan(constant(NAN, {.dtype = float64}).item<float>()));
}

TEST(TensorMethods, ItemRefusesANumberThatTheTypeLacks) {
  expect_error<InvalidArgumentError>([] { constant(0.5f).item<int>(); },
                                     "[item] the float32 0.5 is no int32; read it as another type");
  EXPECT_THROW(constant(std::numeric_limits<std::uint64_t>::max()), InvalidArgumentError);
  EXPECT_THROW(constant(std::uint64_t{1} << 63, {.dtype = int64}), InvalidArgumentError);
  EXPECT_THROW(constant(300).item<std::uint8_t>(), InvalidArgumentError);
  EXPECT_THROW(constant(-1).item<std::uint64_t>(), InvalidArgumentError);
  EXPECT_THROW(constant(9.3e18, {.dtype = float64}).item<std::int64_t>(), InvalidArgumentError);
  EXPECT_EQ(constant(-0x1p63, {.dtype = float64}).item<std::int64_t>(),
            std::numeric_limits<std::int64_t>::min());
  EXPECT_THROW(constant(0x1p63, {.dtype = float64}).item<std::int64_t>(), InvalidArgumentError);
  EXPECT_THROW(constant(-1.0).item<std::uint8_t>(), InvalidArgumentError);
  EXPECT_THROW(constant(NAN).item<int>(), InvalidArgumentError);
  EXPECT_THROW(constant(1e300, {.dtype = float64}).item<float>(), InvalidArgumentError);
  EXPECT_THROW(constant(70000).item<Half>(), InvalidArgumentError);
}

}  // namespace
}  // namespace tandem::elements_test
