// PyTorch's functions and losses.
#include "tandem/functional.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "support/gradient_check.h"
#include "support/tensors.h"
#include "tandem/array.h"
#include "tandem/autodiff.h"
#include "tandem/creation.h"
#include "tandem/function.h"
#include "tandem/math.h"
#include "tandem/nn.h"
#include "tandem/random.h"

namespace tandem::functional_test {
namespace {

namespace F = nn::functional;
using testing::expect_error;
using testing::expect_tensor;
using testing::random_tensor;
using testing::values_of;

constexpr double kTolerance = 1e-9;
constexpr std::size_t kRows = 4, kClasses = 3;

struct Logits {
  Tensor input = random_tensor({kRows, kClasses}, 1), labels = constant({2, 0, 1, 1});
  std::vector<double> x = values_of(input);
  std::vector<std::size_t> y = {2, 0, 1, 1};
  double log_softmax(std::size_t row, std::size_t c) const {
    double sum = 0.0;
    for (std::size_t k = 0; k < kClasses; ++k) sum += std::exp(x[row * kClasses + k]);
    return x[row * kClasses + c] - std::log(sum);
  }
};

TEST(Functional, AttentionHasTheLayoutOfPyTorch) {
  const Tensor q = random::normal({2, 3, 4, 5}), k = random::normal({2, 3, 6, 5}),
               v = random::normal({2, 3, 6, 7});
  const Tensor scores = matmul(q, k.transpose(2, 3)) * (1.0 / std::sqrt(5.0));
  const auto expect_same = [](const Tensor& a, const Tensor& b) {
    ASSERT_EQ(a.shape(), b.shape());
    const std::vector<float> x = a.to_vector<float>(), y = b.to_vector<float>();
    for (std::size_t i = 0; i < x.size(); ++i) EXPECT_NEAR(x[i], y[i], 1e-5);
  };
  namespace F = nn::functional;
  expect_same(F::scaled_dot_product_attention(q, k, v), matmul(nn::softmax(scores), v));
  const Tensor later = tril(ones({4, 6})) == 0.0;
  expect_same(F::scaled_dot_product_attention(q, k, v, {.is_causal = true}),
              matmul(nn::softmax(scores.masked_fill(later, -1e9)), v));
  EXPECT_THROW(static_cast<void>(F::scaled_dot_product_attention(q[0], k[0], v[0])), ShapeError);
}

TEST(Functional, OneHotIsOfIntegers) {
  const Tensor x = nn::functional::one_hot(constant({2, 0}), 3);
  EXPECT_EQ(x.dtype(), int64);
  EXPECT_EQ(x.to_vector<std::int64_t>(), (std::vector<std::int64_t>{0, 0, 1, 1, 0, 0}));
}

TEST(Functional, CrossEntropyOfClassIndices) {
  const Logits data;
  std::vector<double> each;
  double sum = 0.0, smooth = 0.0;
  for (std::size_t row = 0; row < kRows; ++row) {
    each.push_back(-data.log_softmax(row, data.y[row]));
    sum += each.back();
    for (std::size_t c = 0; c < kClasses; ++c)
      smooth -= (0.2 / kClasses + (c == data.y[row] ? 0.8 : 0.0)) * data.log_softmax(row, c);
  }
  EXPECT_NEAR(F::cross_entropy(data.input, data.labels).item(), sum / kRows, kTolerance);
  EXPECT_NEAR(F::cross_entropy(data.input, data.labels, {.reduction = "sum"}).item(), sum,
              kTolerance);
  expect_tensor(F::cross_entropy(data.input, data.labels, {.reduction = "none"}), float64, {kRows},
                each, kTolerance);
  EXPECT_NEAR(F::cross_entropy(data.input, data.labels, {.label_smoothing = 0.2}).item(),
              smooth / kRows, kTolerance);
  // The same as probabilities.
  const Tensor dense = one_hot(data.labels, kClasses, {.dtype = float64});
  EXPECT_NEAR(F::cross_entropy(data.input, dense).item(), sum / kRows, kTolerance);
  EXPECT_NEAR(F::cross_entropy(data.input, dense, {.label_smoothing = 0.2}).item(), smooth / kRows,
              kTolerance);
  EXPECT_NEAR(F::nll_loss(F::log_softmax(data.input, 1), data.labels).item(), sum / kRows,
              kTolerance);
}

// The results of cross_entropy for each row, and the weights that divide its mean.
struct ExpectedCrossEntropy {
  std::vector<double> each;
  double sum = 0.0, weights = 0.0;
};
ExpectedCrossEntropy cross_entropy_with(const Logits& data, const std::vector<double>& weight,
                                        std::size_t ignored, double smoothing) {
  ExpectedCrossEntropy expected;
  for (std::size_t row = 0; row < kRows; ++row) {
    const std::size_t y = data.y[row];
    double loss = -(1.0 - smoothing) * weight[y] * data.log_softmax(row, y);
    for (std::size_t c = 0; c < kClasses; ++c)
      loss -= smoothing / kClasses * weight[c] * data.log_softmax(row, c);
    expected.each.push_back(y == ignored ? 0.0 : loss);
    expected.sum += expected.each.back();
    expected.weights += y == ignored ? 0.0 : weight[y];
  }
  return expected;
}

TEST(Functional, CrossEntropyWeighsClassesAndIgnoresLabels) {
  const Logits data;
  const std::vector<double> weight = {0.5, 2.0, 3.0};
  const Tensor w = constant(weight, {.dtype = float64});
  for (const std::size_t ignored : {std::size_t{0}, std::size_t{1}, std::size_t{9}})
    for (const double smoothing : {0.0, 0.3}) {
      const auto expected = cross_entropy_with(data, weight, ignored, smoothing);
      F::CrossEntropyOptions options{.weight = w,
                                     .ignore_index = static_cast<std::int64_t>(ignored),
                                     .label_smoothing = smoothing};
      EXPECT_NEAR(F::cross_entropy(data.input, data.labels, options).item(),
                  expected.sum / expected.weights, kTolerance);
      EXPECT_NEAR(nn::CrossEntropyLoss(options)(data.input, data.labels).item(),
                  expected.sum / expected.weights, kTolerance);
      const losses::Loss loss = nn::CrossEntropyLoss(options);
      EXPECT_NEAR(loss(data.labels, data.input).item(), expected.sum / expected.weights,
                  kTolerance);
      options.reduction = "sum";
      EXPECT_NEAR(F::cross_entropy(data.input, data.labels, options).item(), expected.sum,
                  kTolerance);
      options.reduction = "none";
      expect_tensor(F::cross_entropy(data.input, data.labels, options), float64, {kRows},
                    expected.each, kTolerance);
      if (smoothing == 0.0)
        expect_tensor(
            F::nll_loss(nn::log_softmax(data.input), data.labels,
                        {.weight = w, .ignore_index = options.ignore_index, .reduction = "none"}),
            float64, {kRows}, expected.each, kTolerance);
    }
}

TEST(Functional, LabelsOfMinus100DoNotCount) {
  const Logits data;
  const Tensor labels = constant({2, -100, 1, -100}, {.dtype = int64});
  const double expected = -(data.log_softmax(0, 2) + data.log_softmax(2, 1)) / 2.0;
  EXPECT_NEAR(F::cross_entropy(data.input, labels).item(), expected, kTolerance);
  EXPECT_NEAR(F::nll_loss(nn::log_softmax(data.input), labels).item(), expected, kTolerance);
  const Tensor none = full({4}, -100, {.dtype = int64});
  EXPECT_TRUE(std::isnan(F::cross_entropy(data.input, none).item()));
  EXPECT_EQ(F::cross_entropy(data.input, none, {.reduction = "sum"}).item(), 0.0);
}

// More targets than the largest number of float16.
TEST(Functional, CrossEntropyCountsManyTargetsOfFloat16) {
  const Tensor scores = zeros({70'000, 2}, {.dtype = float16});
  const Tensor labels = zeros({70'000}, {.dtype = int64});
  EXPECT_NEAR(cast(F::cross_entropy(scores, labels), float32).item(), std::log(2.0), 1e-3);
}

TEST(Functional, CrossEntropyOfProbabilitiesWeighsClasses) {
  const Logits data;
  const Tensor p = nn::softmax(random_tensor({kRows, kClasses}, 5));
  const std::vector<double> weight = {0.5, 2.0, 3.0}, t = values_of(p);
  double sum = 0.0;
  for (std::size_t row = 0; row < kRows; ++row)
    for (std::size_t c = 0; c < kClasses; ++c)
      sum -= (0.8 * t[row * kClasses + c] + 0.2 / kClasses) * weight[c] * data.log_softmax(row, c);
  EXPECT_NEAR(
      F::cross_entropy(data.input, p,
                       {.weight = constant(weight, {.dtype = float64}), .label_smoothing = 0.2})
          .item(),
      sum / kRows, kTolerance);
}

TEST(Functional, ClassesAreTheSecondAxisOfImages) {
  const Tensor images = random_tensor({2, 3, 4, 5}, 1);
  const Tensor labels = random::uniform_int({2, 4, 5}, 0, 3, {.dtype = int64});
  const Tensor rows = reshape(transpose(images, {0, 2, 3, 1}), {40, 3});
  const F::CrossEntropyOptions options{.weight = constant({0.5, 2.0, 3.0}, {.dtype = float64}),
                                       .ignore_index = 1,
                                       .label_smoothing = 0.1};
  EXPECT_NEAR(F::cross_entropy(images, labels, options).item(),
              F::cross_entropy(rows, reshape(labels, {40}), options).item(), kTolerance);
  EXPECT_NEAR(F::cross_entropy(images, nn::softmax(images, 1)).item(),
              F::cross_entropy(rows, nn::softmax(rows)).item(), kTolerance);
  EXPECT_EQ(F::nll_loss(images, labels, {.reduction = "none"}).shape(), (Shape{2, 4, 5}));
}

TEST(Functional, GradientsOfWeightedLossesAreThoseOfDifferences) {
  const Tensor labels = constant({2, -100, 1, 0}, {.dtype = int64});
  const Tensor weight = constant({0.5, 2.0, 3.0}, {.dtype = float64});
  testing::expect_gradients(
      [&](const std::vector<Tensor>& x) {
        return F::cross_entropy(x[0], labels, {.weight = weight, .label_smoothing = 0.2});
      },
      {random_tensor({4, 3}, 1)});
  testing::expect_gradients(
      [&](const std::vector<Tensor>& x) { return F::nll_loss(x[0], labels, {.weight = weight}); },
      {random_tensor({4, 3}, 1)});
  testing::expect_gradients(
      [&](const std::vector<Tensor>& x) {
        return F::binary_cross_entropy_with_logits(x[0], sigmoid(x[1]), {.pos_weight = weight});
      },
      {random_tensor({4, 3}, 1), random_tensor({4, 3}, 2)});
}

TEST(Functional, WeightedLossesOfUnknownBatchesEqualThoseOfKnownOnes) {
  const Tensor weight = constant({0.5f, 2.0f, 3.0f});
  for (const double smoothing : {0.0, 0.2}) {
    const auto loss = [&](const Tensor& input, const Tensor& labels) {
      return F::cross_entropy(input, labels,
                              {.weight = weight, .ignore_index = 1, .label_smoothing = smoothing});
    };
    const auto traced = function(loss, {.input_signature = {{{-1, 3}, float32}, {{-1}, int64}}});
    for (const std::int64_t rows : {4, 7}) {
      const Tensor x = random::normal({rows, 3});
      const Tensor labels = random::uniform_int({rows}, 0, 3, {.dtype = int64});
      EXPECT_NEAR(traced(x, labels).item(), loss(x, labels).item(), 1e-6);
    }
  }
}

TEST(Functional, LossesOf16BitsAreComputedInFloat32) {
  const Tensor x = cast(random::normal({6, 3}), bfloat16);
  const Tensor labels = constant({2, 0, 1, 1, -100, 2}, {.dtype = int64});
  const F::CrossEntropyOptions options{.weight = constant({0.5f, 2.0f, 3.0f}),
                                       .label_smoothing = 0.1};
  const Tensor loss = F::cross_entropy(x, labels, options);
  EXPECT_EQ(loss.dtype(), float32);
  EXPECT_EQ(loss.item(), F::cross_entropy(cast(x, float32), labels, options).item());
}

TEST(Functional, BinaryCrossEntropyWeighsElements) {
  const Tensor logits = random_tensor({4, 3}, 3), targets = random_tensor({4, 3}, 4, 0.0, 1.0);
  const Tensor weight = random_tensor({3}, 5, 0.1, 2.0), positive = random_tensor({3}, 6, 0.1, 3.0);
  const Tensor p = sigmoid(logits);
  const Tensor expected =
      negative(positive * targets * log(p) + subtract(1.0, targets) * log(subtract(1.0, p))) *
      weight;
  const F::LogitsCrossEntropyOptions options{.weight = weight, .pos_weight = positive};
  EXPECT_NEAR(F::binary_cross_entropy_with_logits(logits, targets, options).item(),
              reduce_mean(expected).item(), kTolerance);
  EXPECT_NEAR(nn::BCEWithLogitsLoss(options)(logits, targets).item(), reduce_mean(expected).item(),
              kTolerance);
  EXPECT_NEAR(
      nn::BCELoss({.weight = weight})(p, targets).item(),
      reduce_mean(F::binary_cross_entropy(p, targets, {.reduction = "none"}) * weight).item(),
      kTolerance);
  // Logits far from 0.
  const Tensor far = constant({-800.0, 800.0}, {.dtype = float64});
  expect_tensor(F::binary_cross_entropy_with_logits(
                    far, constant({1.0, 0.0}, {.dtype = float64}),
                    {.reduction = "none", .pos_weight = constant({2.0, 2.0}, {.dtype = float64})}),
                float64, {2}, {1600.0, 800.0}, kTolerance);
}

TEST(Functional, RegressionLossesAreMeansOverAllElements) {
  const Tensor input = random_tensor({4, 3}, 1), target = random_tensor({4, 3}, 2);
  const auto x = values_of(input), y = values_of(target);
  const auto mean = [&](const auto& f) {
    double sum = 0.0;
    for (std::size_t i = 0; i < x.size(); ++i) sum += f(std::abs(x[i] - y[i]));
    return sum / static_cast<double>(x.size());
  };
  EXPECT_NEAR(F::mse_loss(input, target).item(), mean([](double d) { return d * d; }), kTolerance);
  EXPECT_NEAR(F::l1_loss(input, target).item(), mean([](double d) { return d; }), kTolerance);
  EXPECT_NEAR(F::smooth_l1_loss(input, target, {.beta = 0.5}).item(),
              mean([](double d) { return d < 0.5 ? d * d / (2 * 0.5) : d - 0.25; }), kTolerance);
  EXPECT_NEAR(F::huber_loss(input, target, {.delta = 0.5}).item(),
              mean([](double d) { return d < 0.5 ? d * d / 2 : 0.5 * (d - 0.25); }), kTolerance);
}

TEST(Functional, BinaryCrossEntropyLimitsLogarithms) {
  const Tensor p = constant({0.0, 1.0, 0.25}, {.dtype = float64});
  const Tensor t = constant({1.0, 1.0, 0.0}, {.dtype = float64});
  expect_tensor(F::binary_cross_entropy(p, t, {.reduction = "none"}), float64, {3},
                {100.0, 0.0, -std::log(0.75)}, kTolerance);
  const Tensor logits = random_tensor({5}, 3), targets = random_tensor({5}, 4, 0.0, 1.0);
  EXPECT_NEAR(F::binary_cross_entropy_with_logits(logits, targets).item(),
              F::binary_cross_entropy(sigmoid(logits), targets).item(), kTolerance);
}

TEST(Functional, BinaryCrossEntropyOfCertaintiesHasFiniteGradients) {
  Tensor p = constant({0.0, 1.0}, {.dtype = float64});
  p.set_requires_grad();
  F::binary_cross_entropy(p, constant({1.0, 1.0}, {.dtype = float64})).backward();
  for (double g : values_of(p.grad())) EXPECT_TRUE(std::isfinite(g));
}

TEST(Functional, KlDivergenceTakesLogarithms) {
  const Tensor q = constant({{0.5, 0.5}, {0.25, 0.75}}, {.dtype = float64});
  const Tensor p = constant({{1.0, 0.0}, {0.5, 0.5}}, {.dtype = float64});
  const double sum = std::log(1.0 / 0.5) + 0.5 * std::log(0.5 / 0.25) + 0.5 * std::log(0.5 / 0.75);
  EXPECT_NEAR(F::kl_div(log(q), p).item(), sum / 4.0, kTolerance);
  EXPECT_NEAR(F::kl_div(log(q), p, {.reduction = "batchmean"}).item(), sum / 2.0, kTolerance);
  EXPECT_NEAR(F::kl_div(log(q), log(q), {.reduction = "sum", .log_target = true}).item(), 0.0,
              kTolerance);
}

TEST(Functional, LinearTakesPyTorchsWeight) {
  const Tensor x = random_tensor({2, 3}, 1), weight = random_tensor({4, 3}, 2),
               bias = random_tensor({4}, 3);
  expect_tensor(F::linear(x, weight, bias), float64, {2, 4},
                values_of(matmul(x, transpose(weight)) + bias), kTolerance);
}

TEST(Functional, NormalizesAlongAnAxis) {
  const Tensor x = constant({{3.0, 4.0}, {0.0, 0.0}}, {.dtype = float64});
  expect_tensor(F::normalize(x), float64, {2, 2}, {0.6, 0.8, 0.0, 0.0}, kTolerance);
  expect_tensor(F::normalize(x, 1.0), float64, {2, 2}, {3.0 / 7.0, 4.0 / 7.0, 0.0, 0.0},
                kTolerance);
}

TEST(Functional, ActivationsHavePyTorchsDefaults) {
  const Tensor x = constant({-2.0, 3.0}, {.dtype = float64});
  expect_tensor(F::leaky_relu(x), float64, {2}, {-0.02, 3.0}, kTolerance);
  EXPECT_TRUE(F::dropout(x, 0.5, /*training=*/false).same_as(x));
}

TEST(Functional, MistakesAreNamed) {
  const Tensor logits = random_tensor({4, 3}, 1), labels = constant({2, 0, 1, 1});
  expect_error<InvalidArgumentError>([&] { static_cast<void>(F::cross_entropy(labels, logits)); },
                                     "the order is (input, target)");
  expect_error<InvalidArgumentError>(
      [&] {
        static_cast<void>(F::mse_loss(logits, random_tensor({4, 1}, 2)));
      },
      "[mse_loss] expected a target of the input's shape (4, 3), got (4, 1)");
  expect_error<InvalidArgumentError>(
      [&] {
        static_cast<void>(F::cross_entropy(random_tensor({2, 3, 4}, 1), labels));
      },
      "[cross_entropy] expected class indices of shape (2, 4) (the input's without its second "
      "axis");
  expect_error<InvalidArgumentError>(
      [&] { static_cast<void>(F::cross_entropy(logits, labels, {.weight = ones({2})})); },
      "[cross_entropy] expected a weight of shape (3,), one per class, got (2,)");
  expect_error<InvalidArgumentError>(
      [&] {
        static_cast<void>(F::cross_entropy(logits, nn::softmax(logits), {.ignore_index = 0}));
      },
      "expected class indices with ignore_index 0, got probabilities");
  expect_error<InvalidArgumentError>(
      [&] {
        static_cast<void>(F::cross_entropy(logits, constant({2, 0, 7, 1})).item());
      },
      "7");
  expect_error<InvalidArgumentError>(
      [&] {
        static_cast<void>(F::nll_loss(logits, constant({2, 0, -1, 1})).item());
      },
      "-1");
  expect_error<InvalidArgumentError>(
      [&] {
        static_cast<void>(F::binary_cross_entropy(logits, logits, {.weight = ones({2, 4, 3})}));
      },
      "[binary_cross_entropy] expected a weight that broadcasts to (4, 3), got (2, 4, 3)");
  expect_error<InvalidArgumentError>(
      [&] { static_cast<void>(F::mse_loss(logits, logits, {.reduction = "avg"})); }, "got 'avg'");
}

TEST(Functional, LossObjectsTakeTheInputFirst) {
  const Logits data;
  EXPECT_EQ(nn::CrossEntropyLoss()(data.input, data.labels).item(),
            F::cross_entropy(data.input, data.labels).item());
  EXPECT_EQ(nn::MSELoss({.reduction = "sum"})(data.input, data.input * 2.0).item(),
            F::mse_loss(data.input, data.input * 2.0, {.reduction = "sum"}).item());
  // As a losses::Loss, the arguments are in Keras's order.
  const losses::Loss loss = nn::CrossEntropyLoss();
  EXPECT_NEAR(loss(data.labels, data.input).item(),
              F::cross_entropy(data.input, data.labels).item(), kTolerance);
}

}  // namespace
}  // namespace tandem::functional_test
