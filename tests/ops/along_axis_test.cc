// Elements at positions of their own along an axis, values with indices, and what else PyTorch and
// NumPy do along axes.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "support/gradient_check.h"
#include "support/tensors.h"
#include "tandem/tandem.h"

namespace tandem::along_axis_test {
namespace {

using namespace testing;

Tensor counting(const Shape& shape) {
  return range(0, static_cast<double>(shape.num_elements()), 1, {.dtype = float64}).reshape(shape);
}

TEST(GatherAlongAxis, TakesOneElementPerIndex) {
  const Tensor x = counting({3, 4});
  const Tensor rows = constant({{0, 1, 2, 0}, {2, 2, 0, 1}}, {.dtype = int64});
  expect_tensor(gather(x, 0, rows), float64, {2, 4}, {0, 5, 10, 3, 8, 9, 2, 7});
  const Tensor columns = constant({{3}, {0}, {1}});
  expect_tensor(x.gather(1, columns), float64, {3, 1}, {3, 4, 9});
  expect_tensor(x.gather(-1, columns), float64, {3, 1}, {3, 4, 9});
  // Fewer rows than x has: the others are not read.
  expect_tensor(x.gather(1, constant({{3, 0, 0, 1, 2}})), float64, {1, 5}, {3, 0, 0, 1, 2});
  expect_tensor(counting({2, 2, 2}).gather(1, zeros({2, 1, 2}, int64)), float64, {2, 1, 2},
                {0, 1, 4, 5});
  expect_tensor(constant({1.0, 2.0, 3.0}).gather(0, constant({2, 2})), float32, {2}, {3, 3});
  EXPECT_EQ(x.gather(1, zeros({3, 0}, int64)).shape(), Shape({3, 0}));
}

TEST(GatherAlongAxis, HasAGradient) {
  const Tensor index = constant({{0, 2, 2}, {1, 0, 1}});
  expect_gradients([&](const std::vector<Tensor>& in) { return in[0].gather(1, index); },
                   {random_tensor({2, 4})});
  expect_gradients([&](const std::vector<Tensor>& in) { return in[0].gather(0, index); },
                   {random_tensor({3, 3})});
}

TEST(GatherAlongAxis, RefusesOtherShapesAndIndices) {
  const Tensor x = counting({3, 4});
  expect_error<ShapeError>(
      [&] {
        static_cast<void>(x.gather(1, constant({0, 1})));
      },
      "[gather] expected indices of the rank of shape (3, 4)");
  expect_error<ShapeError>(
      [&] {
        static_cast<void>(x.gather(1, zeros({4, 1}, int64)));
      },
      "at most its sizes along axes other than 1, got shape (4, 1)");
  expect_error<DTypeError>(
      [&] {
        static_cast<void>(x.gather(1, zeros({3, 1})));
      },
      "[gather] expected int32 or int64 indices, got float32");
  expect_error<ShapeError>([&] { static_cast<void>(x.gather(2, zeros({3, 1}, int64))); }, "axis");
  // An index out of range along the axis is another element's position in memory.
  for (const int bad : {4, -1})
    expect_error<InvalidArgumentError>(
        [&] { static_cast<void>(x.gather(1, constant({{bad}})).to_vector<double>()); },
        "expected indices");
}

TEST(GatherAlongAxis, WorksWithAnUnknownBatch) {
  const auto picked =
      function([](const Tensor& x, const Tensor& index) { return x.gather(1, index); },
               {.input_signature = {{.shape = {-1, 3}, .dtype = float64},
                                    {.shape = {-1, 1}, .dtype = int64}}});
  const Tensor index = constant({{2}, {0}}, {.dtype = int64});
  expect_tensor(picked(counting({2, 3}), index), float64, {2, 1}, {2, 3});
}

TEST(TakeAlongAxis, BroadcastsIndices) {
  const Tensor x = counting({2, 3});
  expect_tensor(take_along_axis(x, constant({{2}, {1}}), 1), float64, {2, 1}, {2, 4});
  expect_tensor(take_along_axis(x, constant({{1}}), 0), float64, {1, 3}, {3, 4, 5});
  const Tensor order = argsort(negative(x), 1);
  expect_tensor(take_along_axis(x, order, 1), float64, {2, 3}, {2, 1, 0, 5, 4, 3});
  expect_error<ShapeError>([&] { static_cast<void>(take_along_axis(x, constant({1}), 0)); },
                           "[take_along_axis] expected indices of the rank");
}

TEST(Roll, MovesElementsAround) {
  const Tensor x = counting({2, 3});
  expect_tensor(roll(x, 1, 1), float64, {2, 3}, {2, 0, 1, 5, 3, 4});
  expect_tensor(x.roll(-1, 1), float64, {2, 3}, {1, 2, 0, 4, 5, 3});
  expect_tensor(x.roll(5, 0), float64, {2, 3}, {3, 4, 5, 0, 1, 2});
  expect_tensor(x.roll(6, 1), float64, {2, 3}, {0, 1, 2, 3, 4, 5});
  EXPECT_EQ(roll(zeros({0}), 3, 0).shape(), Shape({0}));
  expect_gradients([](const std::vector<Tensor>& in) { return in[0].roll(2, 0); },
                   {random_tensor({3, 2})});
}

TEST(ValuesAndIndices, AreTheValuesAndAPair) {
  const Tensor x = constant({{1.0, 5.0, 2.0}, {7.0, 0.0, 7.0}});
  const auto [values, indices] = x.max(1);
  expect_tensor(values, float32, {2}, {5, 7});
  expect_tensor(indices, int64, {2}, {1, 0});
  expect_tensor(std::get<1>(x.min(1)), int64, {2}, {0, 1});
  expect_tensor(x.max(1).values[1], float32, Shape::scalar(), {7});
  expect_tensor(x.max(0) - 1.0, float32, {3}, {6, 4, 6});
  expect_tensor(x.max(-1, true), float32, {2, 1}, {5, 7});
  Tensor best, where;
  std::tie(best, where) = x.sort(1, true);
  expect_tensor(best, float32, {2, 3}, {5, 2, 1, 7, 7, 0});
  expect_tensor(where, int64, {2, 3}, {1, 2, 0, 0, 2, 1});
  expect_tensor(x.amax(1), float32, {2}, {5, 7});
  expect_tensor(x.amin({0, 1}), float32, Shape::scalar(), {0});
  expect_tensor(x.max(full({2, 3}, 4.0)), float32, {2, 3}, {4, 5, 4, 7, 4, 7});
  expect_gradients([](const std::vector<Tensor>& in) { return Tensor(in[0].max(1)); },
                   {random_tensor({3, 4})});
}

TEST(ArgMax, WantsAnAxisOfAMatrix) {
  const Tensor x = counting({2, 3});
  EXPECT_EQ(argmax(constant({1.0, 9.0, 3.0})).item<std::int64_t>(), 1);
  EXPECT_EQ(x.argmax().item<std::int64_t>(), 5);
  expect_tensor(argmax(x, 1, true), int64, {2, 1}, {2, 2});
  expect_error<InvalidArgumentError>(
      [&] { static_cast<void>(argmax(x)); },
      "[argmax] expected an axis, argmax(x, axis), for shape (2, 3)");
  expect_error<InvalidArgumentError>([&] { static_cast<void>(argmin(x)); }, "[argmin]");
}

TEST(TensorIndexing, TakesSlicesAndTensorsInBrackets) {
  const Tensor x = counting({3, 4});
  expect_tensor(x[Slice{1, 3}], float64, {2, 4}, {4, 5, 6, 7, 8, 9, 10, 11});
  expect_tensor((x[{Slice{0, 2}, Slice{1, 3}}]), float64, {2, 2}, {1, 2, 5, 6});
  expect_tensor((x[{Slice{}, 0}]), float64, {3}, {0, 4, 8});
  expect_tensor(x[constant({2, 0})], float64, {2, 4}, {8, 9, 10, 11, 0, 1, 2, 3});
  expect_tensor(x[x > 9.0], float64, {2}, {10, 11});
  expect_error<InvalidArgumentError>(
      [&] {
        static_cast<void>(x[{1, 2}]);
      },
      "expected a Slice among the indices in braces");
  expect_tensor(x.slice(1, 2, None), float64, {3, 2}, {2, 3, 6, 7, 10, 11});
  expect_tensor(x.slice(0, -1, None), float64, {1, 4}, {8, 9, 10, 11});
}

TEST(TensorMethods, HaveNormsOfAnyOrder) {
  const Tensor x = constant({{3.0, -4.0}, {0.0, 1.0}}, {.dtype = float64});
  EXPECT_NEAR(x.norm(2).item(), std::sqrt(26.0), 1e-12);
  EXPECT_EQ(x.norm(1).item(), 8.0);
  EXPECT_EQ(norm(x, 1).item(), 8.0);
  EXPECT_EQ(x.norm(0).item(), 3.0);
  EXPECT_EQ(x.norm(std::numeric_limits<double>::infinity()).item(), 4.0);
  EXPECT_NEAR(x.norm(3).item(), std::cbrt(27.0 + 64.0 + 1.0), 1e-12);
  expect_tensor(x.norm(2, 1), float64, {2}, {5, 1});
  expect_tensor(norm(x, 1, 0, true), float64, {1, 2}, {3, 5});
  expect_tensor(norm(x, {.axis = 1}), float64, {2}, {5, 1});
  expect_gradients([](const std::vector<Tensor>& in) { return in[0].norm(3, 0); },
                   {random_tensor({2, 3}) + 2.0});
}

TEST(TensorMethods, SplitBySizeAndCompare) {
  const Tensor x = counting({5, 2});
  const std::vector<Tensor> parts = x.split(2);
  ASSERT_EQ(parts.size(), 3u);
  EXPECT_EQ(parts[0].shape(), Shape({2, 2}));
  EXPECT_EQ(parts[2].shape(), Shape({1, 2}));
  EXPECT_EQ(x.split(1, 1).size(), 2u);
  expect_error<InvalidArgumentError>([&] { static_cast<void>(x.split(0)); }, "[split]");
  EXPECT_TRUE(x.equal(counting({5, 2})));
  EXPECT_FALSE(x.equal(x + 1.0));
  EXPECT_FALSE(x.equal(counting({2, 5})));
  EXPECT_EQ(x.num_elements(), 10);
  EXPECT_EQ(constant({1.0, 2.0}).to_string(), "[1. 2.]");
  expect_tensor(constant({-1.0, 0.5, 2.0}).clamp(0.0), float32, {3}, {0, 0.5, 2});
  expect_tensor(constant({-1.0, 0.5, 2.0}).clamp_max(1.0), float32, {3}, {-1, 0.5, 1});
}

TEST(Where, TakesNumbers) {
  const Tensor x = constant({1.0, -2.0}, {.dtype = float64});
  expect_tensor(where(x > 0.0, x, 0.0), float64, {2}, {1, 0});
  expect_tensor(where(x > 0.0, 7, x), float64, {2}, {7, -2});
  expect_tensor(where(x > 0.0, 1.0, -1.0), float32, {2}, {1, -1});
  expect_tensor(pow(2.0, x), float64, {2}, {2, 0.25});
  expect_tensor(log2(constant({8.0, 0.5})), float32, {2}, {3, -1}, 1e-6);
  expect_tensor(log10(constant({100.0})), float32, {1}, {2}, 1e-6);
  expect_tensor(tan(constant({0.5})), float32, {1}, {std::tan(0.5)}, 1e-6);
  expect_tensor(is_inf(constant({1.0}) / 0.0), bool_, {1}, {1});
  expect_tensor(floor_divide(constant({7.0, -7.0}), 2.0), float32, {2}, {3, -4});
}

TEST(Sampling, FollowTheProbabilities) {
  random::set_seed(3);
  const Tensor p = constant({{0.0, 1.0, 3.0}});
  const Tensor sampled = multinomial(p, 4000, true);
  EXPECT_EQ(sampled.dtype(), int64);
  EXPECT_EQ(sampled.shape(), Shape({1, 4000}));
  const double twos = (sampled == 2).to(float32).mean().item();
  EXPECT_NEAR(twos, 0.75, 0.04);
  EXPECT_EQ((sampled == 0).sum().item(), 0.0);
  const Tensor both = multinomial(p, 2);
  EXPECT_EQ(both.sum().item(), 3.0);  // 1 and 2, in some order
  EXPECT_EQ(random::categorical(log(p), 5).shape(), Shape({1, 5}));
  EXPECT_EQ(multinomial(constant({0.0, 1.0}), 1).item(), 1.0);
  EXPECT_NEAR(bernoulli(full({4000}, 0.25)).mean().item(), 0.25, 0.04);
  expect_error<InvalidArgumentError>([&] { static_cast<void>(multinomial(p, 4)); },
                                     "[multinomial] expected at most 3 samples");
  expect_error<DTypeError>([] { static_cast<void>(bernoulli(zeros({2}, int32))); }, "[bernoulli]");
}

TEST(GradientTape, ListsInBracesAreTakenApart) {
  const Variable w(constant({2.0})), b(constant({1.0}));
  GradientTape tape;
  const Tensor loss = reduce_sum(w * w * 3.0 + b);
  const auto [dw, db] = tape.gradient(loss, {w, b});
  expect_tensor(dw, float32, {1}, {12});
  expect_tensor(db, float32, {1}, {1});
}

}  // namespace
}  // namespace tandem::along_axis_test
