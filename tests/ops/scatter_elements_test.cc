// Writing and combining elements at positions along an axis, against plain loops.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>

#include "support/gradient_check.h"
#include "support/tensors.h"
#include "tandem/array.h"
#include "tandem/creation.h"
#include "tandem/function.h"
#include "tandem/math.h"
#include "tandem/scatter.h"

namespace tandem::scatter_elements_test {
namespace {

using namespace testing;
using Values = std::vector<double>;

const Tensor& positions() {
  static const Tensor index = constant({{0, 2, 2}, {1, 1, 1}}, {.dtype = int64});
  return index;
}

TEST(Scatter, TheLastElementOfAPositionStays) {
  const Tensor x = zeros({2, 4}, float64);
  const Tensor source = constant({{1.0, 2.0, 3.0, 9.0}, {4.0, 5.0, 6.0, 9.0}}, {.dtype = float64});
  expect_tensor(scatter(x, 1, positions(), source), float64, {2, 4}, {1, 0, 3, 0, 0, 6, 0, 0});
  expect_tensor(scatter(x, 1, positions(), 7.0), float64, {2, 4}, {7, 0, 7, 0, 0, 7, 0, 0});
  const Tensor rows = scatter(zeros({3, 3}, float64), 0, positions(), source);
  expect_tensor(rows, float64, {3, 3}, {1, 0, 0, 4, 5, 6, 0, 2, 3});
  const Tensor bools = scatter(zeros({3}, bool_), 0, constant({2}), constant({true}));
  EXPECT_EQ(bools.to_vector<bool>(), (std::vector<bool>{false, false, true}));
  for (const DType dtype : {float32, float16, bfloat16, int32, int64, uint8})
    EXPECT_EQ(values_of(cast(scatter(zeros({4}, dtype), 0, constant({3, 1, 3}),
                                     cast(constant({1.0, 2.0, 5.0}), dtype)),
                             float64)),
              (Values{0, 2, 0, 5}));
}

TEST(Scatter, RunsInFunctionsWithAnUnknownBatch) {
  const auto traced =
      function([](const Tensor& x, const Tensor& at) { return scatter(x, 1, at, 1.0); },
               {.input_signature = {{Shape{-1, 3}, float64}, {Shape{-1, 1}, int64}}});
  const Tensor at = constant({{2}, {0}}, {.dtype = int64});
  expect_tensor(traced(zeros({2, 3}, float64), at), float64, {2, 3}, {0, 0, 1, 1, 0, 0});
}

TEST(Scatter, GradientsGoToWhatStays) {
  const auto f = [](const std::vector<Tensor>& in) {
    return square(scatter(in[0], 1, positions(), in[1]));
  };
  const Tensor x = random_tensor({2, 4}, 1), source = random_tensor({2, 3}, 2);
  expect_gradients(f, {x, source});
  expect_second_order(
      [&](const std::vector<Tensor>& in) {
        return f({in[0] * in[0], in[1]});
      },
      {x, source});
  expect_gradients(
      [](const std::vector<Tensor>& in) {
        return square(scatter_add(in[0], 1, positions(), in[1]));
      },
      {x, source});
}

TEST(ScatterAdd, AddsWherePositionsRepeat) {
  expect_tensor(scatter_add(ones({2, 4}, float64), 1, positions(), ones({2, 3}, float64)), float64,
                {2, 4}, {2, 1, 3, 1, 1, 4, 1, 1});
  expect_tensor(
      scatter_add(ones({2}, int64), 0, constant({1, 1}), constant({5, 6}, {.dtype = int64})), int64,
      {2}, {1, 12});
}

struct Reduction {
  const char* name;
  std::function<double(const Values&)> of;
};

TEST(ScatterReduce, EqualsLoops) {
  const auto folded = [](double start, auto f) {
    return [=](const Values& all) {
      double result = start;
      for (const double value : all) result = f(result, value);
      return result;
    };
  };
  const auto sum = folded(0.0, [](double a, double b) { return a + b; });
  const Reduction reductions[] = {
      {"sum", sum},
      {"prod", folded(1.0, [](double a, double b) { return a * b; })},
      {"mean", [=](const Values& all) { return sum(all) / static_cast<double>(all.size()); }},
      {"amax", [](const Values& all) { return *std::max_element(all.begin(), all.end()); }},
      {"amin", [](const Values& all) { return *std::min_element(all.begin(), all.end()); }},
  };
  const Tensor x = random_tensor({5}, 1), source = random_tensor({7}, 2);
  const std::vector<std::int64_t> at = {0, 3, 3, 1, 3, 0, 4};
  for (const Reduction& reduction : reductions)
    for (const bool include_self : {true, false}) {
      SCOPED_TRACE(std::string(reduction.name) + (include_self ? "" : " of the source alone"));
      Values expected;
      for (std::int64_t i = 0; i < 5; ++i) {
        Values all;
        if (include_self || i == 2) all.push_back(values_of(x)[static_cast<std::size_t>(i)]);
        for (std::size_t k = 0; k < at.size(); ++k)
          if (at[k] == i) all.push_back(values_of(source)[k]);
        expected.push_back(reduction.of(all));
      }
      const auto f = [&](const std::vector<Tensor>& in) {
        return scatter_reduce(in[0], 0, constant(at), in[1], reduction.name, include_self);
      };
      expect_tensor(f({x, source}), float64, {5}, expected, 1e-14);
      expect_gradients([&](const std::vector<Tensor>& in) { return square(f(in)); }, {x, source});
    }
}

TEST(ScatterReduce, HasProductsWithZerosAndSharesOfEqualExtremes) {
  const Tensor at = constant({0, 0, 1, 1});
  const auto gradients = [&](const Tensor& x, const Tensor& source, const char* reduce) {
    GradientTape tape;
    tape.watch(x);
    tape.watch(source);
    const auto found =
        tape.gradient(scatter_reduce(x, 0, at, source, reduce), std::vector<Tensor>{x, source});
    return std::pair(values_of(found[0]), values_of(found[1]));
  };
  const Tensor zeros_inside = constant({0.0, 3.0, 2.0, 5.0}, {.dtype = float64});
  const auto [of_x, of_source] =
      gradients(constant({2.0, 0.0}, {.dtype = float64}), zeros_inside, "prod");
  EXPECT_EQ(of_x, (Values{0, 10}));
  EXPECT_EQ(of_source, (Values{6, 0, 0, 0}));
  const auto [share, of_each] =
      gradients(constant({1.0, 9.0}, {.dtype = float64}), ones({4}, float64), "amax");
  EXPECT_EQ(share, (Values{1.0 / 3.0, 1.0}));
  EXPECT_EQ(of_each, (Values{1.0 / 3.0, 1.0 / 3.0, 0, 0}));
}

TEST(IndexCopy, ReplacesAndCombinesSlices) {
  const Tensor x = zeros({3, 2}, float64);
  const Tensor source = constant({{1.0, 2.0}, {3.0, 4.0}}, {.dtype = float64});
  expect_tensor(index_copy(x, 0, constant({2, 0}), source), float64, {3, 2}, {3, 4, 0, 0, 1, 2});
  expect_tensor(index_reduce(x - 5.0, 0, constant({1, 1}), source, "amax"), float64, {3, 2},
                {-5, -5, 3, 4, -5, -5});
  expect_error<ShapeError>([&] { static_cast<void>(index_copy(x, 0, constant({2}), source)); },
                           "[index_copy] expected a position for each slice along axis 0 of shape "
                           "(2, 2), got (1,)");
}

TEST(IndexPut, WritesOrAddsAtPositionsOfSeveralAxes) {
  const Tensor x = zeros({2, 3, 2}, float64);
  const Tensor rows = constant({0, -1, 0}), columns = constant({2, 0, 2});
  const Tensor values = constant({{1.0, 2.0}, {3.0, 4.0}, {5.0, 6.0}}, {.dtype = float64});
  expect_tensor(index_put(x, {rows, columns}, values), float64, {2, 3, 2},
                {0, 0, 0, 0, 5, 6, 3, 4, 0, 0, 0, 0});
  expect_tensor(index_put(x + 1.0, {rows, columns}, values, true), float64, {2, 3, 2},
                {1, 1, 1, 1, 7, 9, 4, 5, 1, 1, 1, 1});
  // Indices and values broadcast.
  expect_tensor(index_put(zeros({2, 3}), {constant({{0}, {1}}), constant({0, 2})}, constant(7.0)),
                float32, {2, 3}, {7, 0, 7, 7, 0, 7});
  expect_tensor(index_put(zeros({2, 3}, int64), {constant({1})}, zeros({3}, int64) + 2.0), int64,
                {2, 3}, {0, 0, 0, 2, 2, 2});
  for (const bool accumulate : {false, true})
    expect_gradients(
        [&](const std::vector<Tensor>& in) {
          return square(index_put(in[0], {rows, columns}, in[1], accumulate));
        },
        {random_tensor({2, 3, 2}), random_tensor({3, 2}, 2)});
  const auto f =
      function([&](const Tensor& at) { return index_put(zeros({4}), {at}, constant(1.0), true); },
               {.input_signature = {{.shape = {-1}, .dtype = int64}}});
  expect_tensor(f(cast(constant({1, 3, 1}), int64)), float32, {4}, {0, 2, 0, 1});
}

TEST(IndexPut, RefusesWhatDoesNotFit) {
  const Tensor x = zeros({2, 3});
  expect_error<InvalidArgumentError>(
      [&] {
        index_put(x, {constant({0}), constant({3})}, constant(1.0)).to_vector<float>();
      },
      "expected positions of [0, 6), got -1");
  expect_error<InvalidArgumentError>([&] { static_cast<void>(index_put(x, {}, constant(1.0))); },
                                     "[index_put] expected indices of 1 to 2 axes, got 0");
  expect_error<DTypeError>([&] { static_cast<void>(index_put(x, {ones({1})}, constant(1.0))); },
                           "[index_put] expected indices of int32 or int64, got float32");
}

TEST(Scatter, RefusesWhatDoesNotFit) {
  const Tensor x = zeros({2, 4}, float64);
  expect_error<InvalidArgumentError>(
      [&] { static_cast<void>(values_of(scatter(x, 1, constant({{4}}), 1.0))); },
      "[ScatterElements] expected positions of [0, 8), got -1");
  expect_error<ShapeError>(
      [&] {
        static_cast<void>(scatter(x, 1, positions(), zeros({2, 2}, float64)));
      },
      "[scatter] expected indices and updates of the rank of shape (2, 4)");
  expect_error<InvalidArgumentError>(
      [&] {
        static_cast<void>(scatter_reduce(x, 1, positions(), zeros({2, 3}, float64), "max"));
      },
      "[scatter_reduce] expected \"sum\", \"prod\", \"mean\", \"amax\" or \"amin\", got \"max\"");
  expect_error<InvalidArgumentError>(
      [&] {
        static_cast<void>(scatter(x, 1, positions(), zeros({2, 3})));
      },
      "[ScatterElements] expected a vector");
}

}  // namespace
}  // namespace tandem::scatter_elements_test
