#include <gtest/gtest.h>

#include <cmath>

#include "ops/nn/batch_norm.h"
#include "ops/nn_reference.h"
#include "support/thread_counts.h"
#include "tandem/math.h"
#include "tandem/nn.h"

namespace tandem::nn_norm_test {
namespace {

using namespace testing;

struct Moments {
  std::vector<double> mean, variance;
};

Moments moments_of(const std::vector<double>& x, std::size_t channels) {
  Moments m{std::vector<double>(channels), std::vector<double>(channels)};
  const double rows = static_cast<double>(x.size() / channels);
  for (std::size_t i = 0; i < x.size(); ++i) m.mean[i % channels] += x[i] / rows;
  for (std::size_t i = 0; i < x.size(); ++i)
    m.variance[i % channels] += std::pow(x[i] - m.mean[i % channels], 2) / rows;
  return m;
}

std::vector<double> normalised(const std::vector<double>& x, const Moments& m,
                               const std::vector<double>& gamma, const std::vector<double>& beta,
                               double epsilon) {
  std::vector<double> y;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const std::size_t c = i % gamma.size();
    y.push_back((x[i] - m.mean[c]) / std::sqrt(m.variance[c] + epsilon) * gamma[c] + beta[c]);
  }
  return y;
}

TEST(BatchNorm, NormalisesByTheBatchInEveryDtype) {
  for (const Shape& shape :
       {Shape{2, 1}, Shape{6, 3}, Shape{5000, 3}, Shape{4, 5, 6, 16}, Shape{1300, 70}})
    for (const DType dtype : testing::kFloatingTypes) {
      SCOPED_TRACE(shape.to_string() + std::string(name_of(dtype)));
      const std::int64_t channels = shape.dim(-1);
      const DType parameters = dtype == float64 ? float64 : float32;
      const Tensor x = random_tensor(shape, 1, -1, 3, dtype),
                   gamma = random_tensor({channels}, 2, 0.5, 1.5, parameters),
                   beta = random_tensor({channels}, 3, -1, 1, parameters);
      const Moments m = moments_of(values_of(x), static_cast<std::size_t>(channels));
      const nn::BatchNormResult result = nn::batch_norm_training(x, gamma, beta, 1e-2);
      // The reference's own sums are accurate to about 1e-13.
      const double tolerance = dtype == float64 ? 1e-13 : 8 * testing::epsilon_of(dtype),
                   exact = dtype == float64 ? 1e-13 : 2e-6;
      expect_tensor(result.y, dtype, shape,
                    normalised(values_of(x), m, values_of(gamma), values_of(beta), 1e-2),
                    tolerance);
      expect_tensor(result.mean, parameters, {channels}, m.mean, exact);
      expect_tensor(result.variance, parameters, {channels}, m.variance, exact);
    }
}

TEST(BatchNorm, KeepsItsPrecisionFarFromZero) {
  // 1e4 with noise of 1e-1: a float32 sum of squares would lose the noise.
  std::vector<double> values;
  for (double value : testing::random_values(20000, 4)) values.push_back(1e4 + 0.1 * value);
  const Tensor x = constant(values, {.dtype = float32, .shape = {10000, 2}});
  const Moments m = moments_of(values_of(x), 2);
  const nn::BatchNormResult result = nn::batch_norm_training(x, ones({2}), zeros({2}), 1e-6);
  expect_tensor(cast(result.variance, float64) * 100.0, float64, {2},
                {m.variance[0] * 100, m.variance[1] * 100}, 1e-3);
}

TEST(BatchMoments, AreThoseOfTheBatchInEveryDtype) {
  for (const Shape& shape : {Shape{1, 1}, Shape{6, 3}, Shape{5000, 3}, Shape{4, 5, 6, 16}})
    for (const DType dtype : testing::kFloatingTypes) {
      SCOPED_TRACE(shape.to_string() + std::string(name_of(dtype)));
      const std::int64_t channels = shape.dim(-1);
      const DType statistics = dtype == float64 ? float64 : float32;
      const Tensor x = random_tensor(shape, 1, -1, 3, dtype);
      const Moments m = moments_of(values_of(x), static_cast<std::size_t>(channels));
      const BatchMoments result = batch_moments(x);
      const double exact = dtype == float64 ? 1e-13 : 2e-6;
      expect_tensor(result.rows, float64, Shape::scalar(),
                    {static_cast<double>(x.size() / channels)});
      expect_tensor(result.mean, statistics, {channels}, m.mean, exact);
      expect_tensor(result.variance, statistics, {channels}, m.variance, exact);
    }
}

TEST(BatchMoments, OfNoRowsAreZero) {
  const Tensor x = zeros({0, 4, 2});
  GradientTape tape;
  tape.watch(x);
  const BatchMoments result = batch_moments(x);
  expect_tensor(result.rows, float64, Shape::scalar(), {0});
  expect_tensor(result.mean, float32, {2}, {0, 0});
  expect_tensor(result.variance, float32, {2}, {0, 0});
  EXPECT_EQ(tape.gradient(result.mean + result.variance, x).shape(), x.shape());
}

TEST(BatchMoments, HaveRightGradients) {
  const std::vector<Tensor> in = {random_tensor({2, 3, 2}, 6)};
  const auto mean = [](const std::vector<Tensor>& in) { return batch_moments(in[0]).mean; };
  const auto both = [](const std::vector<Tensor>& in) {
    const BatchMoments m = batch_moments(in[0]);
    return m.mean * m.variance + m.variance;
  };
  expect_gradients(mean, in);
  expect_gradients(both, in);
  expect_second_order(both, in, {.tolerance = 1e-5});
  expect_error<InvalidArgumentError>(
      [] { batch_moments(ones({3})); },
      "[BatchNormMoments] expected data of rank 2 or more, got shape (3,)");
}

TEST(BatchNorm, DoesNotDependOnTheNumberOfThreads) {
  testing::expect_same_bits_with_any_team([] {
    const Tensor x = random_tensor({3000, 24}, 5, -1, 1, float32);
    GradientTape tape;
    tape.watch(x);
    const Tensor y = nn::batch_norm_training(x, ones({24}), zeros({24})).y;
    return values_of(tape.gradient(y, x, {.output_gradient = x * x}));
  });
}

TEST(BatchNorm, HasRightGradients) {
  const std::vector<Tensor> in = {random_tensor({2, 3, 2, 3}, 6), random_tensor({3}, 7),
                                  random_tensor({3}, 8)};
  const auto f = [](const std::vector<Tensor>& in) {
    return nn::batch_norm_training(in[0], in[1], in[2], 1e-2).y;
  };
  expect_gradients(f, in);
  expect_second_order(f, in);
  // Also through the moments.
  expect_gradients(
      [](const std::vector<Tensor>& in) {
        const nn::BatchNormResult r = nn::batch_norm_training(in[0], in[1], in[2], 1e-2);
        return r.y * r.mean + r.variance;
      },
      in);
  expect_gradients(
      [](const std::vector<Tensor>& in) {
        return nn::batch_norm_training(in[0], in[1], in[2]).variance;
      },
      {in[0], in[1], in[2]});
}

TEST(BatchNorm, OtherDtypesHaveTheGradientsOfFloat64) {
  const auto f = [](const std::vector<Tensor>& in) {
    const DType parameters = in[0].dtype() == float64 ? float64 : float32;
    return nn::batch_norm_training(in[0], ones({20}, {.dtype = parameters}),
                                   zeros({20}, {.dtype = parameters}), 1e-2)
        .y;
  };
  const std::vector<Tensor> in = {random_tensor({900, 20}, 9)};
  expect_like_float64(f, in, float32, 1e-5);
  expect_like_float64(f, in, float16, 8e-3);
  expect_like_float64(f, in, bfloat16, 6e-2);
  const auto with_parameters = [](const std::vector<Tensor>& in) {
    return nn::batch_norm_training(in[0], in[1], in[2], 1e-2).y;
  };
  const std::vector<Tensor> all = {random_tensor({900, 20}, 9), random_tensor({20}, 10),
                                   random_tensor({20}, 11)};
  // Gamma's gradient is a sum of 900 terms of about 1 that nearly cancel: 900 roundings of 2^-24.
  expect_like_float64(with_parameters, all, float32, 5e-5);
}

TEST(BatchNorm, InferenceUsesTheGivenMoments) {
  const Tensor x = random_tensor({4, 5, 3}, 12), gamma = random_tensor({3}, 13),
               beta = random_tensor({3}, 14), mean = random_tensor({3}, 15),
               variance = random_tensor({3}, 16, 0.5, 2);
  const auto f = [](const std::vector<Tensor>& in) {
    return nn::batch_norm_inference(in[0], in[1], in[2], in[3], in[4], 1e-2);
  };
  expect_tensor(f({x, gamma, beta, mean, variance}), float64, {4, 5, 3},
                normalised(values_of(x), {values_of(mean), values_of(variance)}, values_of(gamma),
                           values_of(beta), 1e-2),
                1e-13);
  expect_gradients(f, {x, gamma, beta, mean, variance});
  testing::expect_other_dtypes_like_float64(f, {x, gamma, beta, mean, variance}, 60);
  // With constant moments, a kernel computes the gradients.
  const auto with_constants = [&](const std::vector<Tensor>& in) {
    return nn::batch_norm_inference(in[0], in[1], in[2], cast(mean, in[0].dtype()),
                                    cast(variance, in[0].dtype()), 1e-2);
  };
  expect_gradients(with_constants, {x, gamma, beta});
  expect_second_order(with_constants, {x, gamma, beta});
  testing::expect_other_dtypes_like_float64(with_constants, {x, gamma, beta}, 60);
  expect_tensor(f({ones({0, 3}), ones({3}), ones({3}), ones({3}), ones({3})}), float32, {0, 3}, {});
}

TEST(BatchNorm, AcceptsNoRows) {
  const nn::BatchNormResult result = nn::batch_norm_training(ones({0, 3}), ones({3}), ones({3}));
  expect_tensor(result.y, float32, {0, 3}, {});
  expect_tensor(result.mean, float32, {3}, {0, 0, 0});
  expect_tensor(result.variance, float32, {3}, {0, 0, 0});
}

TEST(BatchNorm, ExplainsBadInput) {
  expect_error<InvalidArgumentError>(
      [] {
        nn::batch_norm_training(ones({4, 3}), ones({4}), ones({3}));
      },
      "expected parameters of shape (3,), got (4,)");
  expect_error<InvalidArgumentError>(
      [] {
        nn::batch_norm_training(ones({4, 0}), ones({0}), ones({0}));
      },
      "expected data to take moments of, got shape (4, 0)");
  expect_error<InvalidArgumentError>(
      [] { nn::batch_norm_training(ones({3}), ones({3}), ones({3})); },
      "expected data of rank 2 or more, got shape (3,)");
  expect_error<InvalidArgumentError>(
      [] {
        nn::batch_norm_training(ones({4, 3}), ones({3}, {.dtype = float64}),
                                ones({3}, {.dtype = float64}));
      },
      "expected parameters of dtype float32 for data of dtype float32, got float64");
}

TEST(LayerNorm, NormalisesRows) {
  for (const Shape& shape : {Shape{5}, Shape{7, 3}, Shape{2, 40, 33}, Shape{3, 500}, Shape{0, 4}})
    for (const DType dtype : testing::kFloatingTypes) {
      SCOPED_TRACE(shape.to_string() + std::string(name_of(dtype)));
      const std::size_t width = static_cast<std::size_t>(shape.dim(-1));
      const Tensor x = random_tensor(shape, 17, -1, 3, dtype),
                   gamma = random_tensor({shape.dim(-1)}, 18, 0.5, 1.5, dtype),
                   beta = random_tensor({shape.dim(-1)}, 19, -1, 1, dtype);
      const std::vector<double> in = values_of(x), scale = values_of(gamma),
                                shift = values_of(beta);
      std::vector<double> expected;
      for (std::size_t row = 0; row < in.size(); row += width) {
        double mean = 0, variance = 0;
        for (std::size_t j = 0; j < width; ++j) mean += in[row + j] / static_cast<double>(width);
        for (std::size_t j = 0; j < width; ++j)
          variance += std::pow(in[row + j] - mean, 2) / static_cast<double>(width);
        for (std::size_t j = 0; j < width; ++j)
          expected.push_back((in[row + j] - mean) / std::sqrt(variance + 1e-2) * scale[j] +
                             shift[j]);
      }
      expect_tensor(nn::layer_norm(x, gamma, beta, 1e-2), dtype, shape, expected,
                    8 * testing::epsilon_of(dtype));
    }
}

TEST(LayerNorm, HasRightGradients) {
  const auto f = [](const std::vector<Tensor>& in) {
    return nn::layer_norm(in[0], in[1], in[2], 1e-2);
  };
  const std::vector<Tensor> in = {random_tensor({2, 3, 4}, 20), random_tensor({4}, 21),
                                  random_tensor({4}, 22)};
  expect_gradients(f, in);
  expect_second_order(f, in);
  expect_gradients(f, {random_tensor({5}, 23), random_tensor({5}, 24), random_tensor({5}, 25)});
  const std::vector<Tensor> large = {random_tensor({300, 90}, 26, -1, 1),
                                     random_tensor({90}, 27, 0.5, 1.5), random_tensor({90}, 28)};
  expect_like_float64(f, large, float32, 2e-5);
  expect_like_float64(f, large, float16, 8e-3);
  expect_like_float64(f, large, bfloat16, 6e-2);
}

TEST(LayerNorm, ExplainsBadInput) {
  expect_error<InvalidArgumentError>(
      [] {
        nn::layer_norm(ones({4, 3}), ones({4}), ones({3}));
      },
      "[LayerNorm] expected parameters of shape (3,), got (4,)");
  expect_error<InvalidArgumentError>(
      [] {
        nn::layer_norm(ones({4, 0}), ones({0}), ones({0}));
      },
      "[LayerNorm] expected data with a last axis to normalise over");
}

}  // namespace
}  // namespace tandem::nn_norm_test
