// Sizes that are unknown when a function is traced or a graph is built.
#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "support/errors.h"
#include "tandem/tandem.h"

namespace tandem::unknown_sizes_test {
namespace {

using testing::error_of;
using testing::expect_parts;

// The product of x and y and both gradients of the sum of its squares.
std::vector<Tensor> product_and_slopes(const Tensor& x, const Tensor& y) {
  GradientTape tape({.persistent = true});
  tape.watch(x);
  tape.watch(y);
  const Tensor product = x * y, loss = reduce_sum(square(product));
  return {product, tape.gradient(loss, x), tape.gradient(loss, y)};
}

void expect_like_eager(const Shape& x_spec, const Shape& y_spec,
                       const std::vector<std::pair<Shape, Shape>>& runs) {
  const auto traced = function(product_and_slopes, {.input_signature = {{x_spec}, {y_spec}}});
  for (const auto& [x_shape, y_shape] : runs) {
    SCOPED_TRACE(x_shape.to_string() + " * " + y_shape.to_string());
    const Tensor x = random::normal(x_shape), y = random::normal(y_shape);
    const auto expected = product_and_slopes(x, y), got = traced(x, y);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      EXPECT_EQ(got[i].shape(), expected[i].shape());
      EXPECT_EQ(got[i].to_vector<float>(), expected[i].to_vector<float>());
    }
  }
  EXPECT_EQ(traced.num_traces(), 1u);
}

TEST(UnknownSizes, MayBroadcastInEachRun) {
  expect_like_eager({-1, 4}, {-1}, {{{3, 4}, {4}}, {{3, 4}, {1}}, {{1, 4}, {1}}, {{4, 4}, {4}}});
  expect_like_eager({-1}, {-1}, {{{3}, {3}}, {{1}, {3}}, {{3}, {1}}, {{1}, {1}}});
  expect_like_eager({-1, -1}, {-1, -1},
                    {{{2, 3}, {2, 3}}, {{2, 1}, {1, 3}}, {{1, 3}, {2, 3}}, {{2, 3}, {2, 1}}});
  expect_like_eager({4}, {-1, -1}, {{{4}, {2, 4}}, {{4}, {3, 1}}, {{4}, {1, 1}}});
  expect_like_eager({-1, 3}, {-1, 3}, {{{2, 3}, {2, 3}}, {{1, 3}, {5, 3}}, {{5, 3}, {1, 3}}});
}

TEST(UnknownSizes, ThatDoNotBroadcastThrowInTheRun) {
  const auto sum = function([](const Tensor& x, const Tensor& y) { return x + y; },
                            {.input_signature = {{{-1, 4}}, {{-1}}}});
  EXPECT_EQ(sum(ones({2, 4}), ones({4})).shape(), Shape({2, 4}));
  expect_parts(error_of<InvalidArgumentError>([&] {
                 sum(ones({2, 4}), ones({3}));
               }),
               {"[AddV2]", "(2, 4)", "(3,)"});
}

TEST(UnknownSizes, WithALowerBoundAreNotInferredAsOne) {
  const Tensor table = reshape(range(12, {.dtype = float32}), {12});
  const auto positioned = [&](const Tensor& x) { return x + slice_rows(table, 0, x.dim(1)); };
  const auto traced = function(positioned, {.input_signature = {{{-1, -1}}}});
  for (std::int64_t length : {1, 4, 12}) {
    const Tensor x = ones({3, length});
    EXPECT_EQ(traced(x).to_vector<float>(), positioned(x).to_vector<float>());
  }
  EXPECT_THROW(traced(ones({3, 13})), InvalidArgumentError);
  const auto rows = function(
      [&](const Tensor& x) {
        return x + slice_rows(ones({9, 4}), 0, x.dim(0));
      },
      {.input_signature = {{{-1, 4}}}});
  EXPECT_EQ(rows(ones({3, 4})).shape(), Shape({3, 4}));
}

TEST(UnknownSizes, OfSplitAndConcatHaveGradients) {
  const auto slope = [](const Tensor& x, const Tensor& y) {
    GradientTape tape;
    tape.watch(x);
    const Tensor part = slice_rows(x, 1, y.dim(0)), corner = slice(x, {0, 1}, {y.dim(0), 2});
    return tape.gradient(
        reduce_sum(square(part)) + reduce_sum(square(corner)) + reduce_sum(square(x[0])), x);
  };
  const auto traced = function(slope, {.input_signature = {{{-1, -1}}, {{-1}}}});
  for (const auto& [rows, columns, end] :
       {std::array<std::int64_t, 3>{5, 4, 3}, {3, 3, 3}, {2, 6, 1}}) {
    const Tensor x = random::normal({rows, columns}), y = ones({end});
    EXPECT_EQ(traced(x, y).to_vector<float>(), slope(x, y).to_vector<float>());
  }
}

// Each size depends on others through shape rules: windows, strides, concat and split.
TEST(UnknownSizes, DependOnOthersThroughAnyArithmetic) {
  const Variable kernel(random::normal({3, 3, 2, 4}));
  const auto step = [&](const Tensor& x) {
    GradientTape tape;
    tape.watch(x);
    const Tensor h = nn::conv2d(x, kernel, {}, {.strides = 2, .padding = nn::Padding::kSame});
    const Tensor pooled = nn::max_pool2d(nn::relu(h), {.window = 2, .padding = nn::Padding::kSame});
    const Tensor joined = concat({pooled, pooled}, 1);
    const Tensor loss = reduce_mean(square(joined - reduce_mean(joined)));
    return std::pair(loss, tape.gradient(loss, x));
  };
  const auto traced = function(step, {.input_signature = {{{-1, -1, -1, 2}}}});
  for (const Shape& shape : {Shape{2, 8, 8, 2}, Shape{1, 9, 7, 2}, Shape{3, 5, 6, 2}}) {
    const Tensor x = random::normal(shape);
    const auto expected = step(x), got = traced(x);
    EXPECT_EQ(got.first.item<float>(), expected.first.item<float>());
    EXPECT_EQ(got.second.to_vector<float>(), expected.second.to_vector<float>());
  }
}

TEST(UnknownSizes, OfInputsThatMustAgreeAreUnified) {
  const auto f = function(
      [](const Tensor& a, const Tensor& b) {
        EXPECT_EQ(concat({a, b}, 0).shape()[1], a.shape()[1]);
        EXPECT_EQ(matmul(a, b, {.transpose_b = true}).shape(), Shape({a.dim(0), b.dim(0)}));
        return matmul(a, b, {.transpose_b = true});
      },
      {.input_signature = {{{-1, -1}}, {{-1, -1}}}});
  EXPECT_EQ(f(ones({2, 3}), ones({4, 3})).shape(), Shape({2, 4}));
  const auto dense = function(
      [](const Tensor& x) {
        return matmul(x, ones({4, 5}));
      },
      {.input_signature = {{{-1, -1}}}});
  EXPECT_EQ(dense(ones({2, 4})).shape(), Shape({2, 5}));
  EXPECT_THROW(dense(ones({2, 3})), InvalidArgumentError);
}

TEST(UnknownSizes, AreUnifiedByEnsureShape) {
  const auto f = function(
      [](const Tensor& x, const Tensor& y) {
        const Tensor rows = ensure_shape(y, {x.dim(0), 3});
        EXPECT_EQ(rows.shape(), Shape({x.dim(0), 3}));
        EXPECT_EQ((rows * 2.0 + x).shape(), x.shape());
        return rows + x;
      },
      {.input_signature = {{{-1, 3}}, {{-1, 3}}}});
  EXPECT_EQ(f(ones({2, 3}), ones({2, 3})).shape(), Shape({2, 3}));
  EXPECT_EQ(error_of<InvalidArgumentError>([&] {
              f(ones({5, 3}), ones({1, 3}));
            }),
            "[EnsureShape] expected a tensor of shape (5, 3), got shape (1, 3)");
  const DeviceScope cpu("/cpu:0");
  const Tensor x = ones({2, 3});
  EXPECT_EQ(ensure_shape(x, {-1, 3}).shape(), Shape({2, 3}));
  EXPECT_EQ(ensure_shape(x, {2, 3}).data<float>(), x.data<float>());
  EXPECT_EQ(error_of<InvalidArgumentError>([&] {
              ensure_shape(x, {-1, 4});
            }),
            "[EnsureShape] expected a tensor of shape (?, 4), got shape (2, 3)");
}

TEST(UnknownSizes, CountIndices) {
  const auto f =
      function([](const Tensor& x) { return range(x.dim(0)); }, {.input_signature = {{{-1}}}});
  EXPECT_EQ(f(ones({3})).to_vector<std::int32_t>(), (std::vector<std::int32_t>{0, 1, 2}));
}

TEST(UnknownSizes, MustBeKnownIfTheyDetermineTheNumberOfTensors) {
  EXPECT_EQ(error_of<InvalidArgumentError>([] {
              function([](const Tensor& x) { return unstack(x); },
                       {.input_signature = {{{-1, 2}}}})(ones({3, 2}));
            }),
            "[Unpack] expected axis 0 of 'args_0' to be known when the graph is made, because the "
            "number of results depends on it");
}

// The result of squeeze() would have fewer axes in a run in which the unknown size is 1.
TEST(UnknownSizes, MustBeKnownIfTheyDetermineWhichAxesAreDropped) {
  const std::string expected =
      "[Squeeze] expected axes, because sizes of shape (?, 1, 3) are not known";
  // Only the shape of squeeze(x) is used.
  const auto slope = function(
      [](const Tensor& x) {
        GradientTape tape;
        tape.watch(x);
        return tape.gradient(reduce_sum(squeeze(x) * ones({3})), x);
      },
      {.input_signature = {{{-1, 1, 3}}}});
  EXPECT_EQ(error_of<InvalidArgumentError>([&] { slope(ones({1, 1, 3})); }), expected);
  Graph graph;
  const GraphScope building(graph);
  const Tensor x = placeholder(float32, {-1, 1, 3});
  EXPECT_EQ(error_of<InvalidArgumentError>([&] { squeeze(x); }), expected);
  EXPECT_EQ(squeeze(x, {1}).shape().rank(), 2);
}

// Unknown sizes are represented by numbers of this magnitude, the first one by -2^40.
TEST(UnknownSizes, AreNotMistakenForBoundsOfRandomIntegers) {
  constexpr std::int64_t kFirst = -(std::int64_t{1} << 40), kLow = -9'000'000'000'000'000'000;
  const auto sample = [](const Tensor& x) {
    const Shape shape{x.shape()[0]};
    return std::vector<Tensor>{random::uniform_int(shape, kFirst, 5, {.dtype = int64}),
                               random::uniform_int(shape, kFirst - 1, kFirst, {.dtype = int64}),
                               random::uniform_int(shape, kLow, kFirst, {.dtype = int64})};
  };
  const auto traced = function(sample, {.input_signature = {{{-1}}}});
  for (const std::int64_t size : {3, 5}) {
    random::set_seed(7);
    const std::vector<Tensor> expected = sample(zeros({size}));
    random::set_seed(7);
    const std::vector<Tensor> got = traced(zeros({size}));
    for (std::size_t i = 0; i < expected.size(); ++i)
      EXPECT_EQ(got[i].to_vector<std::int64_t>(), expected[i].to_vector<std::int64_t>());
  }
}

TEST(UnknownSizes, DenseLayersOverPositionsAreTrained) {
  const Variable w(random::normal({4, 2}));
  const auto step = [&](const Tensor& x) {
    GradientTape tape;
    const Tensor loss = reduce_sum(square(nn::dense(x, w)));
    return tape.gradient(loss, w);
  };
  const auto traced = function(step, {.input_signature = {{{-1, -1, 4}}}});
  for (const Shape& shape : {Shape{2, 3, 4}, Shape{1, 5, 4}}) {
    const Tensor x = random::normal(shape);
    EXPECT_EQ(traced(x).to_vector<float>(), step(x).to_vector<float>());
  }
}

}  // namespace
}  // namespace tandem::unknown_sizes_test
