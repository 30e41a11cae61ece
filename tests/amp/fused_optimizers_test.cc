// Compares Apex's optimizers with double-precision implementations of its kernels' formulas.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "support/errors.h"
#include "support/tensors.h"
#include "tandem/apex.h"
#include "tandem/tandem.h"

namespace tandem::fused_optimizers_test {
namespace {

namespace fused = apex::optimizers;
using apex::parallel::LARC;
using optimizers::Optimizer;
using testing::error_of;
using testing::expect_tensor;
using testing::random_values;

using Values = std::vector<double>;
using Lists = std::vector<Values>;  // one per variable

constexpr int kSteps = 6;
constexpr std::int64_t kSizes[] = {6, 4};

double rate_at(int step) { return step % 2 == 0 ? 0.1 : 0.05; }

Lists numbers(std::uint32_t seed, double scale = 1.0) {
  Lists lists;
  for (const std::int64_t size : kSizes)
    lists.push_back(random_values(size, seed++, -scale, scale));
  return lists;
}
Lists gradients_at(int step) { return numbers(100 + 2 * static_cast<std::uint32_t>(step)); }

double norm(const Values& values) {
  double sum = 0;
  for (double value : values) sum += value * value;
  return std::sqrt(sum);
}
double norm(const Lists& lists) {
  double sum = 0;
  for (const Values& values : lists) sum += norm(values) * norm(values);
  return std::sqrt(sum);
}

// The reference: updates the variables in step `step` (from 1).
using Rule = std::function<void(int step, Lists& variables, Lists gradients)>;

void expect_follows(const std::function<Optimizer()>& make, const std::function<Rule()>& rule) {
  for (const auto& [dtype, tolerance] : {std::pair{float64, 1e-12}, std::pair{float32, 3e-6}})
    for (const bool traced : {false, true}) {
      SCOPED_TRACE(::testing::Message() << name_of(dtype) << (traced ? " traced" : " eager"));
      Optimizer optimizer = make();
      Lists expected = numbers(5);
      std::vector<Variable> variables;
      for (const Values& values : expected)
        variables.emplace_back(constant(values, {.dtype = dtype}));
      const auto step = [&](const Tensor& a, const Tensor& b) {
        optimizer.apply_gradients({a, b}, variables);
        return a;
      };
      const auto replayed = function(step);
      const Rule reference = rule();
      for (int number = 1; number <= kSteps; ++number) {
        const Lists gradients = gradients_at(number);
        const Tensor a = constant(gradients[0], {.dtype = dtype}),
                     b = constant(gradients[1], {.dtype = dtype});
        traced ? replayed(a, b) : step(a, b);
        reference(number, expected, gradients);
        for (std::size_t i = 0; i < variables.size(); ++i)
          expect_tensor(variables[i], dtype, {kSizes[i]}, expected[i], tolerance);
      }
    }
}

template <class F>
void each(Lists& w, const Lists& g, const F& f) {
  for (std::size_t v = 0; v < w.size(); ++v)
    for (std::size_t i = 0; i < w[v].size(); ++i) f(w[v][i], g[v][i], v, i);
}

Lists zeros_of_sizes() { return {Values(kSizes[0]), Values(kSizes[1])}; }

// --- FusedAdam ---

Rule adam_rule(const fused::FusedAdamOptions& o) {
  return [=, m = zeros_of_sizes(), v = zeros_of_sizes()](int step, Lists& w, Lists g) mutable {
    const double rate = o.learning_rate.at(step - 1);
    const double c1 = o.bias_correction ? 1 - std::pow(o.beta_1, step) : 1;
    const double c2 = o.bias_correction ? 1 - std::pow(o.beta_2, step) : 1;
    each(w, g, [&](double& x, double d, std::size_t k, std::size_t i) {
      if (!o.adam_w_mode) d += o.weight_decay * x;
      m[k][i] = o.beta_1 * m[k][i] + (1 - o.beta_1) * d;
      v[k][i] = o.beta_2 * v[k][i] + (1 - o.beta_2) * d * d;
      double update = (m[k][i] / c1) / (std::sqrt(v[k][i] / c2) + o.epsilon);
      if (o.adam_w_mode) update += o.weight_decay * x;
      x -= rate * update;
    });
  };
}

void expect_adam(const fused::FusedAdamOptions& options) {
  expect_follows([&] { return fused::FusedAdam(options); }, [&] { return adam_rule(options); });
}

TEST(FusedAdam, FollowsApex) {
  expect_adam({});
  for (const bool decoupled : {false, true})
    for (const bool corrected : {false, true})
      expect_adam({.learning_rate = optimizers::LearningRate(rate_at),
                   .bias_correction = corrected,
                   .beta_1 = 0.8,
                   .beta_2 = 0.95,
                   .epsilon = 1e-2,
                   .adam_w_mode = decoupled,
                   .weight_decay = 0.1});
}

TEST(FusedAdam, HasApexsDefaults) {
  const fused::FusedAdamOptions options;
  EXPECT_EQ(options.learning_rate.at(0), 1e-3);
  EXPECT_EQ(options.beta_1, 0.9);
  EXPECT_EQ(options.beta_2, 0.999);
  EXPECT_EQ(options.epsilon, 1e-8);
  EXPECT_EQ(options.weight_decay, 0.0);
  EXPECT_TRUE(options.adam_w_mode);
  EXPECT_TRUE(options.bias_correction);
}

// --- FusedLAMB ---

Rule lamb_rule(const fused::FusedLAMBOptions& o) {
  return [=, m = zeros_of_sizes(), v = zeros_of_sizes()](int step, Lists& w, Lists g) mutable {
    const double rate = o.learning_rate.at(step - 1), all = norm(g);
    const double clip = o.max_grad_norm > 0 && all > o.max_grad_norm ? all / o.max_grad_norm : 1;
    const double c1 = o.bias_correction ? 1 - std::pow(o.beta_1, step) : 1;
    const double c2 = o.bias_correction ? 1 - std::pow(o.beta_2, step) : 1;
    const double beta_3 = o.grad_averaging ? 1 - o.beta_1 : 1;
    Lists update = zeros_of_sizes();
    each(w, g, [&](double& x, double d, std::size_t k, std::size_t i) {
      d /= clip;
      if (!o.adam_w_mode) d += o.weight_decay * x;
      m[k][i] = o.beta_1 * m[k][i] + beta_3 * d;
      v[k][i] = o.beta_2 * v[k][i] + (1 - o.beta_2) * d * d;
      update[k][i] = (m[k][i] / c1) / (std::sqrt(v[k][i] / c2) + o.epsilon);
      if (o.adam_w_mode) update[k][i] += o.weight_decay * x;
    });
    for (std::size_t k = 0; k < w.size(); ++k) {
      const double of_w = norm(w[k]), of_update = norm(update[k]);
      const bool scaled = (o.use_nvlamb || o.weight_decay != 0) && of_w != 0 && of_update != 0;
      for (std::size_t i = 0; i < w[k].size(); ++i)
        w[k][i] -= rate * (scaled ? of_w / of_update : 1) * update[k][i];
    }
  };
}

void expect_lamb(const fused::FusedLAMBOptions& options) {
  expect_follows([&] { return fused::FusedLAMB(options); }, [&] { return lamb_rule(options); });
}

TEST(FusedLAMB, FollowsApex) {
  expect_lamb({});
  for (const bool decoupled : {false, true})
    for (const bool averaging : {false, true})
      expect_lamb({.learning_rate = optimizers::LearningRate(rate_at),
                   .bias_correction = averaging == decoupled,
                   .beta_1 = 0.8,
                   .beta_2 = 0.95,
                   .epsilon = 1e-2,
                   .weight_decay = 0.1,
                   .adam_w_mode = decoupled,
                   .grad_averaging = averaging,
                   .max_grad_norm = 0.7});
}

TEST(FusedLAMB, ScalesVariablesWithoutDecayOnlyIfAsked) {
  for (const bool always : {false, true})
    expect_lamb(
        {.learning_rate = 0.05, .weight_decay = 0.0, .max_grad_norm = 0.0, .use_nvlamb = always});
}

TEST(FusedLAMB, HasApexsDefaults) {
  const fused::FusedLAMBOptions options;
  EXPECT_EQ(options.learning_rate.at(0), 1e-3);
  EXPECT_EQ(options.beta_1, 0.9);
  EXPECT_EQ(options.beta_2, 0.999);
  EXPECT_EQ(options.epsilon, 1e-6);
  EXPECT_EQ(options.weight_decay, 0.01);
  EXPECT_EQ(options.max_grad_norm, 1.0);
  EXPECT_TRUE(options.bias_correction);
  EXPECT_TRUE(options.adam_w_mode);
  EXPECT_TRUE(options.grad_averaging);
  EXPECT_FALSE(options.use_nvlamb);
}

// --- FusedSGD ---

Rule sgd_rule(const fused::FusedSGDOptions& o) {
  return [=, buffer = zeros_of_sizes()](int step, Lists& w, Lists g) mutable {
    const double rate = o.learning_rate.at(step - 1);
    each(w, g, [&](double& x, double d, std::size_t k, std::size_t i) {
      if (!o.wd_after_momentum) d += o.weight_decay * x;
      if (o.momentum != 0) {
        double& b = buffer[k][i];
        b = step == 1 ? d : o.momentum * b + (1 - o.dampening) * d;
        d = o.nesterov ? d + o.momentum * b : b;
      }
      if (o.wd_after_momentum) d += o.weight_decay * x;
      x -= rate * d;
    });
  };
}

TEST(FusedSGD, FollowsPyTorchAndApex) {
  const optimizers::LearningRate rate(rate_at);
  for (const bool after : {false, true})
    for (const auto& [momentum, dampening, nesterov] :
         {std::tuple{0.0, 0.0, false}, {0.9, 0.0, false}, {0.9, 0.3, false}, {0.9, 0.0, true}}) {
      const fused::FusedSGDOptions options{.learning_rate = rate,
                                           .momentum = momentum,
                                           .dampening = dampening,
                                           .weight_decay = 0.1,
                                           .nesterov = nesterov,
                                           .wd_after_momentum = after};
      expect_follows([&] { return fused::FusedSGD(options); }, [&] { return sgd_rule(options); });
    }
}

TEST(FusedSGD, RefusesWhatPyTorchRefuses) {
  const auto refused = [](const fused::FusedSGDOptions& options) {
    return error_of<InvalidArgumentError>([&] { fused::FusedSGD(options); });
  };
  for (const std::string& text : {refused({.nesterov = true}),
                                  refused({.momentum = 0.9, .dampening = 0.1, .nesterov = true})})
    testing::expect_parts(text, {"Nesterov momentum requires a momentum and zero dampening"});
  testing::expect_parts(refused({.momentum = -0.1}),
                        {"[fused_sgd] expected a finite momentum of 0"});
  testing::expect_parts(refused({.weight_decay = -1.0}), {"expected a finite weight_decay of 0"});
}

TEST(FusedOptimizers, RefuseBetasOutsideOfTheirRange) {
  EXPECT_EQ(error_of<InvalidArgumentError>([] { fused::FusedAdam({.beta_1 = 1.0}); }),
            "[fused_adam] expected beta_1 in [0, 1), got 1");
  EXPECT_EQ(error_of<InvalidArgumentError>([] { fused::FusedLAMB({.beta_2 = -0.5}); }),
            "[fused_lamb] expected beta_2 in [0, 1), got -0.5");
}

// --- LARC ---

Rule larc_rule(const apex::parallel::LARCOptions& o, fused::FusedSGDOptions sgd) {
  const double decay = std::exchange(sgd.weight_decay, 0.0);
  return [=, inner = sgd_rule(sgd)](int step, Lists& w, Lists g) mutable {
    const double rate = sgd.learning_rate.at(step - 1);
    for (std::size_t k = 0; k < w.size(); ++k) {
      const double of_w = norm(w[k]), of_g = norm(g[k]);
      if (of_w == 0 || of_g == 0) continue;
      double adaptive = o.trust_coefficient * of_w / (of_g + of_w * decay + o.eps);
      if (o.clip) adaptive = std::min(adaptive / rate, 1.0);
      for (std::size_t i = 0; i < w[k].size(); ++i) {
        g[k][i] += decay * w[k][i];
        g[k][i] *= adaptive;
      }
    }
    inner(step, w, g);
  };
}

TEST(LARC, FollowsApex) {
  for (const bool clip : {false, true})
    for (const double trust : {0.02, 0.08})  // 0.08: some of the rates are clipped
      for (const double decay : {0.0, 0.1}) {
        const fused::FusedSGDOptions sgd{.learning_rate = optimizers::LearningRate(rate_at),
                                         .momentum = 0.9,
                                         .weight_decay = decay};
        const apex::parallel::LARCOptions larc{.trust_coefficient = trust, .clip = clip};
        expect_follows([&] { return LARC(fused::FusedSGD(sgd), larc); },
                       [&] { return larc_rule(larc, sgd); });
      }
}

TEST(LARC, HasApexsDefaults) {
  const apex::parallel::LARCOptions options;
  EXPECT_EQ(options.trust_coefficient, 0.02);
  EXPECT_TRUE(options.clip);
  EXPECT_EQ(options.eps, 1e-8);
}

TEST(LARC, LeavesAloneWhatHasNoNorm) {
  Optimizer larc = LARC(fused::FusedSGD({.learning_rate = 0.5, .weight_decay = 0.1}));
  const Variable zero(zeros({3})), still(ones({3}));
  larc.apply_gradients({ones({3}), zeros({3})}, {zero, still});
  expect_tensor(zero, float32, {3}, {-0.5, -0.5, -0.5});
  expect_tensor(still, float32, {3}, {1, 1, 1});
}

TEST(LARC, SharesTheLearningRateOfTheOptimizer) {
  Optimizer sgd = fused::FusedSGD({.learning_rate = 0.5});
  const Optimizer larc = LARC(sgd);
  sgd.set_learning_rate(0.25);
  EXPECT_EQ(larc.learning_rate(), 0.25);
}

TEST(LARC, RefusesAnotherLARC) {
  testing::expect_parts(error_of<FailedPreconditionError>([] { LARC(LARC(fused::FusedSGD())); }),
                        {"[LARC] expected an optimizer without trust ratios, got fused_sgd"});
}

TEST(LARC, RefusesAnOptimizerThatHasSlots) {
  Optimizer sgd = fused::FusedSGD({.momentum = 0.9});
  sgd.build({Variable(ones({2}))});
  testing::expect_parts(error_of<FailedPreconditionError>([&] { LARC(sgd); }),
                        {"[LARC] expected an optimizer without slots, got fused_sgd"});
}

}  // namespace
}  // namespace tandem::fused_optimizers_test
