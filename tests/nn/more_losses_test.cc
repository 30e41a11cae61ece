// Keras's losses of hinges, ratios and regions, focal losses, and PyTorch's of distances and
// margins: against plain loops in double.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "support/gradient_check.h"
#include "support/tensors.h"
#include "tandem/tandem.h"

namespace tandem::more_losses_test {
namespace {

using namespace testing;
namespace F = nn::functional;
using Values = std::vector<double>;
constexpr double kTolerance = 1e-11;
constexpr std::size_t kRows = 4, kColumns = 3;

double sigmoid_of(double x) { return 1.0 / (1.0 + std::exp(-x)); }

// f of the rows of two tables.
Values for_rows(const Values& a, const Values& b,
                const std::function<double(const double* a, const double* b)>& f) {
  Values result;
  for (std::size_t row = 0; row < kRows; ++row)
    result.push_back(f(&a[row * kColumns], &b[row * kColumns]));
  return result;
}
// The mean over columns.
Values means(const Values& a, const Values& b, const std::function<double(double, double)>& f) {
  return for_rows(a, b, [&](const double* x, const double* y) {
    double sum = 0.0;
    for (std::size_t i = 0; i < kColumns; ++i) sum += f(x[i], y[i]);
    return sum / kColumns;
  });
}

// The value of a loss, its gradient with respect to the predictions, float32, and a traced function
// whose batch size is unknown.
template <class Function>
void expect_loss(const Function& loss, const Tensor& y_true, const Tensor& y_pred,
                 const Shape& shape, const Values& expected) {
  expect_tensor(loss(y_true, y_pred), float64, shape, expected, kTolerance);
  expect_gradients([&](const std::vector<Tensor>& in) { return loss(y_true, in[0]); }, {y_pred});
  expect_tensor(loss(cast(y_true, float32), cast(y_pred, float32)), float32, shape, expected, 2e-5);
  Shape open = y_pred.shape();
  open.set(0, -1);
  Shape open_target = y_true.shape();
  open_target.set(0, -1);
  const auto traced =
      function([&](const Tensor& t, const Tensor& p) { return Tensor(loss(t, p)); },
               {.input_signature = {{open_target, y_true.dtype()}, {open, float64}}});
  expect_tensor(traced(y_true, y_pred), float64, shape, expected, kTolerance);
}

TEST(KerasLosses, OfNumbersEqualTheirFormulas) {
  const Tensor y_true = random_tensor({kRows, kColumns}, 1, -2.0, 2.0),
               y_pred = random_tensor({kRows, kColumns}, 2, -2.0, 2.0);
  const Values t = values_of(y_true), p = values_of(y_pred);
  expect_loss(losses::mean_absolute_percentage_error, y_true, y_pred, {4},
              means(t, p, [](double y, double x) { return 100.0 * std::abs((y - x) / y); }));
  expect_loss(losses::mean_squared_logarithmic_error, y_true, y_pred, {4},
              means(t, p, [](double y, double x) {
                const double d =
                    std::log(std::max(y, 1e-7) + 1.0) - std::log(std::max(x, 1e-7) + 1.0);
                return d * d;
              }));
  expect_loss(losses::log_cosh, y_true, y_pred, {4},
              means(t, p, [](double y, double x) { return std::log(std::cosh(x - y)); }));
  expect_tensor(losses::log_cosh(constant({0.0}), constant({1e4})), float32, {1},
                {1e4 - std::log(2.0)}, 1e-2);
  expect_loss(losses::squared_hinge, y_true, y_pred, {4}, means(t, p, [](double y, double x) {
                const double d = std::max(1.0 - y * x, 0.0);
                return d * d;
              }));
  const Tensor signs = constant({0.0, 1.0, 1.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 0.0},
                                {.dtype = float64, .shape = {kRows, kColumns}});
  expect_tensor(losses::squared_hinge(signs, y_pred), float64, {4},
                values_of(losses::squared_hinge(signs * 2.0 - 1.0, y_pred)), kTolerance);
  expect_loss(losses::cosine_similarity, y_true, y_pred, {4},
              for_rows(t, p, [](const double* y, const double* x) {
                double dot = 0.0, a = 0.0, b = 0.0;
                for (std::size_t i = 0; i < kColumns; ++i) {
                  dot += y[i] * x[i];
                  a += y[i] * y[i];
                  b += x[i] * x[i];
                }
                return -dot / std::sqrt(a * b);
              }));
  const Tensor positive = random_tensor({kRows, kColumns}, 3, 0.1, 2.0);
  expect_loss(
      losses::poisson, y_true, positive, {4},
      means(t, values_of(positive), [](double y, double x) { return x - y * std::log(x + 1e-7); }));
}

Tensor one_hots() {
  return constant({0.0, 1.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 1.0, 0.0},
                  {.dtype = float64, .shape = {kRows, kColumns}});
}

TEST(KerasLosses, OfClassesEqualTheirFormulas) {
  const Tensor y_true = one_hots(), y_pred = random_tensor({kRows, kColumns}, 2, 0.1, 0.9),
               logits = random_tensor({kRows, kColumns}, 3, -2.0, 2.0);
  const Values t = values_of(y_true), p = values_of(y_pred), x = values_of(logits);
  expect_loss(losses::categorical_hinge, y_true, logits, {4},
              for_rows(t, x, [](const double* y, const double* z) {
                double right = 0.0, wrong = -1e300;
                for (std::size_t i = 0; i < kColumns; ++i) {
                  right += y[i] * z[i];
                  wrong = std::max(wrong, (1.0 - y[i]) * z[i]);
                }
                return std::max(wrong - right + 1.0, 0.0);
              }));
  const auto binary = [](double y, double q, double alpha, double gamma, bool balanced) {
    const double likely = y * q + (1.0 - y) * (1.0 - q);
    const double entropy = -(y * std::log(q) + (1.0 - y) * std::log(1.0 - q));
    return (balanced ? y * alpha + (1.0 - y) * (1.0 - alpha) : 1.0) *
           std::pow(1.0 - likely, gamma) * entropy;
  };
  for (const bool balanced : {false, true})
    for (const double smoothing : {0.0, 0.2}) {
      losses::BinaryFocalOptions options{.apply_class_balancing = balanced,
                                         .alpha = 0.3,
                                         .gamma = 1.5,
                                         .label_smoothing = smoothing};
      const auto formula = [&](double y, double q) {
        return binary(y * (1.0 - smoothing) + 0.5 * smoothing, q, 0.3, 1.5, balanced);
      };
      const auto loss = [&](const Tensor& a, const Tensor& b) {
        return losses::binary_focal_crossentropy(a, b, options);
      };
      expect_loss(loss, y_true, y_pred, {4}, means(t, p, formula));
      options.from_logits = true;
      expect_loss(loss, y_true, logits, {4},
                  means(t, x, [&](double y, double z) { return formula(y, sigmoid_of(z)); }));
    }
  const auto categorical = [](const double* y, const Values& q) {
    double sum = 0.0;
    for (std::size_t i = 0; i < kColumns; ++i)
      sum -= 0.3 * std::pow(1.0 - q[i], 1.5) * y[i] * std::log(q[i]);
    return sum;
  };
  losses::CategoricalFocalOptions options{.alpha = 0.3, .gamma = 1.5};
  const auto loss = [&](const Tensor& a, const Tensor& b) {
    return losses::categorical_focal_crossentropy(a, b, options);
  };
  expect_loss(loss, y_true, y_pred, {4}, for_rows(t, p, [&](const double* y, const double* q) {
                const double total = q[0] + q[1] + q[2];
                return categorical(y, {q[0] / total, q[1] / total, q[2] / total});
              }));
  options.from_logits = true;
  expect_loss(loss, y_true, logits, {4}, for_rows(t, x, [&](const double* y, const double* z) {
                const double total = std::exp(z[0]) + std::exp(z[1]) + std::exp(z[2]);
                return categorical(
                    y, {std::exp(z[0]) / total, std::exp(z[1]) / total, std::exp(z[2]) / total});
              }));
}

TEST(KerasLosses, OfRegionsSumOverTheBatch) {
  const Tensor y_true = one_hots(), y_pred = random_tensor({kRows, kColumns}, 2, 0.1, 0.9);
  const Values t = values_of(y_true), p = values_of(y_pred);
  double both = 0.0, all = 0.0, positives = 0.0, negatives = 0.0;
  for (std::size_t i = 0; i < t.size(); ++i) {
    both += t[i] * p[i];
    all += t[i] + p[i];
    positives += (1.0 - t[i]) * p[i];
    negatives += t[i] * (1.0 - p[i]);
  }
  expect_loss(losses::dice, y_true, y_pred, Shape::scalar(), {1.0 - 2.0 * both / (all + 1e-7)});
  const auto tversky = [](const Tensor& a, const Tensor& b) {
    return losses::tversky(a, b, 0.3, 0.6);
  };
  expect_loss(tversky, y_true, y_pred, Shape::scalar(),
              {1.0 - both / (both + 0.3 * positives + 0.6 * negatives + 1e-7)});
  // The loss objects have this value for the batch.
  EXPECT_NEAR(losses::Dice()(y_true, y_pred).item<double>(), 1.0 - 2.0 * both / (all + 1e-7), 1e-9);
  EXPECT_NEAR(losses::Tversky({.alpha = 0.5, .beta = 0.5})(y_true, y_pred).item<double>(),
              losses::Dice()(y_true, y_pred).item<double>(), 1e-6);
}

TEST(KerasLosses, HaveNamesAndRefuseOtherArguments) {
  const Tensor y_true = one_hots(), y_pred = random_tensor({kRows, kColumns}, 2, 0.1, 0.9);
  const struct {
    const char* name;
    losses::Loss loss;
  } cases[] = {{"squared_hinge", losses::SquaredHinge()},
               {"categorical_hinge", losses::CategoricalHinge()},
               {"mape", losses::MeanAbsolutePercentageError()},
               {"msle", losses::MeanSquaredLogarithmicError()},
               {"log_cosh", losses::LogCosh()},
               {"poisson", losses::Poisson()},
               {"cosine_similarity", losses::CosineSimilarity()},
               {"dice", losses::Dice()},
               {"tversky", losses::Tversky()},
               {"binary_focal_crossentropy", losses::BinaryFocalCrossentropy()},
               {"categorical_focal_crossentropy", losses::CategoricalFocalCrossentropy()}};
  for (const auto& c : cases)
    EXPECT_EQ(losses::from_name(c.name)(y_true, y_pred).item<double>(),
              c.loss(y_true, y_pred).item<double>())
        << c.name;
  EXPECT_TRUE(losses::BinaryFocalCrossentropy().expects_probabilities());
  EXPECT_FALSE(losses::CategoricalFocalCrossentropy({.from_logits = true}).expects_probabilities());
  const losses::Loss by_function = losses::binary_focal_crossentropy;
  EXPECT_EQ(by_function(y_true, y_pred).item<double>(),
            losses::BinaryFocalCrossentropy()(y_true, y_pred).item<double>());
  expect_error<InvalidArgumentError>([&] { losses::tversky(y_true, y_pred, -1.0); },
                                     "[tversky] expected an alpha and beta of 0 or more");
  expect_error<InvalidArgumentError>(
      [&] { losses::binary_focal_crossentropy(y_true, y_pred, {.label_smoothing = 2.0}); },
      "[binary_focal_crossentropy] expected label smoothing in [0, 1]");
  expect_error<InvalidArgumentError>([&] { losses::poisson(ones({2, 3}), y_pred); }, "[poisson]");
}

// --- PyTorch's ---

// The loss without a reduction, its mean and its sum, and the gradients.
template <class Loss, class Options>
void expect_reductions(const Loss& loss, Options options, const std::vector<Tensor>& inputs,
                       const Shape& shape, const Values& expected) {
  options.reduction = "none";
  expect_tensor(loss(inputs, options), float64, shape, expected, kTolerance);
  expect_gradients([&](const std::vector<Tensor>& in) { return loss(in, options); }, inputs);
  double sum = 0.0;
  for (const double value : expected) sum += value;
  options.reduction = "sum";
  expect_tensor(loss(inputs, options), float64, Shape::scalar(), {sum}, 1e-10);
  options.reduction = "mean";
  expect_tensor(loss(inputs, options), float64, Shape::scalar(),
                {sum / static_cast<double>(expected.size())}, kTolerance);
  options.reduction = "batchmean";
  expect_error<InvalidArgumentError>([&] { static_cast<void>(loss(inputs, options)); },
                                     "expected reduction 'none', 'mean' or 'sum'");
}

template <class F3>
auto of_three(F3 f) {
  return [f](const std::vector<Tensor>& in, const auto& options) {
    return f(in[0], in[1], in[2], options);
  };
}

double distance(const double* a, const double* b, double p, double eps = 1e-6) {
  double sum = 0.0;
  for (std::size_t i = 0; i < kColumns; ++i) sum += std::pow(std::abs(a[i] - b[i] + eps), p);
  return std::pow(sum, 1.0 / p);
}

TEST(TorchLosses, OfDistances) {
  const Tensor a = random_tensor({kRows, kColumns}, 1), b = random_tensor({kRows, kColumns}, 2),
               c = random_tensor({kRows, kColumns}, 3);
  const Values x = values_of(a), y = values_of(b), z = values_of(c);
  for (const double p : {1.0, 2.0, 3.0})
    expect_tensor(F::pairwise_distance(a, b, {.p = p}), float64, {4},
                  for_rows(x, y, [&](auto u, auto v) { return distance(u, v, p); }), kTolerance);
  EXPECT_EQ(F::pairwise_distance(a, b, {.keepdim = true}).shape(), Shape({4, 1}));
  expect_tensor(F::pairwise_distance(a, b, {.p = INFINITY, .eps = 0.0}), float64, {4},
                values_of(reduce_max(abs(a - b), 1)), kTolerance);
  const auto cosine = [](const double* u, const double* v) {
    double dot = 0.0, uu = 0.0, vv = 0.0;
    for (std::size_t i = 0; i < kColumns; ++i) {
      dot += u[i] * v[i];
      uu += u[i] * u[i];
      vv += v[i] * v[i];
    }
    return dot / std::sqrt(uu * vv);
  };
  expect_tensor(F::cosine_similarity(a, b), float64, {4}, for_rows(x, y, cosine), kTolerance);
  expect_tensor(F::cosine_similarity(transpose(a), transpose(b), 0), float64, {4},
                for_rows(x, y, cosine), kTolerance);
  expect_gradients([](const std::vector<Tensor>& in) { return F::cosine_similarity(in[0], in[1]); },
                   {a, b});
  expect_tensor(F::cosine_similarity(zeros({1, 3}), ones({1, 3})), float32, {1}, {0});
  expect_tensor(F::cosine_similarity(a, ones({1, 3}, float64)), float64, {4},
                values_of(F::cosine_similarity(a, ones({4, 3}, float64))));
  expect_tensor(F::cosine_similarity(expand_dims(a, 1), expand_dims(b, 0), 1), float64, {4, 3},
                values_of(F::cosine_similarity(broadcast_to(expand_dims(a, 1), {4, 4, 3}),
                                               broadcast_to(expand_dims(b, 0), {4, 4, 3}), 1)),
                kTolerance);

  for (const bool swap : {false, true}) {
    Values expected;
    for (std::size_t i = 0; i < kRows; ++i) {
      const double *u = &x[i * kColumns], *v = &y[i * kColumns], *w = &z[i * kColumns];
      double away = distance(u, w, 2.0);
      if (swap) away = std::min(away, distance(v, w, 2.0));
      expected.push_back(std::max(distance(u, v, 2.0) - away + 0.7, 0.0));
    }
    expect_reductions(of_three(F::triplet_margin_loss),
                      F::TripletMarginOptions{.margin = 0.7, .swap = swap}, {a, b, c}, {4},
                      expected);
  }
  const Tensor sides = constant({1, -1, -1, 1});
  Values expected = for_rows(x, y, cosine);
  for (const std::size_t i : {0, 3}) expected[i] = 1.0 - expected[i];
  for (const std::size_t i : {1, 2}) expected[i] = std::max(expected[i] - 0.2, 0.0);
  expect_reductions(of_three(F::cosine_embedding_loss), F::MarginOptions{.margin = 0.2},
                    {a, b, sides}, {4}, expected);
  EXPECT_EQ(nn::CosineEmbeddingLoss({.margin = 0.2})(a, b, sides).item<double>(),
            F::cosine_embedding_loss(a, b, sides, {.margin = 0.2}).item<double>());
  EXPECT_EQ(nn::TripletMarginLoss()->forward(a, b, c).item<double>(),
            F::triplet_margin_loss(a, b, c).item<double>());
  expect_error<InvalidArgumentError>([&] { F::cosine_embedding_loss(a, b, a); },
                                     "[cosine_embedding_loss] expected inputs of shape (N, D)");
  expect_error<InvalidArgumentError>([&] { F::triplet_margin_loss(a, b, ones({2})); },
                                     "[triplet_margin_loss] expected a target of the input's");
  expect_error<InvalidArgumentError>([&] { F::triplet_margin_loss(a, b, c, {.margin = 0.0}); },
                                     "[triplet_margin_loss] expected a positive margin, got 0");
  expect_error<InvalidArgumentError>([&] { F::pairwise_distance(a, b, {.p = 0.0}); },
                                     "[pairwise_distance] expected a positive p, got 0");
}

TEST(TorchLosses, OfMargins) {
  const Tensor a = random_tensor({kRows, kColumns}, 1), b = random_tensor({kRows, kColumns}, 2);
  const Tensor sides =
      where(greater(random_tensor({kRows, kColumns}, 3, -1.0, 1.0), 0.0),
            ones({kRows, kColumns}, float64), full({kRows, kColumns}, -1.0, float64));
  const Values x = values_of(a), y = values_of(b), s = values_of(sides);
  const auto each = [&](const std::function<double(std::size_t)>& f) {
    Values result;
    for (std::size_t i = 0; i < x.size(); ++i) result.push_back(f(i));
    return result;
  };
  const Tensor fixed = stop_gradient(sides);
  expect_reductions(
      [&](const std::vector<Tensor>& in, const F::MarginOptions& options) {
        return F::margin_ranking_loss(in[0], in[1], fixed, options);
      },
      F::MarginOptions{.margin = 0.3}, {a, b}, {4, 3},
      each([&](std::size_t i) { return std::max(0.3 - s[i] * (x[i] - y[i]), 0.0); }));
  expect_reductions(
      [&](const std::vector<Tensor>& in, const F::HingeEmbeddingOptions& options) {
        return F::hinge_embedding_loss(in[0], fixed, options);
      },
      F::HingeEmbeddingOptions{.margin = 0.4}, {a}, {4, 3},
      each([&](std::size_t i) { return s[i] > 0.0 ? x[i] : std::max(0.4 - x[i], 0.0); }));
  expect_reductions(
      [&](const std::vector<Tensor>& in, const F::LossOptions& options) {
        return F::soft_margin_loss(in[0], fixed, options);
      },
      F::LossOptions{}, {a}, {4, 3},
      each([&](std::size_t i) { return std::log1p(std::exp(-s[i] * x[i])); }));
  EXPECT_EQ(nn::MarginRankingLoss()(a, b, sides).item<double>(),
            F::margin_ranking_loss(a, b, sides).item<double>());
  EXPECT_EQ(nn::HingeEmbeddingLoss()(a, sides).item<double>(),
            F::hinge_embedding_loss(a, sides).item<double>());
  EXPECT_EQ(nn::SoftMarginLoss()(a, sides).item<double>(),
            F::soft_margin_loss(a, sides).item<double>());

  const Tensor labels = constant({2, 0, 1, 1}), weight = constant({0.5, 2.0, 1.5});
  const std::size_t classes[] = {2, 0, 1, 1};
  const double weights[] = {0.5, 2.0, 1.5};
  for (const std::int64_t p : {1, 2}) {
    Values expected;
    for (std::size_t row = 0; row < kRows; ++row) {
      double sum = 0.0;
      for (std::size_t i = 0; i < kColumns; ++i)
        if (i != classes[row])
          sum += std::pow(
              std::max(0.6 - x[row * kColumns + classes[row]] + x[row * kColumns + i], 0.0),
              static_cast<double>(p));
      expected.push_back(weights[classes[row]] * sum / kColumns);
    }
    const F::MultiMarginOptions options{.p = p, .margin = 0.6, .weight = weight};
    expect_reductions(
        [&](const std::vector<Tensor>& in, const F::MultiMarginOptions& o) {
          return F::multi_margin_loss(in[0], labels, o);
        },
        options, {a}, {4}, expected);
    EXPECT_EQ(nn::MultiMarginLoss(options)(a, labels).item<double>(),
              F::multi_margin_loss(a, labels, options).item<double>());
  }
  expect_error<InvalidArgumentError>([&] { F::multi_margin_loss(a, labels, {.p = 3}); },
                                     "[multi_margin_loss] expected a p of 1 or 2, got 3");
  expect_error<InvalidArgumentError>(
      [&] { F::multi_margin_loss(a, labels, {.weight = ones({2})}); }, "one per class, got (2,)");

  const Tensor both = greater(sides, 0.0).to(float64);
  expect_reductions(
      [&](const std::vector<Tensor>& in, const F::MultiLabelSoftMarginOptions& options) {
        return F::multilabel_soft_margin_loss(in[0], both, options);
      },
      F::MultiLabelSoftMarginOptions{.weight = weight}, {a}, {4},
      for_rows(x, s, [&](const double* u, const double* v) {
        double sum = 0.0;
        for (std::size_t i = 0; i < kColumns; ++i)
          sum += weights[i] * std::log1p(std::exp(v[i] > 0.0 ? -u[i] : u[i]));
        return sum / kColumns;
      }));
  EXPECT_EQ(nn::MultiLabelSoftMarginLoss()(a, both).item<double>(),
            F::multilabel_soft_margin_loss(a, both).item<double>());
}

TEST(TorchLosses, OfLikelihoods) {
  const Tensor a = random_tensor({kRows, kColumns}, 1),
               b = random_tensor({kRows, kColumns}, 2, 0.2, 4.0),
               variances = random_tensor({kRows, kColumns}, 3, 0.3, 2.0);
  const Values x = values_of(a), y = values_of(b), v = values_of(variances);
  for (const bool full : {false, true}) {
    Values normal, counts, linear;
    for (std::size_t i = 0; i < x.size(); ++i) {
      normal.push_back(0.5 * (std::log(v[i]) + (x[i] - y[i]) * (x[i] - y[i]) / v[i]) +
                       (full ? 0.5 * std::log(2.0 * M_PI) : 0.0));
      const double stirling = full && y[i] > 1.0
                                  ? y[i] * std::log(y[i]) - y[i] + 0.5 * std::log(2.0 * M_PI * y[i])
                                  : 0.0;
      counts.push_back(std::exp(x[i]) - y[i] * x[i] + stirling);
      linear.push_back(v[i] - y[i] * std::log(v[i] + 1e-8) + stirling);
    }
    expect_reductions(of_three(F::gaussian_nll_loss), F::GaussianNllOptions{.full = full},
                      {a, b, variances}, {4, 3}, normal);
    const Tensor fixed = stop_gradient(b);
    const auto poisson = [&](const std::vector<Tensor>& in, const F::PoissonNllOptions& options) {
      return F::poisson_nll_loss(in[0], fixed, options);
    };
    expect_reductions(poisson, F::PoissonNllOptions{.full = full}, {a}, {4, 3}, counts);
    expect_reductions(poisson, F::PoissonNllOptions{.log_input = false, .full = full}, {variances},
                      {4, 3}, linear);
  }
  EXPECT_EQ(nn::GaussianNLLLoss()(a, b, variances).item<double>(),
            F::gaussian_nll_loss(a, b, variances).item<double>());
  EXPECT_EQ(nn::PoissonNLLLoss({.full = true})(a, b).item<double>(),
            F::poisson_nll_loss(a, b, {.full = true}).item<double>());
  // One variance per row, in both ways to write it; and one that is limited.
  const Tensor per_row = variances(Slice{}, 0);
  const Tensor whole = broadcast_to(expand_dims(per_row, 1), {kRows, kColumns});
  for (const Tensor& given : {per_row, expand_dims(per_row, 1)})
    expect_tensor(F::gaussian_nll_loss(a, b, given), float64, Shape::scalar(),
                  values_of(F::gaussian_nll_loss(a, b, whole)), kTolerance);
  expect_tensor(F::gaussian_nll_loss(a, b, slice_rows(variances, 0, 1)), float64, Shape::scalar(),
                values_of(F::gaussian_nll_loss(
                    a, b, broadcast_to(slice_rows(variances, 0, 1), {kRows, kColumns}))),
                kTolerance);
  expect_tensor(F::gaussian_nll_loss(a, b, zeros_like(a), {.eps = 0.5}), float64, Shape::scalar(),
                values_of(F::gaussian_nll_loss(a, b, full({kRows, kColumns}, 0.5, float64))),
                kTolerance);
  expect_error<InvalidArgumentError>(
      [&] {
        F::gaussian_nll_loss(a, b, ones({2, 3}));
      },
      "[gaussian_nll_loss] expected variances of the input's shape");
  expect_error<InvalidArgumentError>([&] { F::gaussian_nll_loss(a, b, variances, {.eps = 0.0}); },
                                     "[gaussian_nll_loss] expected a positive eps");
  const Tensor logs = nn::log_softmax(a), target = nn::softmax(b);
  for (const char* reduction : {"mean", "sum", "batchmean"})
    EXPECT_NEAR(nn::KLDivLoss({.reduction = reduction})(logs, target).item<double>(),
                F::kl_div(logs, target, {.reduction = reduction}).item<double>(), 1e-14);
  EXPECT_NEAR(nn::KLDivLoss({.log_target = true})(logs, log(target)).item<double>(),
              nn::KLDivLoss()(logs, target).item<double>(), 1e-14);
}

}  // namespace
}  // namespace tandem::more_losses_test
