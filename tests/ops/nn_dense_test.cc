#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "ops/nn_reference.h"
#include "tandem/array.h"
#include "tandem/math.h"
#include "tandem/nn.h"

namespace tandem::nn_dense_test {
namespace {

using nn::Activation;
using namespace testing;

constexpr Activation kActivations[] = {
    Activation::kLinear,   Activation::kRelu,    Activation::kRelu6, Activation::kLeakyRelu,
    Activation::kElu,      Activation::kSelu,    Activation::kGelu,  Activation::kSwish,
    Activation::kSoftplus, Activation::kSigmoid, Activation::kTanh,  Activation::kSoftmax};

TEST(Dense, EqualsMatMulBiasAndActivation) {
  for (const DType dtype : {float32, float64})
    for (const Activation activation : kActivations) {
      SCOPED_TRACE(static_cast<int>(activation));
      const Tensor x = random_tensor({13, 40}, 1, -1, 1, dtype),
                   w = random_tensor({40, 19}, 2, -1, 1, dtype),
                   b = random_tensor({19}, 3, -1, 1, dtype);
      const double tolerance = dtype == float32 ? 4e-6 : 1e-13;
      expect_tensor(nn::dense(x, w, b, activation), dtype, {13, 19},
                    values_of(nn::activate(matmul(x, w) + b, activation)), tolerance);
      expect_tensor(nn::dense(x, w, {}, activation), dtype, {13, 19},
                    values_of(nn::activate(matmul(x, w), activation)), tolerance);
    }
}

TEST(Dense, KeepsNaNThroughEveryActivation) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const DType dtype : testing::kFloatingTypes)
    for (const Activation activation : kActivations) {
      const Tensor x = full({20, 30}, nan, {.dtype = dtype}), w = ones({30, 40}, {.dtype = dtype});
      for (double value : values_of(nn::dense(x, w, {}, activation)))
        ASSERT_TRUE(std::isnan(value)) << static_cast<int>(activation) << name_of(dtype);
    }
}

TEST(Dense, AgreesWithTheDefinition) {
  const Tensor x = constant({{1.0, 2.0}, {-3.0, 0.5}}),
               w = constant({{2.0, 0.0, -1.0}, {1.0, 4.0, 0.5}});
  expect_tensor(nn::dense(x, w, constant({0.5, -20.0, 1.0}), Activation::kRelu), float32, {2, 3},
                {4.5, 0.0, 1.0, 0.0, 0.0, 4.25});
}

TEST(Dense, HasRightGradients) {
  const Tensor x = random_tensor({4, 3}, 4), w = random_tensor({3, 5}, 5),
               b = random_tensor({5}, 6);
  for (const Activation activation : kActivations) {
    SCOPED_TRACE(static_cast<int>(activation));
    const auto f = [&](const std::vector<Tensor>& in) {
      return nn::dense(in[0], in[1], in[2], activation);
    };
    expect_gradients(f, {x, w, b});
    expect_second_order(f, {x, w, b});
  }
  expect_gradients(
      [](const std::vector<Tensor>& in) { return nn::dense(in[0], in[1], {}, Activation::kTanh); },
      {x, w});
}

TEST(Dense, TakesInputsOfAnyRank) {
  const Tensor x = random_tensor({2, 3, 4}, 7), w = random_tensor({4, 5}, 8),
               b = random_tensor({5}, 9);
  const auto f = [](const std::vector<Tensor>& in) {
    return nn::dense(in[0], in[1], in[2], Activation::kTanh);
  };
  expect_tensor(f({x, w, b}), float64, {2, 3, 5}, values_of(f({reshape(x, {6, 4}), w, b})), 1e-14);
  expect_gradients(f, {x, w, b});
  const Tensor row = reshape(slice(x, {0, 0, 0}, {1, 1, 4}), {4});
  expect_tensor(f({row, w, b}), float64, {5}, values_of(f({reshape(row, {1, 4}), w, b})), 1e-14);
  expect_gradients(f, {row, w, b});
}

TEST(Dense, OtherDtypesAgreeWithFloat64) {
  const Tensor x = random_tensor({33, 40}, 10, -0.5, 0.5),
               w = random_tensor({40, 21}, 11, -0.5, 0.5), b = random_tensor({21}, 12, -0.5, 0.5);
  for (const Activation activation :
       {Activation::kLinear, Activation::kTanh, Activation::kSigmoid, Activation::kElu})
    expect_other_dtypes_like_float64(
        [&](const std::vector<Tensor>& in) { return nn::dense(in[0], in[1], in[2], activation); },
        {x, w, b}, 40);
}

TEST(Dense, HandlesEmptySizes) {
  const CreationOptions type{.dtype = float64};
  expect_tensor(nn::dense(ones({0, 3}), ones({3, 2}), ones({2}), Activation::kRelu), float32,
                {0, 2}, {});
  for (const DType dtype : testing::kFloatingTypes)
    expect_tensor(nn::dense(ones({2, 0}, {.dtype = dtype}), ones({0, 2}, {.dtype = dtype}),
                            constant({1.0, -1.0}, {.dtype = dtype}), Activation::kRelu),
                  dtype, {2, 2}, {1, 0, 1, 0});
  GradientTape tape;
  const Tensor x = ones({0, 3}, type), w = ones({3, 2}, type), b = ones({2}, type);
  for (const Tensor& tensor : {x, w, b}) tape.watch(tensor);
  const auto grads = tape.gradient(reduce_sum(nn::dense(x, w, b, Activation::kRelu)), {x, w, b});
  expect_tensor(grads[0], float64, {0, 3}, {});
  expect_tensor(grads[1], float64, {3, 2}, std::vector<double>(6, 0.0));
  expect_tensor(grads[2], float64, {2}, {0, 0});
}

TEST(Dense, ExplainsBadInput) {
  expect_error<InvalidArgumentError>(
      [] {
        nn::dense(ones({2, 3}), ones({4, 5}));
      },
      "expected weights of shape (3, units) for an input of shape (2, 3), got (4, 5)");
  expect_error<InvalidArgumentError>(
      [] {
        nn::dense(ones({2, 3}), ones({3, 5}), ones({4}), Activation::kRelu);
      },
      "[FusedMatMul] expected a bias of shape (5,), got (4,)");
  expect_error<InvalidArgumentError>(
      [] {
        nn::dense(ones({2, 3}), ones({3, 5}, {.dtype = float64}));
      },
      "expected one dtype, got float32 and float64");
}

TEST(BiasAdd, AddsAlongTheLastAxisAndSumsTheGradient) {
  // Narrow and wide rows, few and many: all ways to divide the column sums into blocks.
  for (const Shape& shape : {Shape{1}, Shape{3, 1}, Shape{5000, 3}, Shape{7, 64}, Shape{300, 70},
                             Shape{40, 5, 3, 17}, Shape{2, 20000}, Shape{0, 4}}) {
    SCOPED_TRACE(shape.to_string());
    const std::int64_t columns = shape.dim(-1);
    for (const DType dtype : {float32, float64}) {
      const Tensor x = random_tensor(shape, 13, -1, 1, dtype),
                   b = random_tensor({columns}, 14, -1, 1, dtype);
      GradientTape tape;
      tape.watch(b);
      const Tensor y = nn::bias_add(x, b);
      std::vector<double> expected = values_of(x), sums(static_cast<std::size_t>(columns)),
                          bias = values_of(b);
      const std::vector<double> slopes = expected;
      for (std::size_t i = 0; i < expected.size(); ++i) {
        sums[i % bias.size()] += slopes[i];
        expected[i] += bias[i % bias.size()];
      }
      expect_tensor(y, dtype, shape, expected, dtype == float32 ? 1e-6 : 1e-14);
      expect_tensor(tape.gradient(y, b, {.output_gradient = x}), dtype, {columns}, sums,
                    dtype == float32 ? 2e-5 : 1e-11);
    }
  }
  const auto f = [](const std::vector<Tensor>& in) { return nn::bias_add(in[0], in[1]) * in[0]; };
  expect_gradients(f, {random_tensor({3, 4}, 15), random_tensor({4}, 16)});
  expect_second_order(f, {random_tensor({3, 4}, 15), random_tensor({4}, 16)});
  expect_error<InvalidArgumentError>(
      [] {
        nn::bias_add(ones({2, 3}), ones({2}));
      },
      "[BiasAdd] expected a bias of shape (3,), got (2,)");
}

}  // namespace
}  // namespace tandem::nn_dense_test
