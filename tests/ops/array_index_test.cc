#include <gtest/gtest.h>

#include "array_reference.h"
#include "support/errors.h"
#include "support/gradient_check.h"
#include "tandem/array.h"
#include "tandem/autodiff.h"
#include "tandem/device.h"
#include "tandem/errors.h"
#include "tandem/nn.h"

namespace tandem::array_index_test {
namespace {

using namespace testing;

using Tensors = const std::vector<Tensor>&;

TEST(Gather, TakesSlicesAlongAnAxis) {
  const Tensor x = iota({4, 3, 2});
  for (const DType dtype : {int32, int64}) {
    const Tensor rows = cast(constant({{3, 0}, {1, 1}, {2, 3}}), dtype);
    const auto at = rows.dtype() == int32 ? cast(rows, int64).to_vector<std::int64_t>()
                                          : rows.to_vector<std::int64_t>();
    expect_moved(gather(x, rows), {3, 2, 3, 2}, [&](const Index& i) {
      return at[static_cast<std::size_t>(i[0] * 2 + i[1])] * 6 + i[2] * 2 + i[3];
    });
  }
  expect_moved(gather(x, constant({2, 0}), 1), {4, 2, 2},
               [](const Index& i) { return i[0] * 6 + (2 - 2 * i[1]) * 2 + i[2]; });
  EXPECT_EQ(gather(x, constant(1), -1).shape(), Shape({4, 3}));
  EXPECT_EQ(gather(x, zeros({0}, {.dtype = int32})).shape(), Shape({0, 3, 2}));
}

TEST(Gather, NamesTheIndexOutOfRange) {
  const DeviceScope on_cpu("/cpu:0");  // where errors are synchronous
  EXPECT_EQ(error_of<InvalidArgumentError>([] {
              gather(iota({4, 3}), constant({0, 4}));
            }),
            "[GatherV2] expected indices of [0, 4), got 4 at position 1");
  EXPECT_EQ(error_of<InvalidArgumentError>([] {
              gather(iota({4, 3}), constant({-1}));
            }),
            "[GatherV2] expected indices of [0, 4), got -1 at position 0");
  EXPECT_EQ(error_of<InvalidArgumentError>([] {
              gather(iota({4, 3}), wiggly({2}));
            }),
            "[GatherV2] expected int32 or int64 indices, got float64");
  EXPECT_THROW(gather(iota({4, 3}), constant({0}), 2), InvalidArgumentError);
}

TEST(Gather, AddsUpGradientsOfRepeatedIndices) {
  const Tensor table = wiggly({4, 2});
  const Tensor indices = constant({1, 3, 1});
  GradientTape tape;
  tape.watch(table);
  const Tensor y =
      nn::embedding_lookup(table, indices) * constant({{1.0}, {10.0}, {100.0}}, {.dtype = float64});
  EXPECT_EQ(tape.gradient(reduce_sum(y), table).to_vector<double>(),
            (std::vector<double>{0, 0, 101, 101, 0, 0, 10, 10}));
}

TEST(Gather, GradientMatchesDifferences) {
  const Tensor x = wiggly({3, 4, 2});
  testing::expect_gradients([](Tensors t) { return gather(t[0], constant({2, 2, 0})); }, {x});
  testing::expect_gradients(
      [](Tensors t) {
        return gather(t[0], constant({{3, 1}, {1, 1}}), 1);
      },
      {x});
  testing::expect_gradients([](Tensors t) { return gather(t[0], constant({1, 0, 1}), 2); }, {x});
}

TEST(Gather, GradientHasAGradient) {
  const Tensor x = wiggly({4});
  GradientTape outer;
  outer.watch(x);
  Tensor first;
  {
    GradientTape inner;
    inner.watch(x);
    const Tensor y = gather(x, constant({2, 2, 0}));
    first = inner.gradient(reduce_sum(y * y * y), x);
  }
  const auto values = x.to_vector<double>();
  const auto second = outer.gradient(reduce_sum(first), x).to_vector<double>();
  const double expected[] = {6 * values[0], 0, 12 * values[2], 0};
  for (std::size_t i = 0; i < 4; ++i) EXPECT_NEAR(second[i], expected[i], 1e-12);
}

// For any number of threads, the sums are bitwise those in the order of the indices.
template <class T, class Sum, std::size_t kRows, std::size_t kWidth>
void expect_sums_in_order() {
  constexpr std::size_t kCount = 20'000;
  std::vector<std::int32_t> chosen(kCount);
  for (std::size_t i = 0; i < kCount; ++i)
    chosen[i] = static_cast<std::int32_t>((i * i * 31 + i) % kRows);
  const Tensor weights = wiggly({kCount, kWidth}, dtype_of<T>);
  const Tensor table = zeros({kRows, kWidth}, {.dtype = dtype_of<T>});
  GradientTape tape;
  tape.watch(table);
  const Tensor y = gather(table, constant(chosen));
  const auto sums = tape.gradient(y, table, {.output_gradient = weights}).to_vector<T>();

  const auto values = weights.to_vector<T>();
  std::vector<Sum> expected(kRows * kWidth);
  for (std::size_t i = 0; i < kCount; ++i)
    for (std::size_t k = 0; k < kWidth; ++k)
      expected[static_cast<std::size_t>(chosen[i]) * kWidth + k] +=
          static_cast<Sum>(values[i * kWidth + k]);
  for (std::size_t i = 0; i < expected.size(); ++i)
    ASSERT_EQ(static_cast<Sum>(sums[i]), static_cast<Sum>(static_cast<T>(expected[i]))) << i;
}

TEST(Gather, SumsGradientsInTheOrderOfTheIndices) {
  expect_sums_in_order<float, float, 500, 7>();
  expect_sums_in_order<double, double, 500, 7>();
  expect_sums_in_order<Half, float, 500, 7>();
  expect_sums_in_order<BFloat16, float, 500, 7>();
  // Several blocks of rows in 16-bit types.
  expect_sums_in_order<Half, float, 70'000, 3>();
  expect_sums_in_order<BFloat16, float, 32'768, 4>();
  expect_sums_in_order<BFloat16, float, 70'001, 1>();
}

TEST(OneHot, MarksIndices) {
  EXPECT_EQ(one_hot(constant({1, -1, 3, 0}), 3).to_vector<float>(),
            (std::vector<float>{0, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0}));
  const Tensor smooth = one_hot(constant(1), 3, {.on = 0.75, .off = 0.125, .dtype = float64});
  EXPECT_EQ(smooth.to_vector<double>(), (std::vector<double>{0.125, 0.75, 0.125}));
  EXPECT_EQ(one_hot(constant({{0}, {1}}), 2, {.dtype = bool_}).shape(), Shape({2, 1, 2}));
  EXPECT_EQ(one_hot(constant({0, 1}), 0).shape(), Shape({2, 0}));
  EXPECT_EQ(error_of<InvalidArgumentError>([] { one_hot(constant({1}), -1); }),
            "[OneHot] expected a depth of at least 0, got -1");
  EXPECT_THROW(one_hot(wiggly({2}), 3), InvalidArgumentError);
}

TEST(OneHot, RejectsValuesThatTheDtypeCannotHold) {
  const Tensor indices = constant({0, 1});
  testing::expect_error<InvalidArgumentError>(
      [&] { one_hot(indices, 2, {.on = 300.0, .dtype = uint8}); },
      "[OneHot] expected a number that uint8 holds, got 300");
  testing::expect_error<InvalidArgumentError>(
      [&] { one_hot(indices, 2, {.off = 0.5, .dtype = int32}); },
      "[OneHot] expected a number that int32 holds, got 0.5");
}

}  // namespace
}  // namespace tandem::array_index_test
