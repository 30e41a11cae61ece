// Datasets of the elements of a function.
#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "data/pipelines.h"
#include "support/tensors.h"
#include "tandem/creation.h"
#include "tandem/errors.h"

namespace tandem::generator_test {
namespace {

using data::Dataset;
using data::Example;
using namespace testing;

using Values = std::vector<std::int32_t>;

TEST(FromGenerator, RestartsForEachPass) {
  const Dataset dataset = generated(4);
  EXPECT_EQ(dataset.cardinality(), data::kUnknownCardinality);
  EXPECT_FALSE(dataset.element_spec());
  EXPECT_EQ(elements_of(dataset), count_up(0, 4));
  EXPECT_EQ(elements_of(dataset), count_up(0, 4));
  EXPECT_EQ(elements_of(dataset.iterate({.skip = 3})), (Values{3}));
}

TEST(FromGenerator, HasTheElementsThatItsOptionsDescribe) {
  const auto two = [n = 0]() mutable -> std::optional<Example> {
    if (n == 2) return std::nullopt;
    ++n;
    return Example{ones({n, 3}), constant(n, {.dtype = int64})};
  };
  const data::GeneratorOptions options = {
      .output_signature = {TensorSpec({-1, 3}), TensorSpec({}, int64)}};
  const Dataset data = Dataset::from_generator(two, options);
  ASSERT_TRUE(data.element_spec().has_value());
  EXPECT_EQ(data.element_spec()[0].shape, (Shape{-1, 3}));
  EXPECT_EQ(data.element_spec()[1].dtype, int64);
  const auto count = [](const Dataset& dataset) {
    int elements = 0;
    for (const Example& example : dataset) elements += static_cast<int>(example.size()) / 2;
    return elements;
  };
  EXPECT_EQ(count(data), 2);
  EXPECT_EQ(count(Dataset::from_generator(
                two, {.output_types = {float32, int64}, .output_shapes = {{-1, 3}, {}}})),
            2);
  const Dataset typed = Dataset::from_generator(two, {.output_types = {float32, int64}});
  EXPECT_EQ(count(typed), 2);
  EXPECT_FALSE(typed.element_spec().has_value());
  const auto expect_refused = [&](const data::GeneratorOptions& wrong, const std::string& text) {
    expect_error<InvalidArgumentError>([&] { count(Dataset::from_generator(two, wrong)); },
                                       "[from_generator] " + text);
  };
  expect_refused({.output_types = {float32}}, "expected examples of 1 components, got 2");
  expect_refused({.output_types = {float32, int32}},
                 "`generator` yielded an element of dtype int64 where an element of dtype int32 "
                 "was expected");
  expect_refused({.output_types = {float32, int64}, .output_shapes = {{1, 3}, {}}},
                 "`generator` yielded an element of shape (2, 3) where an element of shape (1, 3) "
                 "was expected");
  expect_refused({.output_types = {float32, int64}, .output_shapes = {{1, 3}}},
                 "expected an output_types and an output_shapes of each component, got 2 and 1");
  expect_refused({.output_types = {float32}, .output_signature = {TensorSpec({})}},
                 "The `output_types` and `output_shapes` arguments may not be provided when an "
                 "`output_signature` is provided: expected one of both, got both");
}

TEST(FromGenerator, TakesTheFunctionItselfAndCopiesItForEachPass) {
  const Dataset dataset =
      Dataset::from_generator([i = std::int64_t{0}]() mutable -> std::optional<Example> {
        if (i == 3) return std::nullopt;
        return Example(constant(i++));
      });
  EXPECT_EQ(elements_of(dataset), count_up(0, 3));
  EXPECT_EQ(elements_of(dataset), count_up(0, 3));
}

}  // namespace
}  // namespace tandem::generator_test
