// Gathering and adding at positions of several axes and by segment, and finding positions.
#include "tandem/scatter.h"

#include <gtest/gtest.h>

#include "support/gradient_check.h"
#include "support/tensors.h"
#include "tandem/tandem.h"

namespace tandem::scatter_test {
namespace {

using namespace testing;

Tensor counting(const Shape& shape, DType dtype = float32) {
  return reshape(range(Dim(shape.num_elements()), {.dtype = dtype}), shape);
}

// The function also as a trace, and the gradients of both.
void expect_traced_and_gradients(const TensorFunction& f, const Tensor& x) {
  expect_gradients(f, {x});
  expect_second_order([&](const std::vector<Tensor>& in) { return f({in[0] * in[0]}); }, {x});
  const auto traced = function([&](const Tensor& in) { return f({in}); });
  EXPECT_EQ(values_of(traced(x)), values_of(f({x})));
  const auto gradient_of = [&](const auto& of) {
    GradientTape tape;
    tape.watch(x);
    return tape.gradient(reduce_sum(square(of(x))), x);
  };
  EXPECT_EQ(values_of(gradient_of(traced)),
            values_of(gradient_of([&](const Tensor& in) { return f({in}); })));
}

TEST(GatherNd, TakesElementsAndSlices) {
  const Tensor x = counting({3, 4});
  expect_tensor(gather_nd(x, constant({{0, 0}, {2, 3}})), float32, {2}, {0, 11});
  expect_tensor(gather_nd(x, constant({{2}, {0}})), float32, {2, 4}, {8, 9, 10, 11, 0, 1, 2, 3});
  expect_tensor(gather_nd(counting({2, 3, 2}, int32), constant({{{1, 2}}, {{0, 1}}})), int32,
                {2, 1, 2}, {10, 11, 2, 3});
  expect_traced_and_gradients(
      [](const std::vector<Tensor>& in) {
        return gather_nd(in[0], constant({{0, 1}, {2, 1}, {0, 1}}));
      },
      random_tensor({3, 2}));
}

TEST(GatherNd, TakesUnknownLeadingSizes) {
  const auto traced = function(
      [](const Tensor& x) {
        return gather_nd(x, constant({{1, 1}, {0, 0}}));
      },
      {.input_signature = {{.shape = {-1, 2}, .dtype = float32}}});
  expect_tensor(traced(counting({2, 2})), float32, {2}, {3, 0});
  expect_tensor(traced(counting({5, 2})), float32, {2}, {3, 0});
}

TEST(GatherNd, RefusesWhatDoesNotFit) {
  const Tensor x = counting({3, 4});
  // Position 1 of row 0 would be element 5 of all.
  expect_error<InvalidArgumentError>(
      [&] {
        values_of(gather_nd(x, constant({{0, 5}})));
      },
      "expected indices of [0, 12)");
  expect_error<InvalidArgumentError>(
      [&] {
        values_of(gather_nd(x, constant({{-1, 0}})));
      },
      "expected indices of [0, 12)");
  expect_error<ShapeError>(
      [&] {
        static_cast<void>(gather_nd(x, constant({{0, 0, 0}})));
      },
      "[gather_nd] expected indices whose last axis has 1 to 2 positions");
  expect_error<DTypeError>([&] { static_cast<void>(gather_nd(x, constant({{0.0}}))); },
                           "[gather_nd] expected int32 or int64 indices, got float32");
}

TEST(ScatterNd, AddsAtPositions) {
  expect_tensor(scatter_nd(constant({{1}, {3}, {1}}), constant({9.0, 10.0, 2.0}), {5}), float32,
                {5}, {0, 11, 0, 10, 0});
  expect_tensor(scatter_nd(constant({{0, 1}, {1, 0}}), constant({5, 6}), {2, 2}), int32, {2, 2},
                {0, 5, 6, 0});
  expect_tensor(scatter_nd(constant({{1}}), constant({{1.0, 2.0}}), {2, 2}), float32, {2, 2},
                {0, 0, 1, 2});
  expect_tensor(tensor_scatter_nd_add(ones({3}), constant({{2}, {2}}), ones({2})), float32, {3},
                {1, 1, 3});
  expect_traced_and_gradients(
      [](const std::vector<Tensor>& in) {
        return scatter_nd(constant({{0, 1}, {2, 1}, {0, 1}}), in[0], {3, 2});
      },
      random_tensor({3}));
  expect_error<InvalidArgumentError>(
      [] {
        values_of(scatter_nd(constant({{0, 2}}), ones({1}), {2, 2}));
      },
      "expected indices of");
  expect_error<InvalidArgumentError>([] { values_of(scatter_nd(constant({{4}}), ones({1}), {4})); },
                                     "expected indices of [0, 4)");
  expect_error<ShapeError>(
      [] { static_cast<void>(scatter_nd(constant({{0}}), ones({2}), {4})); },
      "[scatter_nd] expected updates of shape (1,) for indices of shape (1, 1), got (2,)");
  expect_error<DTypeError>(
      [] { static_cast<void>(scatter_nd(constant({{0}}), ones({1}, int64), {4})); },
      "[scatter_nd] expected a floating-point dtype or int32, got int64");
}

TEST(TensorScatterNdUpdate, ReplacesPositionsThatOccurOnce) {
  expect_tensor(tensor_scatter_nd_update(counting({4}), constant({{2}, {0}}), constant({7.0, 0.0})),
                float32, {4}, {0, 1, 7, 3});
  expect_tensor(tensor_scatter_nd_update(counting({2, 2}), constant({{1}}), constant({{8.0, 9.0}})),
                float32, {2, 2}, {0, 1, 8, 9});
  expect_gradients(
      [](const std::vector<Tensor>& in) {
        return tensor_scatter_nd_update(in[0], constant({{2}, {0}}), in[1]);
      },
      {random_tensor({4}, 1), random_tensor({2}, 2)});
  expect_error<InvalidArgumentError>(
      [] {
        static_cast<void>(tensor_scatter_nd_update(ones({4}), constant({{1}, {1}}), ones({2})));
      },
      "expected each position once");
}

TEST(SegmentSum, AddsTheSlicesOfEachSegment) {
  const Tensor x = counting({4, 2});
  expect_tensor(segment_sum(x, constant({0, 0, 2, 2})), float32, {3, 2}, {2, 4, 0, 0, 10, 12});
  expect_tensor(segment_mean(x, constant({0, 0, 2, 2})), float32, {3, 2}, {1, 2, 0, 0, 5, 6});
  expect_tensor(unsorted_segment_sum(x, constant({1, -1, 1, 0}), 2), float32, {2, 2}, {6, 7, 4, 6});
  expect_tensor(unsorted_segment_mean(x, constant({1, -1, 1, 0}), 3), float32, {3, 2},
                {6, 7, 2, 3, 0, 0});
  expect_tensor(unsorted_segment_sum(constant({1, 2, 3}), constant({1, 0, 1}), 2), int32, {2},
                {2, 4});
  expect_tensor(math::segment_sum(constant({1.0, 2.0}), constant({0, 0})), float32, {1}, {3});
  for (const bool mean : {false, true})
    expect_traced_and_gradients(
        [&](const std::vector<Tensor>& in) {
          const Tensor ids = constant({1, -1, 1, 0});
          return mean ? unsorted_segment_mean(in[0], ids, 3) : unsorted_segment_sum(in[0], ids, 3);
        },
        random_tensor({4, 2}));
}

TEST(SegmentSum, RefusesOtherNumbers) {
  const Tensor x = counting({3});
  expect_error<InvalidArgumentError>(
      [&] {
        values_of(unsorted_segment_sum(x, constant({0, 1, 2}), 2));
      },
      "expected indices of [0, 2), got 2");
  expect_error<InvalidArgumentError>(
      [&] {
        static_cast<void>(segment_sum(x, constant({1, 0, 0})));
      },
      "unsorted_segment_sum takes any order");
  expect_error<ShapeError>(
      [&] {
        static_cast<void>(segment_sum(x, constant({0, 0})));
      },
      "expected a segment for each position of axis 0 of shape (3,), got");
}

TEST(Unique, KeepsTheOrderOfTheElements) {
  const auto [y, idx] = unique(constant({7, 7, 8, 9, 8}));
  expect_tensor(y, int32, {3}, {7, 8, 9});
  expect_tensor(idx, int32, {5}, {0, 0, 1, 2, 1});
  expect_tensor(unique(constant({2.5, 1.0, 2.5})).y, float32, {2}, {2.5, 1.0});
  expect_error<ShapeError>([] { unique(ones({2, 2})); }, "[unique] expected a vector");
}

TEST(Nonzero, ReturnsPositions) {
  expect_tensor(nonzero(constant({{0, 3}, {4, 0}})), int64, {2, 2}, {0, 1, 1, 0});
  expect_tensor(nonzero(constant({1.0, 0.0, -1.0}) > 0.0), int64, {1, 1}, {0});
  EXPECT_EQ(nonzero(zeros({2, 3})).shape(), Shape({0, 2}));
}

TEST(Bincount, CountsNumbers) {
  expect_tensor(bincount(constant({1, 3, 1})), int32, {4}, {0, 2, 0, 1});
  expect_tensor(bincount(constant({1, 0}), 3), int32, {3}, {1, 1, 0});
  expect_error<InvalidArgumentError>([] { static_cast<void>(bincount(constant({-1}))); },
                                     "[bincount] expected numbers of 0 or more, got -1");
}

TEST(Meshgrid, HasTheIndexingThatIsAskedFor) {
  const Tensor a = range(3), b = range(2);
  const auto xy = meshgrid({a, b}, {.indexing = "xy"});
  expect_tensor(xy[0], int32, {2, 3}, {0, 1, 2, 0, 1, 2});
  expect_tensor(xy[1], int32, {2, 3}, {0, 0, 0, 1, 1, 1});
  const auto ij = meshgrid({a, b}, "ij");
  expect_tensor(ij[0], int32, {3, 2}, {0, 0, 1, 1, 2, 2});
  expect_tensor(ij[1], int32, {3, 2}, {0, 1, 0, 1, 0, 1});
  expect_error<InvalidArgumentError>(
      [&] {
        meshgrid({a, b}, "yx");
      },
      "expected indexing \"xy\" or \"ij\", got \"yx\"");
}

TEST(Index, TakesNewAxes) {
  const Tensor x = counting({3, 4});
  EXPECT_EQ(x.index({Slice(), None, Slice(1, 3)}).shape(), Shape({3, 1, 2}));
  expect_tensor(x.index({1, None, Slice(1, 3)}), float32, {1, 2}, {5, 6});
  expect_tensor(x[{None, 2, 3}], float32, {1}, {11});
  EXPECT_EQ(x.index({None}).shape(), Shape({1, 3, 4}));
  EXPECT_EQ(x.index({Slice(), Slice(), None}).shape(), Shape({3, 4, 1}));
  expect_error<InvalidArgumentError>(
      [&] {
        static_cast<void>(x.index({0, None, 0, 0}));
      },
      "[at] expected at most 2 indices");
}

TEST(Sort, TakesOptions) {
  const Tensor x = constant({{2.0, 3.0, 1.0}});
  expect_tensor(sort(x, {.descending = true}), float32, {1, 3}, {3, 2, 1});
  expect_tensor(sort(x, {.axis = 1, .direction = "DESCENDING"}), float32, {1, 3}, {3, 2, 1});
  expect_tensor(argsort(x, {.direction = "ASCENDING"}), int64, {1, 3}, {2, 0, 1});
  expect_tensor(cumsum(x, {.axis = 1}), float32, {1, 3}, {2, 5, 6});
  expect_error<InvalidArgumentError>([&] { sort(x, {.direction = "down"}); },
                                     "expected the direction \"ASCENDING\" or \"DESCENDING\"");
}

}  // namespace
}  // namespace tandem::scatter_test
