// Tensor's operators, its methods, which equal the free functions, and its indexing.
#include <gtest/gtest.h>

#include <cmath>

#include "support/gradient_check.h"
#include "support/tensors.h"
#include "tandem/tandem.h"

namespace tandem::tensor_methods_test {
namespace {

using testing::expect_error;
using testing::expect_gradients;
using testing::expect_tensor;
using testing::random_tensor;
using testing::values_of;

using Values = std::vector<double>;

// [[0, 1, 2, 3], [4, ...], ...] in float64.
Tensor counting(const Shape& shape) {
  return range(0, static_cast<double>(shape.num_elements()), 1, {.dtype = float64}).reshape(shape);
}

TEST(TensorOperators, CompareElementByElement) {
  const Tensor a = constant({1.0, 2.0, 3.0}), b = constant({3.0, 2.0, 1.0});
  expect_tensor(a == b, bool_, {3}, {0, 1, 0});
  expect_tensor(a != b, bool_, {3}, {1, 0, 1});
  expect_tensor(a < b, bool_, {3}, {1, 0, 0});
  expect_tensor(a <= b, bool_, {3}, {1, 1, 0});
  expect_tensor(a > b, bool_, {3}, {0, 0, 1});
  expect_tensor(a >= b, bool_, {3}, {0, 1, 1});
  expect_tensor(a == 2.0, bool_, {3}, {0, 1, 0});
  expect_tensor(a != 2, bool_, {3}, {1, 0, 1});
  expect_tensor(a < 2, bool_, {3}, {1, 0, 0});
  expect_tensor(a <= 2, bool_, {3}, {1, 1, 0});
  expect_tensor(a > 2, bool_, {3}, {0, 0, 1});
  expect_tensor(a >= 2, bool_, {3}, {0, 1, 1});
  expect_tensor(2 == a, bool_, {3}, {0, 1, 0});
  expect_tensor(2 != a, bool_, {3}, {1, 0, 1});
  expect_tensor(2 < a, bool_, {3}, {0, 0, 1});
  expect_tensor(2 <= a, bool_, {3}, {0, 1, 1});
  expect_tensor(2 > a, bool_, {3}, {1, 0, 0});
  expect_tensor(2 >= a, bool_, {3}, {1, 1, 0});
  const Tensor nan = constant({std::nan("")});
  expect_tensor(nan != 1.0, bool_, {1}, {1});
  expect_tensor(nan == nan, bool_, {1}, {0});
}

TEST(TensorOperators, VariablesStandForTheirValue) {
  const Variable v(constant({1.0, 2.0})), other(constant({1.0, 2.0}));
  expect_tensor(v > 1.0, bool_, {2}, {0, 1});
  expect_tensor(v.value() == other, bool_, {2}, {1, 1});
  EXPECT_TRUE(v == v);  // compares handles
  EXPECT_FALSE(v == other);
}

TEST(TensorOperators, SameTensorComparesHandles) {
  const Tensor a = constant({1.0}), copy = a, equal = constant({1.0});
  EXPECT_TRUE(a.same_as(copy));
  EXPECT_FALSE(a.same_as(equal));
  EXPECT_TRUE(Tensor().same_as(Tensor()));
}

TEST(TensorOperators, CompoundAssignmentMakesANewTensor) {
  Tensor a = constant({1.0, 2.0});
  const Tensor before = a;
  a += constant({1.0, 1.0});
  expect_tensor(a, float32, {2}, {2, 3});
  a -= 1.0;
  a *= 4.0;
  a /= constant({2.0, 2.0});
  expect_tensor(a, float32, {2}, {2, 4});
  a *= before;
  a /= 2.0;
  a += 1.0;
  a -= before;
  expect_tensor(a, float32, {2}, {1, 3});
  expect_tensor(before, float32, {2}, {1, 2});
}

TEST(TensorMethods, EqualTheFreeFunctions) {
  const Tensor x = constant({{1.0, -4.0}, {9.0, 16.0}}, {.dtype = float64});
  EXPECT_EQ(x.sum().item(), 22.0);
  expect_tensor(x.sum(0), float64, {2}, {10, 12});
  expect_tensor(x.sum(-1, true), float64, {2, 1}, {-3, 25});
  expect_tensor(x.sum({0, 1}), float64, Shape::scalar(), {22});
  EXPECT_EQ(x.mean().item(), 5.5);
  expect_tensor(x.mean(1), float64, {2}, {-1.5, 12.5});
  EXPECT_EQ(x.max().item(), 16.0);
  expect_tensor(x.max(0), float64, {2}, {9, 16});
  EXPECT_EQ(x.min().item(), -4.0);
  expect_tensor(x.min(0), float64, {2}, {1, -4});
  expect_tensor(x.argmax(0), int64, {2}, {1, 1});
  expect_tensor(x.argmin(1), int64, {2}, {1, 0});
  expect_tensor(x.reshape({4}), float64, {4}, {1, -4, 9, 16});
  expect_tensor(x.transpose(), float64, {2, 2}, {1, 9, -4, 16});
  expect_tensor(x.transpose({0, 1}), float64, {2, 2}, {1, -4, 9, 16});
  expect_tensor(x.abs().sqrt(), float64, {2, 2}, {1, 2, 3, 4});
  expect_tensor(x.square(), float64, {2, 2}, {1, 16, 81, 256});
  expect_tensor(x.abs().log().exp(), float64, {2, 2}, {1, 4, 9, 16}, 1e-12);
}

TEST(TensorMethods, ItemConvertsAnyDtype) {
  for (const DType dtype : {float32, float64, float16, bfloat16, int32, int64, uint8})
    EXPECT_EQ(constant(3.0, {.dtype = dtype}).item(), 3.0) << name_of(dtype);
  EXPECT_EQ(constant(true).item(), 1.0);
  expect_error<InvalidArgumentError>([] { ones({2}).item(); }, "one element, got shape (2,)");
}

TEST(TensorIndexing, TakesPositionsAndSlices) {
  const Tensor x = counting({3, 4});
  expect_tensor(x(1), float64, {4}, {4, 5, 6, 7});
  expect_tensor(x(-1, 0), float64, Shape::scalar(), {8});
  expect_tensor(x(Slice{1, 3}), float64, {2, 4}, {4, 5, 6, 7, 8, 9, 10, 11});
  expect_tensor(x(0, Slice{1, 3}), float64, {2}, {1, 2});
  expect_tensor(x(Slice{}, 2), float64, {3}, {2, 6, 10});
  expect_tensor(x(Slice{.stop = -1}, Slice{-2}), float64, {2, 2}, {2, 3, 6, 7});
  expect_tensor(x(Slice{}, Slice{.step = 2}), float64, {3, 2}, {0, 2, 4, 6, 8, 10});
  expect_tensor(x(Slice{.step = -1}, 0), float64, {3}, {8, 4, 0});
  expect_tensor(x(0, Slice{.step = -2}), float64, {2}, {3, 1});
  expect_tensor(x(0, Slice{3, 0, -2}), float64, {2}, {3, 1});
  expect_tensor(x(0, Slice{1, 100}), float64, {3}, {1, 2, 3});  // cut off, as in Python
  expect_tensor(x(0, Slice{3, 1}), float64, {0}, {});
  expect_tensor(x(0, Slice{3, 1, 2}), float64, {0}, {});
  expect_tensor(counting({2, 3, 2})(Slice{}, Slice{0, 3, 2}, 1), float64, {2, 2}, {1, 5, 7, 11});
}

TEST(TensorIndexing, SharesStorageIfOnlyTheFirstAxisIsCut) {
  const DeviceScope host("/cpu:0");
  const Tensor x = counting({3, 4});
  EXPECT_EQ(x(Slice{1, 3}).data<double>(), x.data<double>() + 4);
  EXPECT_EQ(x(1, 2).data<double>(), x.data<double>() + 6);
}

TEST(TensorIndexing, HasAGradient) {
  expect_gradients([](const std::vector<Tensor>& in) { return in[0](1, Slice{.step = 2}); },
                   {random_tensor({2, 5})});
  expect_gradients(
      [](const std::vector<Tensor>& in) {
        return in[0](Slice{2, 0, -1}, Slice{1, 3});
      },
      {random_tensor({3, 4})});
}

TEST(TensorIndexing, WorksWhileAFunctionIsTraced) {
  const auto columns = function(
      [](const Tensor& x) {
        return x(Slice{}, Slice{1, 4, 2});
      },
      {.input_signature = {{.shape = {-1, 4}, .dtype = float64}}});
  expect_tensor(columns(counting({2, 4})), float64, {2, 2}, {1, 3, 5, 7});
  expect_tensor(columns(counting({1, 4})), float64, {1, 2}, {1, 3});
}

TEST(TensorIndexing, NamesInvalidIndices) {
  const Tensor x = counting({3, 4});
  expect_error<InvalidArgumentError>([&] { x(0, 4); }, "expected an index of [-4, 4)");
  expect_error<InvalidArgumentError>(
      [&] { x(Slice{}, -5); }, "[at] expected a position of [-4, 4) for axis 1 of shape (3, 4)");
  expect_error<InvalidArgumentError>([&] { x(0, 0, 0); }, "[at] expected at most 2 indices");
  expect_error<InvalidArgumentError>([&] { x(Slice{.step = 0}); }, "a step other than 0");
}

TEST(TensorList, TakesListsInBraces) {
  const Tensor a = constant({3.0}), b = constant({4.0});
  const Variable v(constant({12.0}));
  EXPECT_EQ(global_norm({a, b, v}).item(), 13.0);
  EXPECT_EQ(clip_by_global_norm({a, b}, 1.0).norm.item(), 5.0);
  EXPECT_EQ(add_n({a, b}).item(), 7.0);
  expect_tensor(concat({a, b}, 0), float32, {2}, {3, 4});
  expect_tensor(stack({a, b}), float32, {2, 1}, {3, 4});
  const std::vector<Tensor> tensors = {a, b};
  EXPECT_EQ(global_norm(tensors).item(), 5.0);
  EXPECT_EQ(global_norm(std::span(tensors).first(1)).item(), 3.0);
  GradientTape tape;
  tape.watch(a);
  tape.watch(b);
  EXPECT_EQ(tape.gradient(a * b, {a, b})[1].item(), 3.0);
  EXPECT_EQ(layers::Add()({a, b}).item(), 7.0);
}

TEST(Shorthands, CoverTheCommonCases) {
  EXPECT_EQ(optimizers::SGD(0.5).learning_rate(), 0.5);
  const Variable w(constant({1.0}), {.name = "w"});
  EXPECT_EQ(optimizers::Adam(1e-2, {w}).parameters().size(), 1u);
  EXPECT_EQ(optimizers::AdamW(optimizers::schedules::cosine_decay(0.25, 10)).learning_rate(), 0.25);
  const Tensor dense = layers::Dense(3, "relu")(constant({{-1.0, 2.0}}));
  EXPECT_GE(dense.min().item(), 0.0);
  const Tensor image = layers::Conv2D(4, 3, "relu")(ones({1, 5, 5, 2}));
  EXPECT_EQ(image.shape(), (Shape{1, 3, 3, 4}));
  EXPECT_GE(image.min().item(), 0.0);
}

}  // namespace
}  // namespace tandem::tensor_methods_test
