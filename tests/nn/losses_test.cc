#include "tandem/losses.h"
#include "sync/gradient_sync.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "runtime/replica_context.h"
#include "support/gradient_check.h"
#include "support/tensors.h"
#include "tandem/array.h"
#include "tandem/math.h"
#include "tandem/nn.h"

namespace tandem::losses_test {
namespace {

using namespace testing;

using Values = std::vector<double>;

constexpr double kTolerance = 1e-12;

// The row means of a [rows, columns] table with the elements values(i).
template <class F>
Values row_means(std::size_t rows, std::size_t columns, const F& value) {
  Values means(rows, 0.0);
  for (std::size_t i = 0; i < rows * columns; ++i)
    means[i / columns] += value(i) / static_cast<double>(columns);
  return means;
}

struct Pair {
  Tensor y_true, y_pred;
  Values t, p;
};

Pair regression() {
  Pair pair{random_tensor({4, 3}, 1), random_tensor({4, 3}, 2), {}, {}};
  pair.t = values_of(pair.y_true);
  pair.p = values_of(pair.y_pred);
  return pair;
}

TEST(Losses, RegressionLossesEqualTheirFormulas) {
  const auto [y_true, y_pred, t, p] = regression();
  const auto error = [&](std::size_t i) { return std::abs(t[i] - p[i]); };
  expect_tensor(losses::mse(y_true, y_pred), float64, {4},
                row_means(4, 3, [&](auto i) { return error(i) * error(i); }), kTolerance);
  expect_tensor(losses::mae(y_true, y_pred), float64, {4}, row_means(4, 3, error), kTolerance);
  expect_tensor(losses::huber(y_true, y_pred, 0.7), float64, {4},
                row_means(4, 3,
                          [&](auto i) {
                            return error(i) <= 0.7 ? 0.5 * error(i) * error(i)
                                                   : 0.7 * error(i) - 0.5 * 0.7 * 0.7;
                          }),
                kTolerance);
}

TEST(Losses, HingeTakesBothKindsOfLabels) {
  const Tensor y_pred = random_tensor({3, 2}, 3);
  const Values p = values_of(y_pred);
  const Values signs{1, -1, -1, -1, 1, 1};
  const Values expected =
      row_means(3, 2, [&](auto i) { return std::max(0.0, 1.0 - signs[i] * p[i]); });
  expect_tensor(losses::hinge(constant(signs, {.dtype = float64, .shape = {3, 2}}), y_pred),
                float64, {3}, expected, kTolerance);
  expect_tensor(losses::hinge(constant({{1, 0}, {0, 0}, {1, 1}}), y_pred), float64, {3}, expected,
                kTolerance);
}

TEST(Losses, KlDivergenceEqualsItsFormula) {
  const Tensor y_true = constant(Values{0.2, 0.8, 0.0, 1.0}, {.shape = {2, 2}});
  const Tensor y_pred = constant(Values{0.5, 0.5, 0.25, 0.75}, {.shape = {2, 2}});
  const auto term = [](double t, double p) { return t * std::log(t / p); };
  expect_tensor(losses::kl_divergence(y_true, y_pred), float64, {2},
                {term(0.2, 0.5) + term(0.8, 0.5), term(1e-7, 0.25) + term(1.0, 0.75)}, kTolerance);
}

Values softmax(const Values& scores, std::size_t row, std::size_t classes) {
  Values p(scores.begin() + static_cast<std::ptrdiff_t>(row * classes),
           scores.begin() + static_cast<std::ptrdiff_t>((row + 1) * classes));
  double sum = 0.0;
  for (double& v : p) sum += v = std::exp(v);
  for (double& v : p) v /= sum;
  return p;
}

TEST(Losses, SparseCategoricalCrossentropyIsMinusTheLogProbabilityOfTheLabel) {
  const Tensor logits = random_tensor({3, 4}, 4);
  const std::vector<std::int64_t> labels{2, 0, 3};
  Values expected, probabilities;
  for (std::size_t row = 0; row < 3; ++row) {
    const Values p = softmax(values_of(logits), row, 4);
    expected.push_back(-std::log(p[static_cast<std::size_t>(labels[row])]));
    probabilities.insert(probabilities.end(), p.begin(), p.end());
  }
  const Tensor p = constant(probabilities, {.shape = {3, 4}});
  for (DType dtype : {int32, int64, uint8, float32})
    for (const Shape& shape : {Shape{3}, Shape{3, 1}}) {
      const Tensor y_true = constant(labels, {.dtype = dtype, .shape = shape});
      expect_tensor(losses::sparse_categorical_crossentropy(y_true, logits, {.from_logits = true}),
                    float64, {3}, expected, kTolerance);
      expect_tensor(losses::sparse_categorical_crossentropy(y_true, p), float64, {3}, expected,
                    1e-9);
    }
}

TEST(Losses, ProbabilitiesOfZeroGiveAFiniteLoss) {
  const Tensor p = constant(Values{0.0, 1.0}, {.shape = {1, 2}});
  expect_tensor(losses::sparse_categorical_crossentropy(constant({0}), p), float64, {1},
                {-std::log(1e-7)}, 1e-6);
  expect_tensor(losses::categorical_crossentropy(constant({{1, 0}}), p), float64, {1},
                {-std::log(1e-7)}, 1e-9);
  expect_tensor(losses::binary_crossentropy(constant({{1, 0}}), p), float64, {1}, {-std::log(1e-7)},
                1e-9);
}

TEST(Losses, CategoricalCrossentropySmoothsAndNormalises) {
  const Tensor logits = random_tensor({2, 3}, 5);
  const Values labels{0.0, 1.0, 0.0, 0.5, 0.25, 0.25};
  const Tensor y_true = constant(labels, {.dtype = float64, .shape = {2, 3}});
  for (double smoothing : {0.0, 0.1}) {
    Values expected(2, 0.0), unnormalised;
    for (std::size_t row = 0; row < 2; ++row) {
      const Values p = softmax(values_of(logits), row, 3);
      for (std::size_t c = 0; c < 3; ++c) {
        expected[row] -=
            (labels[row * 3 + c] * (1.0 - smoothing) + smoothing / 3.0) * std::log(p[c]);
        unnormalised.push_back(p[c] * 2.0);
      }
    }
    const losses::CrossentropyOptions from_logits{.from_logits = true,
                                                  .label_smoothing = smoothing};
    expect_tensor(losses::categorical_crossentropy(y_true, logits, from_logits), float64, {2},
                  expected, kTolerance);
    const Tensor p = constant(unnormalised, {.shape = {2, 3}});
    expect_tensor(losses::categorical_crossentropy(y_true, p, {.label_smoothing = smoothing}),
                  float64, {2}, expected, 1e-10);
  }
}

TEST(Losses, BinaryCrossentropyAgreesWithItsLogits) {
  const Tensor logits = random_tensor({3, 2}, 6);
  const Values x = values_of(logits), labels{1, 0, 0, 1, 1, 1};
  Values probabilities;
  for (double v : x) probabilities.push_back(1.0 / (1.0 + std::exp(-v)));
  const Tensor y_true = constant(labels, {.dtype = float64, .shape = {3, 2}});
  const Tensor p = constant(probabilities, {.shape = {3, 2}});
  for (double smoothing : {0.0, 0.2}) {
    const Values expected = row_means(3, 2, [&](auto i) {
      const double t = labels[i] * (1.0 - smoothing) + 0.5 * smoothing;
      return -t * std::log(probabilities[i]) - (1.0 - t) * std::log(1.0 - probabilities[i]);
    });
    expect_tensor(losses::binary_crossentropy(y_true, logits,
                                              {.from_logits = true, .label_smoothing = smoothing}),
                  float64, {3}, expected, kTolerance);
    expect_tensor(losses::binary_crossentropy(y_true, p, {.label_smoothing = smoothing}), float64,
                  {3}, expected, 1e-9);
  }
}

TEST(Losses, GradientsAreRight) {
  const Tensor y_true = random_tensor({3, 4}, 7, 0.1, 0.9), scores = random_tensor({3, 4}, 8);
  const Tensor p = random_tensor({3, 4}, 9, 0.1, 0.9), labels = constant({1, 3, 0});
  const auto check = [&](const Tensor& y_pred, const losses::Loss::Function& loss,
                         const Tensor& target) {
    expect_gradients([&](const std::vector<Tensor>& in) { return loss(target, in[0]); }, {y_pred});
  };
  check(scores, losses::mse, y_true);
  check(scores, losses::mae, y_true);
  check(
      scores, [](const Tensor& t, const Tensor& y) { return losses::huber(t, y); }, y_true);
  check(scores, losses::hinge, sign(random_tensor({3, 4}, 10)));
  check(p, losses::kl_divergence, y_true);
  for (bool from_logits : {false, true}) {
    const losses::CrossentropyOptions options{.from_logits = from_logits};
    const Tensor& y_pred = from_logits ? scores : p;
    check(
        y_pred,
        [&](const Tensor& t, const Tensor& y) {
          return losses::binary_crossentropy(t, y, options);
        },
        y_true);
    check(
        y_pred,
        [&](const Tensor& t, const Tensor& y) {
          return losses::categorical_crossentropy(t, y, options);
        },
        y_true);
    check(
        y_pred,
        [&](const Tensor& t, const Tensor& y) {
          return losses::sparse_categorical_crossentropy(t, y, options);
        },
        labels);
  }
}

TEST(Losses, TargetsOfAnotherRankOrDtypeAreAligned) {
  const Tensor y_pred = constant({{1.0}, {4.0}});
  expect_tensor(losses::mse(constant({0, 2}), y_pred), float32, {2}, {1, 4});
  expect_tensor(losses::mse(constant({{0.0}, {2.0}}), constant({1.0, 4.0})), float32, {2}, {1, 4});
}

TEST(Losses, ShapeErrorsShowBothShapes) {
  expect_error<InvalidArgumentError>(
      [] {
        losses::mse(constant({{1.0, 2.0}}), constant({{1.0, 2.0, 3.0}}));
      },
      "[mean_squared_error] expected y_true of y_pred's shape (1, 3), got (1, 2)");
  expect_error<InvalidArgumentError>(
      [] {
        losses::sparse_categorical_crossentropy(constant({1, 2}), constant({{1.0, 2.0, 3.0}}));
      },
      "[sparse_categorical_crossentropy] expected class indices of shape (1,) for y_pred of shape "
      "(1, 3), got (2,)");
  expect_error<InvalidArgumentError>(
      [] {
        losses::sparse_categorical_crossentropy(constant({7}), constant({{1.0, 2.0, 3.0}}),
                                                {.from_logits = true})
            .to_vector<float>();
      },
      "7");
}

// --- reduction ---

TEST(Losses, ReduceAsKerasDoes) {
  const auto [y_true, y_pred, t, p] = regression();
  const Values each = values_of(losses::mse(y_true, y_pred));
  const double sum = std::accumulate(each.begin(), each.end(), 0.0);
  using losses::MeanSquaredError;
  using losses::Reduction;
  EXPECT_NEAR(MeanSquaredError()(y_true, y_pred).item<double>(), sum / 4.0, kTolerance);
  EXPECT_NEAR(MeanSquaredError({Reduction::kSumOverBatchSize})(y_true, y_pred).item<double>(),
              sum / 4.0, kTolerance);
  EXPECT_NEAR(MeanSquaredError({Reduction::kSum})(y_true, y_pred).item<double>(), sum, kTolerance);
  expect_tensor(MeanSquaredError({Reduction::kNone})(y_true, y_pred), float64, {4}, each,
                kTolerance);
}

TEST(Losses, SampleWeightsMultiplyAndDoNotChangeTheDivisor) {
  const auto [y_true, y_pred, t, p] = regression();
  const Values each = values_of(losses::mse(y_true, y_pred));
  const double expected = (2.0 * each[0] + 0.5 * each[2]) / 4.0;
  for (const Shape& shape : {Shape{4}, Shape{4, 1}}) {
    const Tensor weights = constant({2.0, 0.0, 0.5, 0.0}, {.shape = shape});
    EXPECT_NEAR(losses::MeanSquaredError()(y_true, y_pred, weights).item<double>(), expected,
                kTolerance);
  }
  expect_error<InvalidArgumentError>(
      [&] { losses::MeanSquaredError()(y_true, y_pred, constant({1.0})); },
      "[mean_squared_error] expected one sample weight per example for values of shape (4,)");
}

TEST(Losses, AWeightCoversAllPositionsOfItsExample) {
  const Tensor logits = random_tensor({2, 3, 4}, 5);
  const Tensor labels = constant({{0, 1, 2}, {3, 0, 1}});
  const losses::Loss loss = losses::SparseCategoricalCrossentropy({.from_logits = true});
  const Values each = values_of(loss.per_example(labels, logits));
  const double expected = 3.0 * (each[3] + each[4] + each[5]) / 6.0;
  EXPECT_NEAR(loss(labels, logits, constant({0.0, 3.0})).item<double>(), expected, kTolerance);
}

class LoneContext final : public ReplicaContext {
 public:
  std::vector<Tensor> all_reduce(std::span<const Tensor> tensors, ReduceOp) override {
    return {tensors.begin(), tensors.end()};
  }
  std::unique_ptr<GradientSync> start_sync(const std::vector<Variable>&, ReduceOp) override {
    return nullptr;
  }
  void run_for_idle_replicas(const std::function<void()>&) override {}
  Tensor broadcast(const Tensor& tensor) override { return tensor; }
  void add_to_key(std::string&) const override {}
};

TEST(Losses, MeansAreRefusedInReplicas) {
  const auto [y_true, y_pred, t, p] = regression();
  LoneContext replica;
  const Scoped scope(context.replica, &replica);
  for (auto reduction : {losses::Reduction::kAuto, losses::Reduction::kSumOverBatchSize})
    expect_error<InvalidArgumentError>(
        [&, &truth = y_true, &guess = y_pred] {
          losses::MeanSquaredError({reduction})(truth, guess);
        },
        "Please use Reduction::kSum or Reduction::kNone for loss reduction");
  EXPECT_NO_THROW(losses::MeanSquaredError({losses::Reduction::kSum})(y_true, y_pred));
  EXPECT_NO_THROW(losses::MeanSquaredError().per_example(y_true, y_pred));
}

TEST(Losses, AreFoundByName) {
  EXPECT_EQ(losses::Loss("mse").name(), "mean_squared_error");
  EXPECT_EQ(losses::Loss(std::string("hinge")).name(), "hinge");
  expect_error<InvalidArgumentError>([] { losses::from_name("msee"); },
                                     "[losses] expected one of: sparse_categorical_crossentropy");
  expect_error<InvalidArgumentError>(
      [] {
        losses::Loss("msee")(zeros({2, 1}), zeros({2, 1}));
      },
      "got 'msee'");
  EXPECT_FALSE(losses::Loss().defined());
}

TEST(Losses, BadOptionsAreRefused) {
  const Tensor p = constant({{0.5, 0.5}}), labels = constant({0});
  expect_error<InvalidArgumentError>(
      [&] { losses::sparse_categorical_crossentropy(labels, p, {.label_smoothing = 0.1}); },
      "expected no label smoothing");
  expect_error<InvalidArgumentError>(
      [&] { losses::categorical_crossentropy(p, p, {.label_smoothing = 1.5}); },
      "[categorical_crossentropy] expected label smoothing in [0, 1], got 1.5");
  expect_error<InvalidArgumentError>([&] { losses::huber(p, p, 0.0); },
                                     "[huber] expected a positive delta");
}

// In 16-bit dtypes 1 - 1e-7 rounds to 1.
TEST(Losses, BinaryCrossentropyOfCertainSixteenBitProbabilitiesIsFinite) {
  for (const DType dtype : {float16, bfloat16}) {
    const Tensor y_true = constant({1.0, 0.0, 1.0, 0.0}, {.dtype = dtype, .shape = {4, 1}});
    const Tensor y_pred = constant({1.0, 1.0, 0.0, 0.0}, {.dtype = dtype, .shape = {4, 1}});
    const Tensor loss = losses::binary_crossentropy(y_true, y_pred);
    EXPECT_EQ(loss.dtype(), dtype);
    const std::vector<double> values = testing::values_of(loss);
    const double wrong = -std::log(1e-7);
    for (std::size_t i = 0; i < 4; ++i)
      EXPECT_NEAR(values[i], i == 1 || i == 2 ? wrong : 0.0, 0.2) << "example " << i;
  }
}

TEST(Reduction, HasKerassNames) {
  const Tensor y = constant({{1.0}, {2.0}}), p = zeros({2, 1});
  expect_tensor(losses::MeanSquaredError({.reduction = "none"})(y, p), float32, {2}, {1, 4});
  expect_tensor(losses::MeanSquaredError({.reduction = "sum"})(y, p), float32, Shape::scalar(),
                {5});
  expect_tensor(losses::MeanSquaredError({.reduction = "mean"})(y, p), float32, Shape::scalar(),
                {2.5});
  expect_tensor(losses::MeanSquaredError({.reduction = "sum_over_batch_size"})(y, p), float32,
                Shape::scalar(), {2.5});
  expect_error<InvalidArgumentError>([] { losses::MeanSquaredError({.reduction = "median"}); },
                                     "[losses] expected the reduction \"none\", \"sum\", \"mean\" "
                                     "or \"sum_over_batch_size\", got");
}

TEST(Losses, LabelsOfIgnoreClassDoNotCount) {
  const Tensor scores = random_tensor({4, 3}, 1), labels = constant({2, -1, 1, -1});
  const Tensor counted = gather(scores, constant({0, 2})), kept = constant({2, 1});
  for (const bool from_logits : {true, false}) {
    const auto as_given = [&](const Tensor& x) { return from_logits ? x : nn::softmax(x); };
    losses::CrossentropyOptions options{.from_logits = from_logits, .ignore_class = -1};
    const Tensor two = losses::sparse_categorical_crossentropy(kept, as_given(counted),
                                                               {.from_logits = from_logits});
    const Values each = values_of(two);
    expect_tensor(losses::sparse_categorical_crossentropy(labels, as_given(scores), options),
                  float64, {4}, {each[0], 0.0, each[1], 0.0}, kTolerance);
    const double sum = each[0] + each[1];
    EXPECT_NEAR(losses::SparseCategoricalCrossentropy(options)(labels, as_given(scores)).item(),
                sum / 2.0, kTolerance);
    options.reduction = losses::Reduction::kSum;
    EXPECT_NEAR(losses::SparseCategoricalCrossentropy(options)(labels, as_given(scores)).item(),
                sum, kTolerance);
    options.reduction = losses::Reduction::kNone;
    expect_tensor(losses::SparseCategoricalCrossentropy(options)(labels, as_given(scores)), float64,
                  {4}, {each[0], 0.0, each[1], 0.0}, kTolerance);
  }
  const Tensor none = constant({-1, -1, -1, -1});
  EXPECT_EQ(
      losses::SparseCategoricalCrossentropy({.from_logits = true, .ignore_class = -1})(none, scores)
          .item(),
      0.0);
  expect_error<InvalidArgumentError>(
      [&] { static_cast<void>(losses::binary_crossentropy(scores, scores, {.ignore_class = -1})); },
      "[binary_crossentropy] expected no ignore_class, which needs sparse labels; got -1");
}

}  // namespace
}  // namespace tandem::losses_test
