#include <gtest/gtest.h>

#include <limits>

#include "array_reference.h"
#include "support/errors.h"
#include "support/gradient_check.h"
#include "tandem/array.h"
#include "tandem/autodiff.h"
#include "tandem/device.h"
#include "tandem/errors.h"

namespace tandem::array_shape_test {
namespace {

using namespace testing;

using Tensors = const std::vector<Tensor>&;

TEST(Reshape, SharesStorageAndInfersOneSize) {
  const DeviceScope on_cpu("/cpu:0");  // the test reads the memory directly
  const Tensor x = iota({2, 3, 4});
  const Tensor y = reshape(x, {-1, 6});
  EXPECT_EQ(y.shape(), Shape({4, 6}));
  EXPECT_EQ(y.data<std::int32_t>(), x.data<std::int32_t>());
  EXPECT_EQ(reshape(x, {24}).shape(), Shape({24}));
  EXPECT_EQ(reshape(iota({1}), Shape::scalar()).rank(), 0);
  EXPECT_EQ(reshape(zeros({0, 3}), {3, 0, 5}).shape(), Shape({3, 0, 5}));
}

TEST(Reshape, RejectsOtherCounts) {
  const Tensor x = iota({2, 3});
  EXPECT_EQ(error_of<InvalidArgumentError>([&] {
              reshape(x, {4, 2});
            }),
            "[Reshape] expected a shape of 6 elements for a tensor of shape (2, 3), got (4, 2)");
  EXPECT_THROW(reshape(x, {-1, 4}), InvalidArgumentError);
  EXPECT_THROW(reshape(x, {-1, -1}), InvalidArgumentError);
  EXPECT_THROW(reshape(x, {-2, 3}), InvalidArgumentError);
  EXPECT_THROW(reshape(x, Shape()), InvalidArgumentError);
  EXPECT_THROW(reshape(zeros({0}), {-1, 0}), InvalidArgumentError);
}

TEST(ExpandDims, InsertsAnAxisAnywhere) {
  const DeviceScope on_cpu("/cpu:0");  // the test reads the memory directly
  const Tensor x = iota({2, 3});
  EXPECT_EQ(expand_dims(x, 0).shape(), Shape({1, 2, 3}));
  EXPECT_EQ(expand_dims(x, 1).shape(), Shape({2, 1, 3}));
  EXPECT_EQ(expand_dims(x, -1).shape(), Shape({2, 3, 1}));
  EXPECT_EQ(expand_dims(x, -3).shape(), Shape({1, 2, 3}));
  EXPECT_EQ(expand_dims(x, 1).data<std::int32_t>(), x.data<std::int32_t>());
  EXPECT_EQ(error_of<InvalidArgumentError>([&] { expand_dims(x, 3); }),
            "[ExpandDims] expected an axis of [-3, 3), got 3");
}

TEST(Squeeze, DropsAxesOfSizeOne) {
  const DeviceScope on_cpu("/cpu:0");  // the test reads the memory directly
  const Tensor x = iota({1, 2, 1, 3, 1});
  EXPECT_EQ(squeeze(x).shape(), Shape({2, 3}));
  EXPECT_EQ(squeeze(x, {0, -1}).shape(), Shape({2, 1, 3}));
  EXPECT_EQ(squeeze(x).data<std::int32_t>(), x.data<std::int32_t>());
  EXPECT_EQ(error_of<InvalidArgumentError>([&] { squeeze(x, {1}); }),
            "[Squeeze] expected axis 1 of shape (1, 2, 1, 3, 1) to be 1, got 2");
}

TEST(Transpose, MatchesIndexByIndex) {
  const struct {
    Shape shape;
    Dims permutation;
  } cases[] = {
      {{3, 5}, {1, 0}},
      {{64, 65}, {1, 0}},
      {{200, 333}, {1, 0}},
      {{2, 3, 4}, {2, 0, 1}},
      {{2, 3, 4}, {0, 2, 1}},
      {{4, 37, 41}, {0, 2, 1}},
      {{2, 3, 4, 5}, {0, 2, 1, 3}},
      {{5, 4, 3, 2}, {3, 2, 1, 0}},
      {{3, 33, 35, 3}, {0, 3, 1, 2}},
      {{3, 3, 33, 35}, {0, 2, 3, 1}},
      {{6, 7, 8}, {1, 2, 0}},
      {{7}, {0}},
      {{1, 9, 1}, {2, 1, 0}},
      {{2, 2, 2, 2, 2, 3}, {5, 0, 4, 1, 3, 2}},
      {{300, 2, 150}, {2, 1, 0}},
      {{0, 4}, {1, 0}},
  };
  for (const auto& [shape, permutation] : cases) {
    Dims sizes;
    for (const std::int64_t axis : permutation) sizes.push_back(shape[static_cast<int>(axis)]);
    expect_moved(transpose(iota(shape), permutation), Shape(sizes), [&](const Index& index) {
      Index from(index.size());
      for (std::size_t i = 0; i < index.size(); ++i)
        from[static_cast<std::size_t>(permutation[static_cast<int>(i)])] = index[i];
      return flatten(from, shape);
    });
  }
  EXPECT_EQ(transpose(iota({2, 3, 4})).shape(), Shape({4, 3, 2}));
  EXPECT_EQ(transpose(iota({2, 3, 4}), {-1, 0, -2}).shape(), Shape({4, 2, 3}));
}

TEST(Transpose, MovesElementsOfEverySize) {
  for (const DType dtype : {float32, float64, float16, bfloat16, int32, int64, uint8, bool_}) {
    const Tensor x = cast(iota({37, 41}), dtype);
    const auto before = cast(x, float64).to_vector<double>();
    const Tensor y = transpose(x);
    ASSERT_EQ(y.dtype(), dtype);
    const auto after = cast(y, float64).to_vector<double>();
    for (std::size_t r = 0; r < 37; ++r)
      for (std::size_t c = 0; c < 41; ++c)
        ASSERT_EQ(after[c * 37 + r], before[r * 41 + c]) << name_of(dtype);
  }
}

TEST(Transpose, RejectsInvalidPermutations) {
  const Tensor x = iota({2, 3});
  EXPECT_EQ(error_of<InvalidArgumentError>([&] {
              transpose(x, {0, 0});
            }),
            "[Transpose] expected a permutation of the 2 axes, got (0, 0)");
  EXPECT_THROW(transpose(x, {0}), InvalidArgumentError);
  EXPECT_THROW(transpose(x, {0, 2}), InvalidArgumentError);
}

TEST(BroadcastTo, RepeatsElements) {
  expect_moved(broadcast_to(iota({3, 1}), {2, 3, 4}), {2, 3, 4},
               [](const Index& i) { return i[1]; });
  expect_moved(broadcast_to(iota({4}), {3, 4}), {3, 4}, [](const Index& i) { return i[1]; });
  expect_moved(broadcast_to(iota({1}), {5, 700}), {5, 700}, [](const Index&) { return 0; });
  expect_moved(broadcast_to(iota({2, 3}), {2, 3}), {2, 3},
               [](const Index& i) { return i[0] * 3 + i[1]; });
  EXPECT_EQ(broadcast_to(constant(7), {2, 2}).to_vector<std::int32_t>(),
            (std::vector<std::int32_t>{7, 7, 7, 7}));
  EXPECT_EQ(broadcast_to(iota({1, 3}), {0, 3}).size(), 0);
  EXPECT_EQ(error_of<InvalidArgumentError>([] {
              broadcast_to(iota({2, 3}), {3, 3});
            }),
            "[BroadcastTo] expected a shape that (2, 3) broadcasts to, got (3, 3)");
  EXPECT_THROW(broadcast_to(iota({2, 3}), {3}), InvalidArgumentError);
}

TEST(Tile, RepeatsTheTensor) {
  expect_moved(tile(iota({2, 3}), {2, 3}), {4, 9},
               [](const Index& i) { return i[0] % 2 * 3 + i[1] % 3; });
  expect_moved(tile(iota({2, 1, 3}), {1, 50, 1}), {2, 50, 3},
               [](const Index& i) { return i[0] * 3 + i[2]; });
  EXPECT_EQ(tile(iota({2, 3}), {0, 1}).shape(), Shape({0, 3}));
  EXPECT_EQ(error_of<InvalidArgumentError>([] {
              tile(iota({2, 3}), {2});
            }),
            "[Tile] expected 2 multiples of at least 0 for shape (2, 3), got (2)");
}

TEST(Reverse, ReversesAxes) {
  expect_moved(reverse(iota({3, 4, 5}), {1}), {3, 4, 5},
               [](const Index& i) { return i[0] * 20 + (3 - i[1]) * 5 + i[2]; });
  expect_moved(reverse(iota({3, 4}), {0, -1}), {3, 4},
               [](const Index& i) { return (2 - i[0]) * 4 + 3 - i[1]; });
  EXPECT_EQ(reverse(zeros({0, 2}), {0}).size(), 0);
  EXPECT_EQ(error_of<InvalidArgumentError>([] {
              reverse(iota({3, 4}), {1, -1});
            }),
            "[ReverseV2] expected each axis once, got (1, -1)");
}

TEST(Slice, SharesStorageWhenOnlyTheFirstAxisIsCut) {
  const DeviceScope on_cpu("/cpu:0");  // the test reads the memory directly
  const Tensor x = iota({5, 3, 2});
  const Tensor y = slice(x, {1, 0, 0}, {3, -1, 2});
  EXPECT_EQ(y.shape(), Shape({3, 3, 2}));
  EXPECT_EQ(y.data<std::int32_t>(), x.data<std::int32_t>() + 6);
  EXPECT_EQ(slice_rows(x, 2, 4).data<std::int32_t>(), x.data<std::int32_t>() + 12);
  EXPECT_EQ(slice_rows(x, 5, 5).size(), 0);
  EXPECT_EQ(slice_rows(slice_rows(x, 1, 5), 1, 2).data<std::int32_t>(),
            x.data<std::int32_t>() + 12);
}

TEST(Slice, CopiesOtherParts) {
  expect_moved(slice(iota({4, 5, 6}), {1, 2, 3}, {2, -1, 2}), {2, 3, 2},
               [](const Index& i) { return (i[0] + 1) * 30 + (i[1] + 2) * 6 + i[2] + 3; });
  expect_moved(slice(iota({300, 200}), {0, 100}, {-1, 64}), {300, 64},
               [](const Index& i) { return i[0] * 200 + i[1] + 100; });
  EXPECT_EQ(slice(iota({4, 5}), {0, 5}, {4, 0}).shape(), Shape({4, 0}));
  EXPECT_EQ(error_of<InvalidArgumentError>([] {
              slice(iota({4, 5}), {0, 3}, {4, 3});
            }),
            "[Slice] expected a part of shape (4, 5), got begin (0, 3) and size (4, 3)");
  EXPECT_THROW(slice(iota({4, 5}), {5, 0}, {-1, -1}), InvalidArgumentError);
  EXPECT_THROW(slice(iota({4, 5}), {0}, {1}), InvalidArgumentError);
  EXPECT_THROW(slice_rows(iota({4}), 2, 5), InvalidArgumentError);
  EXPECT_THROW(slice_rows(iota({4}), 3, 2), InvalidArgumentError);
}

TEST(Indexing, TakesALeadingSlice) {
  const DeviceScope on_cpu("/cpu:0");  // the test reads the memory directly
  const Tensor x = iota({3, 4});
  EXPECT_EQ(x[1].to_vector<std::int32_t>(), (std::vector<std::int32_t>{4, 5, 6, 7}));
  EXPECT_EQ(x[-1][0].item<std::int32_t>(), 8);
  EXPECT_EQ(x[2].data<std::int32_t>(), x.data<std::int32_t>() + 8);
  EXPECT_EQ(error_of<InvalidArgumentError>([&] { x[3]; }),
            "[StridedSlice] expected an index of [-3, 3) for shape (3, 4), got 3");
  EXPECT_THROW(constant(1)[0], InvalidArgumentError);
}

TEST(Pad, SurroundsWithAValue) {
  expect_moved(
      pad(iota({2, 3}), {{1, 2}, {3, 0}}, 9), {5, 6},
      [](const Index& i) {
        return i[0] >= 1 && i[0] < 3 && i[1] >= 3 ? (i[0] - 1) * 3 + i[1] - 3 : -1;
      },
      9);
  expect_moved(pad(iota({2, 3, 4, 2}), {{0, 0}, {1, 1}, {2, 2}, {0, 0}}), {2, 5, 8, 2},
               [](const Index& i) {
                 return i[1] >= 1 && i[1] < 4 && i[2] >= 2 && i[2] < 6
                            ? ((i[0] * 3 + i[1] - 1) * 4 + i[2] - 2) * 2 + i[3]
                            : -1;
               });
  expect_moved(pad(iota({2, 2}), {{0, 0}, {0, 0}}), {2, 2},
               [](const Index& i) { return i[0] * 2 + i[1]; });
  EXPECT_EQ(pad(zeros({0, 2}), {{1, 0}, {0, 0}}, 5.0).to_vector<float>(),
            (std::vector<float>{5, 5}));
  EXPECT_EQ(error_of<InvalidArgumentError>([] {
              pad(iota({2}), {{-1, 0}});
            }),
            "[Pad] expected 1 pairs of counts of at least 0 for shape (2,), got (-1) before and "
            "(0) after");
  EXPECT_EQ(error_of<InvalidArgumentError>([] {
              pad(cast(iota({2}), uint8), {{1, 0}}, -1.0);
            }),
            "[Pad] expected a number that uint8 holds, got -1");
}

TEST(StopGradient, KeepsTheValueAndStopsTheGradient) {
  const Tensor x = wiggly({3});
  GradientTape tape;
  tape.watch(x);
  const Tensor y = reduce_sum(identity(x) * stop_gradient(x));
  EXPECT_EQ(tape.gradient(y, x).to_vector<double>(), x.to_vector<double>());
}

TEST(ArrayGradients, MatchDifferences) {
  const Tensor x = wiggly({2, 3, 4});
  testing::expect_gradients([](Tensors t) { return reshape(t[0], {4, 6}); }, {x});
  testing::expect_gradients([](Tensors t) { return expand_dims(t[0], 1); }, {x});
  testing::expect_gradients([](Tensors t) { return squeeze(t[0]); }, {wiggly({1, 3, 1})});
  testing::expect_gradients([](Tensors t) { return transpose(t[0], {2, 0, 1}); }, {x});
  testing::expect_gradients(
      [](Tensors t) {
        return broadcast_to(t[0], {2, 3, 4});
      },
      {wiggly({3, 1})});
  testing::expect_gradients([](Tensors t) { return tile(t[0], {2, 1, 3}); }, {x});
  testing::expect_gradients([](Tensors t) { return reverse(t[0], {0, 2}); }, {x});
  testing::expect_gradients([](Tensors t) { return slice(t[0], {0, 1, 1}, {2, 2, -1}); }, {x});
  testing::expect_gradients([](Tensors t) { return slice_rows(t[0], 1, 2); }, {x});
  testing::expect_gradients([](Tensors t) { return t[0][-1]; }, {x});
  testing::expect_gradients(
      [](Tensors t) {
        return pad(t[0], {{1, 0}, {0, 2}, {1, 1}}, 3.0);
      },
      {x});
}

TEST(ArrayGradients, HaveGradients) {
  const Tensor x = wiggly({2, 3});
  for (const auto& f : std::vector<std::function<Tensor(const Tensor&)>>{
           [](const Tensor& t) { return transpose(t); },
           [](const Tensor& t) {
             return slice(t, {0, 1}, {2, 2});
           },
           [](const Tensor& t) {
             return pad(t, {{1, 1}, {0, 1}});
           },
           [](const Tensor& t) { return t[1]; },
           [](const Tensor& t) {
             return tile(t, {2, 2});
           }}) {
    GradientTape outer;
    outer.watch(x);
    Tensor first;
    {
      GradientTape inner;
      inner.watch(x);
      const Tensor y = f(x);
      first = inner.gradient(reduce_sum(y * y * y), x);
    }
    const auto second = outer.gradient(reduce_sum(first), x).to_vector<double>();
    // Each element appears n times in y: the second derivative of the sum of cubes is 6 n x.
    const auto copies = [&] {
      GradientTape tape;
      tape.watch(x);
      return tape.gradient(reduce_sum(f(x)), x).to_vector<double>();
    }();
    const auto values = x.to_vector<double>();
    for (std::size_t i = 0; i < values.size(); ++i)
      EXPECT_NEAR(second[i], 6 * copies[i] * values[i], 1e-12);
  }
}

TEST(Tile, ByZeroHasAGradientOfZeros) {
  for (const Dims& multiples : {Dims{0, 2}, Dims{2, 0}, Dims{0, 0}}) {
    const Tensor x = ones({2, 3});
    GradientTape tape;
    tape.watch(x);
    const Tensor y = tile(x, multiples);
    testing::expect_tensor(tape.gradient(y, x), float32, {2, 3}, std::vector<double>(6, 0.0));
  }
}

TEST(Pad, TakesEveryNumberThatTheTypeHolds) {
  const double lowest = std::numeric_limits<std::int32_t>::lowest();
  testing::expect_tensor(pad(constant({1}, {.dtype = int32}), {{1, 0}}, lowest), int32, {2},
                         {lowest, 1});
  testing::expect_error<InvalidArgumentError>(
      [] {
        pad(ones({1}, {.dtype = float16}), {{1, 0}}, 1e6);
      },
      "[Pad] expected a number that float16 holds");
}

}  // namespace
}  // namespace tandem::array_shape_test
