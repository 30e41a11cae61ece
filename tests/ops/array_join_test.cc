#include <gtest/gtest.h>

#include "array_reference.h"
#include "support/errors.h"
#include "support/gradient_check.h"
#include "tandem/array.h"
#include "tandem/autodiff.h"
#include "tandem/errors.h"

namespace tandem::array_join_test {
namespace {

using namespace testing;

using Tensors = const std::vector<Tensor>&;

TEST(Concat, JoinsAlongEachAxis) {
  const Tensor a = iota({2, 3}), b = iota({2, 3}) + 6.0;
  expect_moved(concat({a, b}, 0), {4, 3}, [](const Index& i) { return i[0] * 3 + i[1]; });
  expect_moved(concat({a, b}, -1), {2, 6},
               [](const Index& i) { return i[1] < 3 ? i[0] * 3 + i[1] : 6 + i[0] * 3 + i[1] - 3; });
  const Tensor c = concat({a, iota({2, 1}), iota({2, 0})}, 1);
  EXPECT_EQ(c.to_vector<std::int32_t>(), (std::vector<std::int32_t>{0, 1, 2, 0, 3, 4, 5, 1}));
  const Tensor large = iota({300'000});
  expect_moved(concat({large, large}, 0), {600'000}, [](const Index& i) { return i[0] % 300'000; });
}

TEST(Concat, NamesShapesThatDoNotMatch) {
  EXPECT_EQ(error_of<InvalidArgumentError>([] {
              concat({iota({2, 3}), iota({3, 3})}, 1);
            }),
            "[ConcatV2] expected shapes that agree except along axis 1, got (2, 3) and (3, 3)");
  EXPECT_EQ(error_of<InvalidArgumentError>([] {
              concat({iota({2}), wiggly({2})}, 0);
            }),
            "[ConcatV2] expected tensors of one dtype, got int32 and float64");
  EXPECT_EQ(error_of<InvalidArgumentError>([] { concat(std::vector<Tensor>{}, 0); }),
            "[ConcatV2] expected at least one tensor, got none");
  EXPECT_THROW(concat({constant(1), constant(2)}, 0), InvalidArgumentError);
  EXPECT_THROW(concat({iota({2}), iota({2, 1})}, 0), InvalidArgumentError);
}

TEST(Stack, AddsAnAxis) {
  const Tensor a = iota({2, 3}), b = iota({2, 3}) + 6.0;
  expect_moved(stack({a, b}), {2, 2, 3}, [](const Index& i) { return i[0] * 6 + i[1] * 3 + i[2]; });
  expect_moved(stack({a, b}, 1), {2, 2, 3},
               [](const Index& i) { return i[1] * 6 + i[0] * 3 + i[2]; });
  expect_moved(stack({a, b}, -1), {2, 3, 2},
               [](const Index& i) { return i[2] * 6 + i[0] * 3 + i[1]; });
  EXPECT_EQ(stack({constant(1), constant(2), constant(3)}).to_vector<std::int32_t>(),
            (std::vector<std::int32_t>{1, 2, 3}));
  EXPECT_EQ(error_of<InvalidArgumentError>([] {
              stack({iota({2}), iota({3})});
            }),
            "[Pack] expected tensors of one shape, got (2,) and (3,)");
}

TEST(Stack, TakesManyTensors) {
  std::vector<Tensor> tensors;
  for (int i = 0; i < 40; ++i) tensors.push_back(constant(i));
  EXPECT_EQ(stack(tensors).to_vector<std::int32_t>(), iota({40}).to_vector<std::int32_t>());
}

TEST(Split, InvertsConcat) {
  const Tensor x = iota({4, 6});
  const auto parts = split(x, 3, {.axis = 1});
  ASSERT_EQ(parts.size(), 3u);
  for (std::size_t p = 0; p < 3; ++p)
    expect_moved(parts[p], {4, 2}, [&](const Index& i) {
      return i[0] * 6 + i[1] + static_cast<std::int64_t>(p) * 2;
    });
  const auto uneven = split(x, std::vector<std::int64_t>{1, 0, 3}, 0);
  EXPECT_EQ(uneven[1].shape(), Shape({0, 6}));
  EXPECT_EQ(concat(uneven, 0).to_vector<std::int32_t>(), x.to_vector<std::int32_t>());
  EXPECT_EQ(error_of<InvalidArgumentError>([&] { split(x, 4, {.axis = 1}); }),
            "[SplitV] expected a number of parts that divides 6 (axis 1 of shape (4, 6)), got 4");
  EXPECT_EQ(
      error_of<InvalidArgumentError>([&] {
        split(x, std::vector<std::int64_t>{1, 2}, 0);
      }),
      "[SplitV] expected sizes that add up to 4 (axis 0 of shape (4, 6)), got 1+2 adding up to 3");
}

TEST(Unstack, InvertsStack) {
  const Tensor x = iota({2, 3});
  const auto columns = unstack(x, 1);
  ASSERT_EQ(columns.size(), 3u);
  EXPECT_EQ(columns[2].to_vector<std::int32_t>(), (std::vector<std::int32_t>{2, 5}));
  EXPECT_EQ(unstack(iota({10, 2})).size(), 10u);
  EXPECT_EQ(unstack(iota({0, 2})).size(), 0u);
  EXPECT_THROW(unstack(x, 2), InvalidArgumentError);
}

TEST(JoinGradients, MatchDifferences) {
  const Tensor a = wiggly({2, 3}), b = wiggly({2, 2}), c = wiggly({2, 3}) * 0.5;
  testing::expect_gradients([](Tensors t) { return concat(t, 1); }, {a, b, c});
  testing::expect_gradients([](Tensors t) { return stack(t, 1); }, {a, c});
  testing::expect_gradients([](Tensors t) { return split(t[0], 3, {.axis = 1})[1]; }, {a});
  testing::expect_gradients(
      [](Tensors t) {
        auto p = split(t[0], 3, {.axis = 1});
        return p[0] * p[2];
      },
      {a});
  testing::expect_gradients(
      [](Tensors t) {
        auto p = unstack(t[0], 0);
        return p[0] * p[1];
      },
      {a});
}

}  // namespace
}  // namespace tandem::array_join_test
