#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "ops/nn_reference.h"
#include "tandem/array.h"
#include "tandem/math.h"
#include "tandem/nn.h"

namespace tandem::nn_softmax_test {
namespace {

using namespace testing;

// The logarithm of the sum of exp of each row.
std::vector<double> log_sums(const std::vector<double>& x, std::size_t width) {
  std::vector<double> logs;
  for (std::size_t row = 0; row < x.size(); row += width) {
    double sum = 0;
    for (std::size_t j = 0; j < width; ++j) sum += std::exp(x[row + j]);
    logs.push_back(std::log(sum));
  }
  return logs;
}

// The reference itself is accurate to about 1e-14.
double tolerance_of(DType dtype) {
  return dtype == float64 ? 1e-14 : 3 * testing::epsilon_of(dtype);
}

// Fewer classes than a buffer holds, as many, and more; few and many rows.
const Shape kShapes[] = {{1}, {3, 1}, {130, 10}, {2, 3, 5}, {3, 100}, {2, 2048}, {2, 5000}, {0, 4}};

TEST(Softmax, AgreesWithTheDefinitionInEveryDtype) {
  for (const Shape& shape : kShapes)
    for (const DType dtype : testing::kFloatingTypes) {
      SCOPED_TRACE(shape.to_string() + std::string(name_of(dtype)));
      const Tensor x = random_tensor(shape, 1, -4, 4, dtype);
      const std::size_t width = static_cast<std::size_t>(shape.dim(-1));
      const std::vector<double> in = values_of(x), logs = log_sums(in, width);
      std::vector<double> p, log_p;
      for (std::size_t i = 0; i < in.size(); ++i) {
        log_p.push_back(in[i] - logs[i / width]);
        p.push_back(std::exp(log_p.back()));
      }
      expect_tensor(nn::softmax(x), dtype, shape, p, tolerance_of(dtype));
      expect_tensor(nn::softmax(x, {.axis = -1}), dtype, shape, p, tolerance_of(dtype));
      expect_tensor(nn::log_softmax(x), dtype, shape, log_p, tolerance_of(dtype));
      expect_tensor(nn::log_softmax(x, {.axis = -1}), dtype, shape, log_p, tolerance_of(dtype));
    }
}

TEST(Softmax, WorksAlongAnyAxis) {
  const Tensor x = random_tensor({2, 3, 4}, 2);
  const Tensor turned = transpose(nn::softmax(transpose(x, {0, 2, 1})), {0, 2, 1});
  expect_tensor(nn::softmax(x, 1), float64, {2, 3, 4}, values_of(turned), 1e-15);
  expect_tensor(nn::softmax(x, -2), float64, {2, 3, 4}, values_of(turned), 1e-15);
  expect_gradients([](const std::vector<Tensor>& in) { return nn::log_softmax(in[0], 0); }, {x});
  expect_error<InvalidArgumentError>([&] { nn::softmax(x, 3); },
                                     "[Softmax] expected an axis in [-3, 3), got 3");
  expect_error<InvalidArgumentError>([] { nn::softmax(constant(1.0)); },
                                     "[Softmax] expected logits of rank 1 or more");
  expect_error<InvalidArgumentError>(
      [] {
        nn::softmax(constant({1, 2}));
      },
      "[Softmax] expected a floating dtype, got int32");
}

TEST(Softmax, StaysFiniteForLargeLogits) {
  expect_tensor(nn::softmax(constant({1000.0, 0.0, 1000.0})), float32, {3}, {0.5, 0.0, 0.5});
  expect_tensor(nn::log_softmax(constant({-1000.0, 0.0})), float32, {2}, {-1000.0, 0.0});
  const Tensor nan =
      nn::softmax(constant(std::vector<float>{1.0f, std::numeric_limits<float>::quiet_NaN()}));
  for (double value : values_of(nan)) EXPECT_TRUE(std::isnan(value));
}

TEST(Softmax, HasRightGradients) {
  const Tensor x = random_tensor({3, 5}, 3);
  const auto softmax = [](const std::vector<Tensor>& in) { return nn::softmax(in[0]); };
  const auto log_softmax = [](const std::vector<Tensor>& in) { return nn::log_softmax(in[0]); };
  expect_gradients(softmax, {x});
  expect_gradients(log_softmax, {x});
  expect_second_order(softmax, {x});
  expect_second_order(log_softmax, {x});
  const Tensor wide = random_tensor({70, 33}, 4);
  expect_other_dtypes_like_float64(softmax, {wide});
  expect_other_dtypes_like_float64(log_softmax, {wide}, 40);
}

TEST(SparseSoftmaxCrossEntropy, AgreesWithTheDefinition) {
  for (const Shape& shape : kShapes)
    for (const DType dtype : testing::kFloatingTypes) {
      SCOPED_TRACE(shape.to_string() + std::string(name_of(dtype)));
      const Tensor x = random_tensor(shape, 5, -4, 4, dtype);
      const std::size_t width = static_cast<std::size_t>(shape.dim(-1));
      const std::vector<double> in = values_of(x), logs = log_sums(in, width);
      std::vector<std::int64_t> labels;
      std::vector<double> expected;
      for (std::size_t row = 0; row < logs.size(); ++row) {
        labels.push_back(static_cast<std::int64_t>(row * 7919 % width));
        expected.push_back(logs[row] - in[row * width + static_cast<std::size_t>(labels.back())]);
      }
      Dims rows;
      for (int i = 0; i + 1 < shape.rank(); ++i) rows.push_back(shape[i]);
      const Tensor y = constant(labels, {.shape = Shape(rows)});
      expect_tensor(nn::sparse_softmax_cross_entropy(y, x), dtype, Shape(rows), expected,
                    tolerance_of(dtype));
    }
}

TEST(SparseSoftmaxCrossEntropy, HasRightGradients) {
  const auto f = [](const std::vector<Tensor>& in) {
    return nn::sparse_softmax_cross_entropy(in[1], in[0]);
  };
  for (const DType dtype : {int32, int64, uint8}) {
    const Tensor labels = constant({2, 0, 4}, {.dtype = dtype});
    expect_gradients(f, {random_tensor({3, 5}, 6), labels});
  }
  expect_second_order(f, {random_tensor({3, 5}, 7), constant({2, 0, 4})});
  std::vector<std::int64_t> labels;
  for (std::int64_t i = 0; i < 130; ++i) labels.push_back(i % 10);
  expect_other_dtypes_like_float64(f, {random_tensor({130, 10}, 8), constant(labels)});
  expect_other_dtypes_like_float64(f, {random_tensor({2, 5000}, 9), constant({4999, 2048})});
}

TEST(SparseSoftmaxCrossEntropy, NamesALabelOutOfRange) {
  const Tensor x = ones({2, 3});
  expect_error<InvalidArgumentError>(
      [&] {
        nn::sparse_softmax_cross_entropy(constant({1, 3}), x).to_vector<float>();
      },
      "label 3 at position 1 is outside the valid range [0, 3)");
  expect_error<InvalidArgumentError>(
      [&] {
        nn::sparse_softmax_cross_entropy(constant({-1, 0}), x).to_vector<float>();
      },
      "label -1 at position 0 is outside the valid range [0, 3)");
  expect_error<InvalidArgumentError>(
      [&] {
        nn::sparse_softmax_cross_entropy(constant({1, 2, 0}), x);
      },
      "expected labels of shape (2,) for logits of shape (2, 3), got (3,)");
  expect_error<InvalidArgumentError>([&] { nn::sparse_softmax_cross_entropy(ones({2}), x); },
                                     "expected labels of an integer dtype, got float32");
}

TEST(SoftmaxCrossEntropy, AgreesWithTheDefinitionAndItsGradients) {
  const Tensor x = random_tensor({4, 6}, 10), z = random_tensor({4, 6}, 11, 0, 1);
  const auto f = [](const std::vector<Tensor>& in) {
    return nn::softmax_cross_entropy(in[1], in[0]);
  };
  expect_tensor(f({x, z}), float64, {4},
                values_of(-reduce_sum(z * nn::log_softmax(x), {.axis = Dims{-1}})), 1e-13);
  expect_gradients(f, {x, z});
  expect_second_order(f, {x, z});
  expect_other_dtypes_like_float64(
      f, {random_tensor({70, 12}, 12, -1, 1), random_tensor({70, 12}, 13, 0, 0.2)}, 20);
  expect_error<InvalidArgumentError>(
      [&] {
        nn::softmax_cross_entropy(ones({4, 5}), ones({4, 6}));
      },
      "expected labels like the logits, float32 (4, 6), got float32 (4, 5)");
}

TEST(SigmoidCrossEntropy, AgreesWithTheDefinitionAndItsGradients) {
  const Tensor x = random_tensor({5, 9}, 14, -6, 6), z = random_tensor({5, 9}, 15, 0, 1);
  const auto f = [](const std::vector<Tensor>& in) {
    return nn::sigmoid_cross_entropy(in[1], in[0]);
  };
  std::vector<double> expected;
  const std::vector<double> logits = values_of(x), labels = values_of(z);
  for (std::size_t i = 0; i < logits.size(); ++i) {
    const double p = 1.0 / (1.0 + std::exp(-logits[i]));
    expected.push_back(-labels[i] * std::log(p) - (1.0 - labels[i]) * std::log(1.0 - p));
  }
  expect_tensor(f({x, z}), float64, {5, 9}, expected, 1e-12);
  expect_gradients(f, {x, z});
  expect_second_order(f, {x, z});
  expect_other_dtypes_like_float64(f, {x, z});
  expect_tensor(f({constant({1000.0, -1000.0}), constant({1.0, 1.0})}), float32, {2},
                {0.0, 1000.0});
}

}  // namespace
}  // namespace tandem::nn_softmax_test
