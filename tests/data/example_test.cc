// The elements of datasets.
#include <gtest/gtest.h>

#include <sstream>
#include <tuple>
#include <utility>

#include "data/pipelines.h"
#include "support/tensors.h"
#include "tandem/errors.h"
#include "tandem/math.h"

namespace tandem::example_test {
namespace {

using data::Dataset;
using data::Example;
using testing::expect_error;
using testing::numbers;
using testing::values_in;

using Values = std::vector<std::int32_t>;

TEST(Example, AnIndexBeyondItsComponentsIsAnError) {
  data::Example example{ones({2}), zeros({2})};
  testing::expect_error<OutOfRangeError>([&] { example[2]; },
                                         "[Example] expected an index below 2, got 2");
}

TEST(Example, OfTwoComponentsIsTakenApart) {
  const Dataset pairs =
      Dataset::from_tensor_slices({constant({1, 2, 3}), constant({10, 20, 30})}).batch(2);
  Values xs, ys;
  for (const auto& [x, y] : pairs) {
    xs.push_back(x[0].item<std::int32_t>());
    ys.push_back(y[0].item<std::int32_t>());
  }
  EXPECT_EQ(xs, (Values{1, 3}));
  EXPECT_EQ(ys, (Values{10, 30}));
  auto iterator = pairs.iterate();
  const auto [x, y] = iterator.next();
  EXPECT_EQ(x.to_vector<std::int32_t>(), (Values{1, 2}));
  EXPECT_EQ(y.to_vector<std::int32_t>(), (Values{10, 20}));
  auto [x2, y2] = *iterator.next();
  EXPECT_EQ(x2.item<std::int32_t>() + y2.item<std::int32_t>(), 33);
  expect_error<OutOfRangeError>([&] { [[maybe_unused]] const auto [a, b] = iterator.next(); },
                                "no next element");
}

TEST(Example, OfAnotherNumberOfComponentsIsNotTakenApart) {
  const Tensor x = constant(1);
  expect_error<InvalidArgumentError>(
      [&] {
        [[maybe_unused]] auto [a, b] = Example{x, x, x};
      },
      "two components for `auto [x, y]`, got 3: use example[0]");
  expect_error<InvalidArgumentError>([&] { [[maybe_unused]] auto [a, b] = Example(x); }, "got 1");
}

TEST(Example, OfOneComponentIsATensor) {
  Values values;
  for (Tensor n : numbers(3)) values.push_back(square(n).item<std::int32_t>());
  for (const auto& n : numbers(2)) values.push_back((n + 5).item<std::int32_t>());
  for (auto n : numbers(2)) values.push_back(n.item<std::int32_t>());
  EXPECT_EQ(values, (Values{0, 1, 4, 5, 6, 0, 1}));
  const Example two{constant(1), constant(2)};
  expect_error<InvalidArgumentError>([&] { static_cast<void>(square(two)); },
                                     "[Example] expected one component where a tensor is "
                                     "expected, got 2: use example[0]");
  expect_error<InvalidArgumentError>([&] { static_cast<void>(two.item<std::int32_t>()); }, "got 2");
}

TEST(Example, InBracesIsACopy) {
  const Example two{constant(1), constant(2)};
  EXPECT_EQ(Example{two}.size(), 2u);
  EXPECT_EQ((Example{two, two}.size()), 4u);
}

TEST(Example, IsPrinted) {
  std::ostringstream out;
  out << Example{constant(1), constant({2, 3})} << Example();
  EXPECT_EQ(out.str(), "(1, [2 3])()");
}

TEST(Example, IsMadeOfAPair) {
  const Example example = std::make_pair(constant({1, 2}), constant(3));
  EXPECT_EQ(example.size(), 2u);
  EXPECT_EQ(example[1].item<std::int32_t>(), 3);
  const auto pairs =
      Dataset::from_tensor_slices(std::make_pair(constant({1, 2}), constant({3, 4})));
  EXPECT_EQ(pairs.size(), 2);
}

}  // namespace
}  // namespace tandem::example_test
