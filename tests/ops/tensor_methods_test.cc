// Tensor's operators, its methods, which equal the free functions, and its indexing.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "support/gradient_check.h"
#include "support/tensors.h"
#include "tandem/tandem.h"

namespace tandem::tensor_methods_test {
namespace {

using namespace testing;

using Values = std::vector<double>;

// [[0, 1, 2, 3], [4, ...], ...] in float64.
Tensor counting(const Shape& shape) {
  return range(0, static_cast<double>(shape.num_elements()), 1, {.dtype = float64}).reshape(shape);
}

TEST(Tensor, FlattensSomeAxes) {
  const Tensor x = counting({2, 3, 4, 5});
  EXPECT_EQ(x.flatten(1).shape(), Shape({2, 60}));
  EXPECT_EQ(x.flatten(1, 2).shape(), Shape({2, 12, 5}));
  EXPECT_EQ(x.flatten(-3, -2).shape(), Shape({2, 12, 5}));
  EXPECT_EQ(flatten(x, 0, 1).shape(), Shape({6, 4, 5}));
  EXPECT_EQ(values_of(x.flatten(1, 2)), values_of(x));
  expect_error<InvalidArgumentError>([&] { static_cast<void>(x.flatten(2, 1)); }, "[flatten]");
  expect_error<ShapeError>([&] { static_cast<void>(x.flatten(4)); }, "axis");
}

TEST(Tensor, IsFilledWhereAMaskIsTrue) {
  const Tensor x = counting({2, 3});
  const Tensor mask = constant({true, false, true});
  expect_tensor(x.masked_fill(mask, -1e9), float64, {2, 3}, {-1e9, 1, -1e9, -1e9, 4, -1e9});
  expect_tensor(masked_fill(x, x > 3.0, 7), float64, {2, 3}, {0, 1, 2, 3, 7, 7});
  expect_gradients([&](const std::vector<Tensor>& in) { return in[0].masked_fill(mask, 2.0); },
                   {random_tensor({2, 3})});
}

TEST(Tensor, HasTriangles) {
  const Tensor x = counting({3, 4}) + 1.0;
  expect_tensor(tril(x), float64, {3, 4}, {1, 0, 0, 0, 5, 6, 0, 0, 9, 10, 11, 0});
  expect_tensor(triu(x, 1), float64, {3, 4}, {0, 2, 3, 4, 0, 0, 7, 8, 0, 0, 0, 12});
  expect_tensor(tril(x, -1), float64, {3, 4}, {0, 0, 0, 0, 5, 0, 0, 0, 9, 10, 0, 0});
  // Each matrix has one, also where the elements above are infinite.
  const Tensor infinite = full({2, 2, 2}, std::numeric_limits<double>::infinity());
  expect_tensor(is_finite(tril(infinite)), bool_, {2, 2, 2}, {0, 1, 0, 0, 0, 1, 0, 0});
  expect_error<ShapeError>([] { static_cast<void>(tril(ones({3}))); }, "[tril] expected matrices");
}

TEST(Tensor, IsMadeWithOptionsOfPyTorch) {
  const Tensor w = zeros({2}, TensorOptions().dtype(float64).requires_grad(true));
  EXPECT_TRUE(w.requires_grad());
  EXPECT_EQ(w.dtype(), float64);
  const Tensor n = randn({3}, {.dtype = float64, .requires_grad = true});
  EXPECT_TRUE(n.requires_grad());
  EXPECT_EQ(n.dtype(), float64);
  EXPECT_EQ(rand({3}, TensorOptions().device("/cpu:0")).dtype(), float32);
  expect_tensor(tensor({0, 2}, float64), float64, {2}, {0, 2});
  expect_tensor(tensor({0, 2}, TensorOptions().dtype(int32)), int32, {2}, {0, 2});
  expect_tensor(arange(0, 3, float64), float64, {3}, {0, 1, 2});
  EXPECT_EQ(numel(n), 3);
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

TEST(TensorIndexing, TakesPositionsAndSlices) {
  const Tensor x = counting({3, 4});
  expect_tensor(x(1), float64, {4}, {4, 5, 6, 7});
  expect_tensor(x(-1, 0), float64, Shape::scalar(), {8});
  expect_tensor(x(Slice{1, 3}), float64, {2, 4}, {4, 5, 6, 7, 8, 9, 10, 11});
  expect_tensor(x(0, Slice{1, 3}), float64, {2}, {1, 2});
  expect_tensor(x(Slice{}, 2), float64, {3}, {2, 6, 10});
  expect_tensor(x(Slice(None, -1), Slice{-2}), float64, {2, 2}, {2, 3, 6, 7});
  expect_tensor(x(Slice{}, Slice(None, None, 2)), float64, {3, 2}, {0, 2, 4, 6, 8, 10});
  expect_tensor(x(Slice(None, None, -1), 0), float64, {3}, {8, 4, 0});
  expect_tensor(x(0, Slice(None, None, -2)), float64, {2}, {3, 1});
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
  expect_gradients([](const std::vector<Tensor>& in) { return in[0](1, Slice(None, None, 2)); },
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
  expect_error<InvalidArgumentError>([&] { x(Slice(None, None, 0)); }, "a step other than 0");
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

TEST(TensorMethods, HaveTheNamesOfPyTorch) {
  const Tensor x = counting({2, 3, 4});
  EXPECT_EQ(x.sizes(), Shape({2, 3, 4}));
  EXPECT_EQ(x.size(-1), 4);
  EXPECT_EQ(x.dim(), 3);
  EXPECT_EQ(x.numel(), 24);
  EXPECT_EQ(x.view({6, -1}).shape(), Shape({6, 4}));
  EXPECT_EQ(x.flatten().shape(), Shape({24}));
  EXPECT_EQ(x.permute({2, 0, 1}).contiguous().shape(), Shape({4, 2, 3}));
  EXPECT_EQ(x.transpose(0, -1).shape(), Shape({4, 3, 2}));
  EXPECT_EQ(x.T().shape(), Shape({4, 3, 2}));
  EXPECT_EQ(x.unsqueeze(0).shape(), Shape({1, 2, 3, 4}));
  EXPECT_EQ(x.unsqueeze(-1).squeeze().shape(), Shape({2, 3, 4}));
  EXPECT_EQ(x.unsqueeze(1).squeeze(1).shape(), Shape({2, 3, 4}));
  EXPECT_EQ(values_of(x.permute({2, 0, 1})), values_of(transpose(x, {2, 0, 1})));
  EXPECT_EQ(values_of(x.transpose(0, 2)), values_of(transpose(x, {2, 1, 0})));
  EXPECT_EQ(values_of(x[Slice{1, 2}]), values_of(x[1]));
  EXPECT_EQ(values_of(x.slice(2, 0, 4, 2)), values_of(x(Slice{}, Slice{}, Slice{0, 4, 2})));
  EXPECT_EQ(values_of(x.narrow(1, 1, 2)), values_of(x(Slice{}, Slice{1, 3})));
  EXPECT_EQ(values_of(x.select(1, 2)), values_of(x(Slice{}, 2)));
  EXPECT_EQ(values_of(x.index({Slice(), 0, Slice{1, 3}})), values_of(x(Slice(), 0, Slice{1, 3})));
  EXPECT_EQ(values_of(x.index_select(1, constant({2, 0}))),
            values_of(gather(x, constant({2, 0}), 1)));
  EXPECT_EQ(x.at<double>({1, 2, 3}), 23.0);
  EXPECT_EQ(values_of(x.pow(2)), values_of(square(x)));
  EXPECT_EQ(values_of(x.clamp(3, 5)), values_of(clip_by_value(x, 3, 5)));
  EXPECT_EQ(values_of(x.eq(3.0)), values_of(equal(x, 3.0)));
  EXPECT_EQ(x.argmax().item<std::int64_t>(), 23);
  expect_error<ShapeError>([&] { static_cast<void>(x.select(3, 0)); }, "[Shape] expected an axis");
}

TEST(TensorMethods, DeviateAsInPyTorch) {
  const Tensor x = constant({{1.0, 2.0}, {3.0, 8.0}}, {.dtype = float64});
  expect_tensor(x.var(), float64, Shape::scalar(), {29.0 / 3}, 1e-12);
  expect_tensor(x.var(false), float64, Shape::scalar(), {7.25}, 1e-12);
  expect_tensor(x.std(), float64, Shape::scalar(), {std::sqrt(29.0 / 3)}, 1e-12);
  expect_tensor(x.var(0), float64, {2}, {2, 18}, 1e-12);
  expect_tensor(x.std(1, false), float64, {2}, {0.5, 2.5}, 1e-12);
  expect_tensor(x.diagonal(), float64, {2}, {1, 8});
  const auto parts = counting({5, 2}).chunk(3);
  ASSERT_EQ(parts.size(), 3u);
  EXPECT_EQ(parts[0].shape(), Shape({2, 2}));
  EXPECT_EQ(parts[2].shape(), Shape({1, 2}));
}

TEST(TensorMethods, CloneIsATensorOfItsOwn) {
  const Tensor x = counting({3});
  Tensor copy = x.clone();
  EXPECT_FALSE(copy.same_as(x));
  copy.requires_grad_();
  EXPECT_FALSE(x.requires_grad());
  Tensor w = counting({3});
  w.requires_grad_();
  w.clone().sum().backward();
  expect_tensor(w.grad(), float64, {3}, {1, 1, 1});
}

TEST(TensorMethods, WritesThroughDataPtrReachNoOtherTensor) {
  const DeviceScope host("/cpu:0");  // whose memory the test reads
  Tensor x = counting({4});
  const Tensor same = x, view = x.reshape({2, 2});
  x.data_ptr<double>()[1] = 10.0;
  expect_tensor(x, float64, {4}, {0, 10, 2, 3});
  expect_tensor(same, float64, {4}, {0, 1, 2, 3});
  expect_tensor(view, float64, {2, 2}, {0, 1, 2, 3});
  const double* before = x.data<double>();
  EXPECT_EQ(x.data_ptr<double>(), before);  // no other tensor has this memory
  // Elements that a gradient needs stay as well.
  Tensor w = counting({2});
  w.requires_grad_();
  Tensor y = w * w;
  w.data_ptr<double>()[1] = 7.0;
  y.sum().backward();
  expect_tensor(w.grad(), float64, {2}, {0, 2});
  expect_error<DTypeError>([&] { x.data_ptr<float>(); }, "[data] the tensor's dtype is float64");
}

TEST(TensorMethods, DataOfATemporaryKeepsTheTensor) {
  const DeviceScope host("/cpu:0");  // whose memory the test reads
  const Tensor x = counting({64, 64});
  const auto sum = (x + x).data<double>();
  const auto product = (x * x).data_ptr<double>();
  EXPECT_NE(sum.get(), product.get());  // the memory of the first was not used again
  for (std::int64_t i = 0; i < 64 * 64; ++i) {
    EXPECT_EQ(sum[i], 2.0 * static_cast<double>(i));
    EXPECT_EQ(product[i], static_cast<double>(i * i));
  }
  const double* pointer = sum;
  EXPECT_EQ(pointer[3], 6.0);
  EXPECT_EQ((sum + 2)[1], 6.0);
  EXPECT_EQ(*sum, 0.0);
  EXPECT_EQ((x + 1.0).sum().data<double>()[0], 64.0 * 64 * (64 * 64 + 1) / 2);
  const Tensor kept = x;
  EXPECT_EQ(Tensor(kept).data<double>().get(), x.data<double>());
  expect_error<DTypeError>([&] { static_cast<void>((x + x).data<float>()); },
                           "[data] the tensor's dtype is float64");
}

TEST(TensorMethods, ShapeAndDeviceOfATemporaryAreCopies) {
  const auto made = [] { return counting({2, 3}); };
  const Shape& shape = made().shape();
  const std::string& device = made().device();
  std::int64_t elements = 1;
  for (const Dim size : made().sizes()) elements *= size;
  const Tensor other = counting({5, 7, 9});
  EXPECT_EQ(shape, Shape({2, 3}));
  EXPECT_EQ(device, other.device());
  EXPECT_EQ(elements, 6);
}

TEST(TensorMethods, DotsInQuotesAreAnEllipsis) {
  const Tensor x = counting({2, 3, 2});
  expect_tensor(x.index({"...", 1}), float64, {2, 3}, {1, 3, 5, 7, 9, 11});
  expect_tensor(x(1, "...", Slice(0, 1)), float64, {3, 1}, {6, 8, 10});
  expect_error<InvalidArgumentError>(
      [&] {
        x.index({"..", 1});
      },
      "[index] expected a position, a Slice, None, Ellipsis or \"...\", got \"..\"");
}

TEST(TensorMethods, AccessorsSpansAndRowsReadElements) {
  const DeviceScope host("/cpu:0");  // whose memory the test reads
  const Tensor x = counting({2, 3, 2});
  const auto a = x.accessor<double, 3>();
  for (int i = 0; i < 2; ++i)
    for (int j = 0; j < 3; ++j)
      for (int k = 0; k < 2; ++k) EXPECT_EQ(a[i][j][k], i * 6 + j * 2 + k);
  EXPECT_EQ(x.span<double>().size(), 12u);
  EXPECT_EQ(x.span<double>()[5], 5.0);
  double first = 0;
  std::int64_t rows = 0;
  for (const Tensor& row : x) first += row.at<double>({0, 0}), ++rows;
  EXPECT_EQ(first, 6.0);
  EXPECT_EQ(rows, 2);
  expect_error<ShapeError>([&] { static_cast<void>(x.accessor<double, 2>()); },
                           "[accessor] expected a tensor of 2 axes, got shape (2, 3, 2)");
  expect_error<ShapeError>(
      [] {
        for (const Tensor& t : constant(1.0)) static_cast<void>(t);
      },
      "[begin] expected a first axis of known size");
}

TEST(TensorMethods, OneElementIsANumberAndACondition) {
  EXPECT_EQ(double(constant(1.5)), 1.5);
  EXPECT_EQ(static_cast<int>(constant({{7}})), 7);
  if (!all(constant({1, 2}) == constant({1, 2}))) ADD_FAILURE();
  if (all(constant({1, 2}) == constant({1, 3}))) ADD_FAILURE();
  expect_error<ShapeError>(
      [] {
        static_cast<void>(bool(constant({1, 2})));
      },
      "[item] expected a tensor of one element, got shape (2,)");
}

TEST(TensorOperators, RemainderAndLogicOfMasks) {
  const Tensor x = constant({-3, -1, 2, 5});
  expect_tensor(x % 2, int32, {4}, {1, 1, 0, 1});
  expect_tensor((x > 0) & (x < 5), bool_, {4}, {0, 0, 1, 0});
  expect_tensor((x > 2) | (x < -2), bool_, {4}, {1, 0, 0, 1});
  expect_tensor(~(x > 0), bool_, {4}, {1, 1, 0, 0});
}

TEST(TensorMethods, InferAxesFromNumbersAndLists) {
  const Tensor x = counting({2, 3});
  expect_tensor(reduce_sum(x, 1), float64, {2}, {3, 12});
  expect_tensor(reduce_sum(x, -1, true), float64, {2, 1}, {3, 12});
  expect_tensor(reduce_sum(x, {0, 1}), float64, Shape::scalar(), {15});
  expect_tensor(reduce_sum(x, {0}), float64, {3}, {3, 5, 7});
  expect_tensor(reduce_sum(x, {}), float64, Shape::scalar(), {15});
  expect_tensor(reduce_max(x, {.axis = 0}), float64, {3}, {3, 4, 5});
  expect_tensor(reduce_mean(x, {.axis = {0, 1}, .keepdims = true}), float64, {1, 1}, {2.5});
  expect_tensor(argmax(x, {.axis = 1}), int64, {2}, {2, 2});
  expect_tensor(sum(x, 0), float64, {3}, {3, 5, 7});
  expect_tensor(mean(x), float64, Shape::scalar(), {2.5});
  EXPECT_EQ(split(x, 3, {.axis = 1}).size(), 3u);
}

TEST(Reductions, CountAndAverageBools) {
  const Tensor x = constant({true, false, true, true});
  expect_tensor(x.sum(), int64, Shape::scalar(), {3});
  expect_tensor(x.mean(), float32, Shape::scalar(), {0.75});
}

TEST(MatMul, TakesVectorsAsRowsAndColumns) {
  const Tensor m = counting({2, 3}), v = constant({1.0, 2.0, 3.0}, {.dtype = float64});
  expect_tensor(matmul(m, v), float64, {2}, {8, 26});
  expect_tensor(matmul(constant({1.0, 2.0}, {.dtype = float64}), m), float64, {3}, {6, 9, 12});
  expect_tensor(matmul(v, v), float64, Shape::scalar(), {14});
  expect_tensor(matmul(counting({2, 2, 3}), v), float64, {2, 2}, {8, 26, 44, 62});
  expect_gradients([](const std::vector<Tensor>& in) { return matmul(in[0], in[1]); },
                   {random_tensor({2, 3}, 1), random_tensor({3}, 2)});
}

TEST(Selection, MaskedElements) {
  const Tensor x = counting({3, 2});
  expect_tensor(boolean_mask(x, constant({true, false, true})), float64, {2, 2}, {0, 1, 4, 5});
  expect_tensor(boolean_mask(x, x > 2), float64, {3}, {3, 4, 5});
  expect_tensor(x.masked_select(x < 0), float64, {0}, {});
  expect_error<ShapeError>(
      [&] {
        static_cast<void>(boolean_mask(x, constant({true, false})));
      },
      "[boolean_mask] expected a mask of the leading axes of shape (3, 2)");
  expect_error<DTypeError>(
      [&] {
        static_cast<void>(boolean_mask(x, constant({1, 0, 1})));
      },
      "[boolean_mask] expected a mask of dtype bool");
}

TEST(Selection, LargestAlongAnAxis) {
  const double inf = std::numeric_limits<double>::infinity();
  const Tensor x = constant({{1.0, 5.0, 3.0, 5.0}, {-inf, 2.0, -inf, -inf}}, {.dtype = float64});
  const auto [values, indices] = top_k(x, 3);
  expect_tensor(values, float64, {2, 3}, {5, 5, 3, 2, -inf, -inf});
  expect_tensor(indices, int32, {2, 3}, {1, 3, 2, 1, 0, 2});
  const auto [largest, at] = max(x, 1);
  expect_tensor(largest, float64, {2}, {5, 2});
  expect_tensor(at, int64, {2}, {1, 1});
  const auto [smallest, where] = min(x, 0, true);
  expect_tensor(smallest, float64, {1, 4}, {-inf, 2, -inf, -inf});
  expect_tensor(where, int64, {1, 4}, {1, 1, 1, 1});
  expect_tensor(top_k(constant({{3, 1, 2}}), 2).values, int32, {1, 2}, {3, 2});
  EXPECT_EQ(top_k(x, 0).values.shape(), Shape({2, 0}));
  expect_error<InvalidArgumentError>([&] { static_cast<void>(top_k(x, 5)); }, "[top_k] expected k");
  expect_gradients([](const std::vector<Tensor>& in) { return top_k(in[0], 2).values; },
                   {random_tensor({3, 4})});
}

TEST(Einsum, SumsProducts) {
  const Tensor a = random_tensor({2, 3}, 1), b = random_tensor({3, 4}, 2),
               c = random_tensor({2, 5, 3}, 3), d = random_tensor({2, 3, 4}, 4);
  EXPECT_TRUE(allclose(einsum("ij,jk->ik", a, b), matmul(a, b)));
  EXPECT_TRUE(allclose(einsum("ij,jk", a, b), matmul(a, b)));
  EXPECT_TRUE(allclose(einsum("ij,jk->ki", a, b), transpose(matmul(a, b))));
  EXPECT_TRUE(allclose(einsum("bij,bjk->bik", c, d), matmul(c, d)));
  EXPECT_TRUE(allclose(einsum("bij,bjk->ki", c, d), transpose(reduce_sum(matmul(c, d), 0))));
  EXPECT_TRUE(allclose(einsum("ij->", a), reduce_sum(a)));
  EXPECT_TRUE(allclose(einsum("ij->ji", a), transpose(a)));
  EXPECT_TRUE(
      allclose(einsum("i,j->ij", b[0], b[1]), matmul(expand_dims(b[0], 1), expand_dims(b[1], 0))));
  EXPECT_TRUE(allclose(einsum("ij,jk,k->i", a, b, random_tensor({4}, 5)),
                       matmul(matmul(a, b), random_tensor({4}, 5))));
  expect_gradients([](const std::vector<Tensor>& in) { return einsum("ij,jk->ki", in[0], in[1]); },
                   {a, b});
  expect_error<ShapeError>([&] { static_cast<void>(einsum("ij,jk->ik", a, a)); },
                           "[einsum] expected one size for 'j', got 3 and 2");
  expect_error<InvalidArgumentError>([&] { static_cast<void>(einsum("ij->iz", a)); },
                                     "unexpected 'z' in the result");
  expect_error<InvalidArgumentError>([&] { static_cast<void>(einsum("ij,jk->ik", a)); },
                                     "it names 2 tensors for 1");
  expect_error<ShapeError>([&] { static_cast<void>(einsum("ii->i", a)); },
                           "[einsum] expected one size for 'i', got 2 and 3");
  expect_error<ShapeError>([&] { static_cast<void>(einsum("ijk...->i", a)); },
                           "[einsum] expected a tensor of 3 axes or more");
  expect_error<InvalidArgumentError>([&] { static_cast<void>(einsum("...i...->i", a)); },
                                     "\"...\" twice in a tensor");
  expect_error<InvalidArgumentError>([&] { static_cast<void>(einsum("ij->...", a)); },
                                     "in the result");
}

TEST(Einsum, TakesDiagonalsAndEllipses) {
  const Tensor x = random_tensor({2, 3, 3}, 1), y = random_tensor({4, 1, 3, 5}, 2);
  const auto same = [](const Tensor& a, const Tensor& b) {
    ASSERT_EQ(a.shape(), b.shape());
    EXPECT_TRUE(allclose(a, b, 1e-12, 1e-12));
  };
  same(einsum("bii->bi", x), x.diagonal(0, 1, 2));
  same(einsum("bii", x), reduce_sum(x.diagonal(0, 1, 2), 1));
  same(einsum("bii->", x), reduce_sum(x.diagonal(0, 1, 2)));
  same(einsum("iii->i", random_tensor({2, 2, 2}, 3)),
       random_tensor({2, 2, 2}, 3).diagonal().diagonal());
  same(einsum("...ij,...jk->...ik", x, y), matmul(x, y));
  same(einsum("...ij,...jk", x, y), matmul(x, y));
  same(einsum("...ij->...ji", y), y.transpose(2, 3));
  same(einsum("...->...", x), x);
  same(einsum("i...->...", x), reduce_sum(x, 0));
  same(einsum("...j,j->...", x, y[0][0](Slice{}, 0)), reduce_sum(x * y[0][0](Slice{}, 0), 2));
  same(einsum("...ij->ij", x), reduce_sum(x, 0));
  same(einsum("ij,jk->ik", ones({2, 1}, float64), y[0][0]),
       matmul(ones({2, 3}, float64), y[0][0]));  // a size of 1
  expect_gradients(
      [](const std::vector<Tensor>& in) { return einsum("...ii,...ik->...k", in[0], in[1]); },
      {x, y});
  const auto traced =
      function([](const Tensor& a, const Tensor& b) { return einsum("...ij,...jk->...ik", a, b); },
               {.input_signature = {{Shape{-1, 3, -1}, float64}, {Shape{-1, 3, 5}, float64}}});
  same(traced(x, tile(y[0], {2, 1, 1})), matmul(x, y[0]));
}

TEST(ConfusionMatrix, CountsPairsOfClasses) {
  const Tensor labels = constant({0, 1, 2, 1}), predicted = constant({0, 2, 2, 1});
  expect_tensor(math::confusion_matrix(labels, predicted), int32, {3, 3},
                {1, 0, 0, 0, 1, 1, 0, 0, 1});
  expect_tensor(math::confusion_matrix(
                    labels, predicted,
                    {.num_classes = 4, .weights = constant({1.0, 0.5, 2.0, 1.0}), .dtype = float32})
                    .sum(1),
                float32, {4}, {1, 1.5, 2, 0});
  expect_error<InvalidArgumentError>(
      [&] { static_cast<void>(math::confusion_matrix(labels, predicted, {.num_classes = 2})); },
      "[confusion_matrix] expected classes in [0, 2), got 2");
}

TEST(Errors, OfShapesAndDtypesHaveTypes) {
  expect_error<ShapeError>([] { static_cast<void>(ones({2}) + ones({3})); }, "broadcast");
  expect_error<DTypeError>([] { static_cast<void>(ones({2}) + ones({2}, int64)); }, "one dtype");
  expect_error<ShapeError>([] { static_cast<void>(matmul(ones({2, 3}), ones({2, 3}))); }, "inner");
  expect_error<InvalidArgumentError>([] { static_cast<void>(ones({2}) + ones({3})); }, "broadcast");
  try {
    static_cast<void>(ones({2}).reshape({3}));
    ADD_FAILURE();
  } catch (const InvalidArgumentError& error) {
    EXPECT_STREQ(error.kind(), "ShapeError");
  }
}

TEST(TensorMethods, TakeSizesAndAxesAsArguments) {
  const Tensor x = reshape(range(24, {.dtype = float32}), {2, 3, 4});
  EXPECT_EQ(x.view(-1, 4).shape(), Shape({6, 4}));
  EXPECT_EQ(x.reshape(x.dim(0), -1).shape(), Shape({2, 12}));
  EXPECT_EQ(x.permute(2, 0, 1).tolist<float>(), transpose(x, {2, 0, 1}).to_vector<float>());
  EXPECT_EQ(x.mT().tolist<float>(), transpose(x, {0, 2, 1}).to_vector<float>());
}

}  // namespace
}  // namespace tandem::tensor_methods_test
