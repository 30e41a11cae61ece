// Joining, cutting, turning and overwriting tensors.
#include "tandem/rearrange.h"

#include <gtest/gtest.h>

#include "support/gradient_check.h"
#include "support/tensors.h"
#include "tandem/creation.h"
#include "tandem/function.h"
#include "tandem/math.h"

namespace tandem::rearrange_test {
namespace {

using namespace testing;

Tensor ascending(const Shape& shape) {
  return reshape(range(Dim(shape.num_elements()), {.dtype = float64}), shape);
}

// The values, the same in a trace with an unknown first size, and the gradients.
void expect_rearranged(const std::function<Tensor(const Tensor&)>& f, const Tensor& x,
                       const Shape& shape, const std::vector<double>& expected) {
  expect_tensor(f(x), float64, shape, expected);
  const auto traced = function(f);
  EXPECT_EQ(values_of(traced(x)), expected);
  expect_gradients([&](const std::vector<Tensor>& in) { return square(f(in[0])); }, {x * 0.3});
}

TEST(Joining, GivesTensorsTheAxesThatTheyNeed) {
  const Tensor scalar = constant(1.0, {.dtype = float64}), vector = ascending({3}),
               matrix = ascending({2, 3});
  EXPECT_EQ(atleast_1d(scalar).shape(), Shape({1}));
  EXPECT_EQ(atleast_2d(vector).shape(), Shape({1, 3}));
  EXPECT_EQ(atleast_3d(vector).shape(), Shape({1, 3, 1}));
  EXPECT_EQ(atleast_3d(matrix).shape(), Shape({2, 3, 1}));
  expect_tensor(hstack({vector, vector}), float64, {6}, {0, 1, 2, 0, 1, 2});
  expect_tensor(hstack({matrix, matrix.slice(1, 0, 1)}), float64, {2, 4}, {0, 1, 2, 0, 3, 4, 5, 3});
  expect_tensor(vstack({vector, matrix}), float64, {3, 3}, {0, 1, 2, 0, 1, 2, 3, 4, 5});
  expect_tensor(dstack({vector, vector}), float64, {1, 3, 2}, {0, 0, 1, 1, 2, 2});
  expect_tensor(column_stack({vector, vector}), float64, {3, 2}, {0, 0, 1, 1, 2, 2});
}

TEST(BlockDiag, PutsMatricesOnTheDiagonal) {
  const Tensor vector = constant({7.0, 8.0}, {.dtype = float64});
  expect_rearranged(
      [&](const Tensor& x) {
        return block_diag({x, vector});
      },
      ascending({2, 2}), {3, 4}, {0, 1, 0, 0, 2, 3, 0, 0, 0, 0, 7, 8});
  expect_error<ShapeError>(
      [] {
        static_cast<void>(block_diag({zeros({1, 1, 1})}));
      },
      "[block_diag] expected matrices, vectors or scalars, got shape (1, 1, 1)");
}

TEST(TensorSplit, MakesUnequalPartsAndPartsBetweenPositions) {
  const auto parts = tensor_split(ascending({7}), 3);
  ASSERT_EQ(parts.size(), 3u);
  expect_tensor(parts[0], float64, {3}, {0, 1, 2});
  expect_tensor(parts[2], float64, {2}, {5, 6});
  const auto between = tensor_split(ascending({2, 4}), std::vector<std::int64_t>{3, 1, -1, 9}, 1);
  ASSERT_EQ(between.size(), 5u);
  EXPECT_EQ(between[0].shape(), Shape({2, 3}));
  EXPECT_EQ(between[1].shape(), Shape({2, 0}));  // from 3 to 1
  expect_tensor(between[2], float64, {2, 2}, {1, 2, 5, 6});
  expect_tensor(between[3], float64, {2, 1}, {3, 7});
  EXPECT_EQ(between[4].shape(), Shape({2, 0}));
  expect_error<InvalidArgumentError>([] { static_cast<void>(tensor_split(zeros({3}), 0)); },
                                     "[tensor_split] expected at least 1 part, got 0");
}

TEST(Unflatten, InfersOneSize) {
  EXPECT_EQ(unflatten(zeros({2, 12}), 1, {3, -1, 2}).shape(), Shape({2, 3, 2, 2}));
  EXPECT_EQ(unflatten(zeros({12, 2}), -2, {4, 3}).shape(), Shape({4, 3, 2}));
  EXPECT_THROW(static_cast<void>(unflatten(zeros({2, 12}), 1, {5, -1})), ShapeError);
}

TEST(UnfoldWindows, OverlapAndLeaveTheRest) {
  expect_rearranged([](const Tensor& x) { return unfold(x, 1, 3, 2); }, ascending({2, 6}),
                    {2, 2, 3}, {0, 1, 2, 2, 3, 4, 6, 7, 8, 8, 9, 10});
  expect_rearranged([](const Tensor& x) { return unfold(x, 0, 2, 1); }, ascending({3, 2}),
                    {2, 2, 2}, {0, 2, 1, 3, 2, 4, 3, 5});
  expect_error<InvalidArgumentError>(
      [] { static_cast<void>(unfold(zeros({3}), 0, 4, 1)); },
      "[unfold] expected windows of at most 3 positions and steps of at least 1, got 4 and 1");
}

TEST(Movedim, KeepsTheOrderOfTheOthers) {
  const Tensor x = zeros({2, 3, 4, 5});
  EXPECT_EQ(movedim(x, 0, -1).shape(), Shape({3, 4, 5, 2}));
  EXPECT_EQ(movedim(x, {3, 0}, {0, 1}).shape(), Shape({5, 2, 3, 4}));
  expect_error<InvalidArgumentError>(
      [&] {
        static_cast<void>(movedim(x, {0, 0}, {1, 2}));
      },
      "[movedim] expected each axis and each place once");
}

TEST(Rot90, TurnsByQuarters) {
  const Tensor x = ascending({2, 3});
  expect_rearranged([](const Tensor& in) { return rot90(in); }, x, {3, 2}, {2, 5, 1, 4, 0, 3});
  expect_tensor(rot90(x, 2), float64, {2, 3}, {5, 4, 3, 2, 1, 0});
  expect_tensor(rot90(x, -1), float64, {3, 2}, {3, 0, 4, 1, 5, 2});
  expect_tensor(rot90(x, 4), float64, {2, 3}, values_of(x));
  expect_tensor(rot90(x, 1, 1, 0), float64, {3, 2}, values_of(rot90(x, 3)));
}

TEST(Positions, OfHalvesProductsAndChoices) {
  expect_tensor(tril_indices(2, 3), int64, {2, 3}, {0, 1, 1, 0, 0, 1});
  expect_tensor(triu_indices(2, 3, 1), int64, {2, 3}, {0, 0, 1, 1, 2, 2});
  EXPECT_EQ(triu_indices(2, 2, 5).shape(), Shape({2, 0}));
  expect_tensor(cartesian_prod({constant({1, 2}), constant({3, 4})}), int32, {4, 2},
                {1, 3, 1, 4, 2, 3, 2, 4});
  expect_tensor(combinations(constant({5, 6, 7})), int32, {3, 2}, {5, 6, 5, 7, 6, 7});
  expect_tensor(combinations(constant({5, 6}), 2, true), int32, {3, 2}, {5, 5, 5, 6, 6, 6});
  EXPECT_EQ(combinations(constant({5, 6}), 3).shape(), Shape({0, 3}));
  expect_rearranged(
      [](const Tensor& x) {
        return take(x, constant({{5, -1}, {0, 0}}));
      },
      ascending({2, 3}), {2, 2}, {5, 5, 0, 0});
}

TEST(Overwriting, ReplacesSlicesDiagonalsAndPositions) {
  const Tensor x = ascending({2, 4});
  const Tensor ones_of_two = ones({2}, float64);
  expect_rearranged([&](const Tensor& in) { return select_scatter(in, ones_of_two, 1, -1); }, x,
                    {2, 4}, {0, 1, 2, 1, 4, 5, 6, 1});
  expect_rearranged(
      [](const Tensor& in) {
        return slice_scatter(in, full({2, 2}, 9.0, float64), 1, Slice{0, std::nullopt, 2});
      },
      x, {2, 4}, {9, 1, 9, 3, 9, 5, 9, 7});
  expect_rearranged(
      [](const Tensor& in) {
        return diagonal_scatter(ascending({2, 3}), in, 1);
      },
      constant({8.0, 9.0}, {.dtype = float64}), {2, 3}, {0, 8, 2, 3, 4, 9});
  expect_tensor(diagonal_scatter(ascending({3, 2}), constant({8.0, 9.0}, {.dtype = float64}), -1),
                float64, {3, 2}, {0, 1, 8, 3, 4, 9});
  expect_rearranged(
      [](const Tensor& in) {
        return index_fill(in, 1, constant({3, 0, -1}), -1.0);
      },
      x, {2, 4}, {-1, 1, 2, -1, -1, 5, 6, -1});
  expect_error<ShapeError>(
      [&] {
        static_cast<void>(slice_scatter(x, zeros({2, 3}, float64), 1, Slice{0, 2}));
      },
      "[slice_scatter] expected a source of shape (2, 2), got (2, 3)");
  expect_error<InvalidArgumentError>(
      [&] { static_cast<void>(values_of(index_fill(x, 1, constant({4}), 0.0))); }, "got 4");
}

}  // namespace
}  // namespace tandem::rearrange_test
