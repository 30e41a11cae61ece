// Compares tandem::optim with double-precision implementations of PyTorch's rules.
#include "tandem/optim.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numbers>
#include <tuple>

#include "support/tensors.h"
#include "tandem/amp.h"
#include "tandem/autodiff.h"
#include "tandem/function.h"
#include "tandem/lr_scheduler.h"
#include "tandem/math.h"

namespace tandem::optim_test {
namespace {

using testing::expect_error;
using testing::expect_tensor;
using testing::random_values;
using testing::values_of;

using Values = std::vector<double>;

constexpr std::int64_t kSize = 5;
constexpr int kSteps = 6;

Values gradient_at(int step, std::uint32_t seed = 100) {
  return random_values(kSize, seed + static_cast<std::uint32_t>(step), -1.0, 1.0);
}
Values start() { return random_values(kSize, 5, -1.0, 1.0); }

Variable variable_of(const Values& values, DType dtype = float64) {
  return Variable(constant(values, {.dtype = dtype}));
}
void set_gradient(Variable variable, const Values& gradient) {
  variable.set_grad(constant(gradient, {.dtype = variable.dtype()}));
}

// The reference for one element, called in each step (numbered from 1) with the element, which it
// updates, the gradient and the element's own state, which is 0 at first.
struct State {
  double a = 0.0, b = 0.0, c = 0.0;
};
using Rule = std::function<void(int step, double& w, double g, State& state)>;
using Make = std::function<optim::Optimizer(const std::vector<Variable>&)>;

void expect_follows(const Make& make, const Rule& rule) {
  for (const auto& [dtype, tolerance] : {std::pair{float64, 1e-12}, std::pair{float32, 2e-6}}) {
    const Variable variable = variable_of(start(), dtype);
    optim::Optimizer optimizer = make({variable});
    Values expected = start();
    std::vector<State> states(kSize);
    for (int step = 1; step <= kSteps; ++step) {
      const Values gradient = gradient_at(step);
      set_gradient(variable, gradient);
      optimizer.step();
      for (std::size_t i = 0; i < expected.size(); ++i)
        rule(step, expected[i], gradient[i], states[i]);
      SCOPED_TRACE(optimizer.name() + " step " + std::to_string(step));
      expect_tensor(variable, dtype, {kSize}, expected, tolerance);
    }
  }
}

Rule sgd_rule(double lr, double momentum, double dampening, double decay, bool nesterov) {
  return [=](int step, double& w, double g, State& s) {
    g += decay * w;
    if (momentum != 0.0) {
      s.a = step == 1 ? g : momentum * s.a + (1.0 - dampening) * g;
      g = nesterov ? g + momentum * s.a : s.a;
    }
    w -= lr * g;
  };
}

TEST(Optim, SgdFollowsPyTorch) {
  using optim::SGD;
  expect_follows([](const auto& params) { return SGD(params); },
                 sgd_rule(1e-3, 0.0, 0.0, 0.0, false));
  expect_follows([](const auto& params) { return SGD(params, 0.2); },
                 sgd_rule(0.2, 0.0, 0.0, 0.0, false));
  expect_follows([](const auto& params) { return SGD(params, {.lr = 0.2, .weight_decay = 0.3}); },
                 sgd_rule(0.2, 0.0, 0.0, 0.3, false));
  expect_follows(
      [](const auto& params) {
        return SGD(params, {.lr = 0.2, .momentum = 0.9, .dampening = 0.4, .weight_decay = 0.3});
      },
      sgd_rule(0.2, 0.9, 0.4, 0.3, false));
  expect_follows(
      [](const auto& params) {
        return SGD(params, {.lr = 0.2, .momentum = 0.9, .weight_decay = 0.3, .nesterov = true});
      },
      sgd_rule(0.2, 0.9, 0.0, 0.3, true));
}

Rule adam_rule(double lr, double beta_1, double beta_2, double eps, double decay, bool decoupled) {
  return [=](int step, double& w, double g, State& s) {
    if (decoupled)
      w *= 1.0 - lr * decay;
    else
      g += decay * w;
    s.a = beta_1 * s.a + (1.0 - beta_1) * g;
    s.b = beta_2 * s.b + (1.0 - beta_2) * g * g;
    const double m = s.a / (1.0 - std::pow(beta_1, step)), v = s.b / (1.0 - std::pow(beta_2, step));
    w -= lr * m / (std::sqrt(v) + eps);
  };
}

TEST(Optim, AdamFollowsPyTorch) {
  expect_follows([](const auto& params) { return optim::Adam(params); },
                 adam_rule(1e-3, 0.9, 0.999, 1e-8, 0.0, false));
  expect_follows(
      [](const auto& params) {
        return optim::Adam(params,
                           {.lr = 0.05, .betas = {0.5, 0.99}, .eps = 1e-2, .weight_decay = 0.3});
      },
      adam_rule(0.05, 0.5, 0.99, 1e-2, 0.3, false));
}

TEST(Optim, AdamWDecaysApartFromTheGradient) {
  expect_follows([](const auto& params) { return optim::AdamW(params); },
                 adam_rule(1e-3, 0.9, 0.999, 1e-8, 0.01, true));
  expect_follows(
      [](const auto& params) {
        return optim::AdamW(params, {.lr = 0.05, .eps = 1e-2, .weight_decay = 0.3});
      },
      adam_rule(0.05, 0.9, 0.999, 1e-2, 0.3, true));
}

TEST(Optim, RmsPropFollowsPyTorch) {
  for (double momentum : {0.0, 0.5})
    for (bool centered : {false, true})
      expect_follows(
          [&](const auto& params) {
            return optim::RMSprop(params, {.lr = 0.02,
                                           .alpha = 0.9,
                                           .eps = 1e-2,
                                           .weight_decay = 0.3,
                                           .momentum = momentum,
                                           .centered = centered});
          },
          [=](int, double& w, double g, State& s) {
            g += 0.3 * w;
            s.a = 0.9 * s.a + 0.1 * g * g;
            s.b = 0.9 * s.b + 0.1 * g;
            const double root = std::sqrt(centered ? s.a - s.b * s.b : s.a) + 1e-2;
            s.c = momentum * s.c + g / root;
            w -= 0.02 * s.c;
          });
  expect_follows([](const auto& params) { return optim::RMSprop(params); },
                 [](int, double& w, double g, State& s) {
                   s.a = 0.99 * s.a + 0.01 * g * g;
                   w -= 1e-2 * g / (std::sqrt(s.a) + 1e-8);
                 });
}

TEST(Optim, AdagradFollowsPyTorch) {
  expect_follows([](const auto& params) { return optim::Adagrad(params); },
                 [](int, double& w, double g, State& s) {
                   s.a += g * g;
                   w -= 1e-2 * g / (std::sqrt(s.a) + 1e-10);
                 });
  expect_follows(
      [](const auto& params) {
        return optim::Adagrad(params, {.lr = 0.3,
                                       .lr_decay = 0.1,
                                       .weight_decay = 0.2,
                                       .initial_accumulator_value = 0.5,
                                       .eps = 1e-2});
      },
      [](int step, double& w, double g, State& s) {
        if (step == 1) s.a = 0.5;
        g += 0.2 * w;
        s.a += g * g;
        w -= 0.3 / (1.0 + (step - 1) * 0.1) * g / (std::sqrt(s.a) + 1e-2);
      });
}

// The learning rate is a factor of the step, not of the momentum: a new rate acts at once.
TEST(Optim, MomentumDoesNotContainTheRate) {
  const Variable w = variable_of({0.0});
  optim::SGD optimizer({w}, {.lr = 1.0, .momentum = 1.0});
  for (double lr : {1.0, 0.1}) {
    optimizer.param_groups()[0].set_lr(lr);
    set_gradient(w, {1.0});
    optimizer.step();
  }
  expect_tensor(w, float64, {1}, {-1.0 - 0.1 * 2.0}, 1e-12);
}

// --- groups of parameters ---

TEST(Optim, GroupsHaveOptionsOfTheirOwn) {
  const Variable a = variable_of(start()), b = variable_of(start()), c = variable_of(start());
  optim::SGD optimizer(
      {{.params = {a, b}, .lr = 0.01}, {.params = {c}, .lr = 0.1, .momentum = 0.0}},
      {.lr = 0.5, .momentum = 0.9, .weight_decay = 0.2});
  ASSERT_EQ(optimizer.param_groups().size(), 2u);
  EXPECT_EQ(optimizer.param_groups()[0].lr(), 0.01);
  EXPECT_EQ(optimizer.param_groups()[1].lr(), 0.1);
  EXPECT_EQ(optimizer.param_groups()[0].params(), (std::vector<Variable>{a, b}));
  EXPECT_EQ(optimizer.param_groups()[1].params(), (std::vector<Variable>{c}));
  EXPECT_EQ(optimizer.parameters(), (std::vector<Variable>{a, b, c}));
  const Rule slow = sgd_rule(0.01, 0.9, 0.0, 0.2, false),
             fast = sgd_rule(0.1, 0.0, 0.0, 0.2, false);
  Values of_b = start(), of_c = start();
  std::vector<State> states_b(kSize), states_c(kSize);
  for (int step = 1; step <= kSteps; ++step) {
    const Values g = gradient_at(step);
    for (const Variable& variable : {a, b, c}) set_gradient(variable, g);
    optimizer.step();
    for (std::size_t i = 0; i < of_b.size(); ++i) {
      slow(step, of_b[i], g[i], states_b[i]);
      fast(step, of_c[i], g[i], states_c[i]);
    }
  }
  expect_tensor(a, float64, {kSize}, of_b, 1e-12);
  expect_tensor(b, float64, {kSize}, of_b, 1e-12);
  expect_tensor(c, float64, {kSize}, of_c, 1e-12);
}

TEST(Optim, GroupsFollowTheirRatesInTracedSteps) {
  const Variable a = variable_of({1.0, 2.0}), b = variable_of({1.0, 2.0});
  optim::SGD optimizer({{.params = {a}, .lr = 0.1}, {.params = {b}, .lr = 0.2}});
  auto step = function([&](const Tensor& x) {
    optimizer.zero_grad();
    (reduce_sum(x * a) + reduce_sum(x * b)).backward();
    optimizer.step();
    return x;
  });
  const Tensor x = constant({1.0, -1.0}, {.dtype = float64});
  step(x);
  step(x);
  optimizer.param_groups()[1].set_lr(1.0);  // in a program that has been traced
  step(x);
  expect_tensor(a, float64, {2}, {1.0 - 0.3, 2.0 + 0.3}, 1e-12);
  expect_tensor(b, float64, {2}, {1.0 - 1.4, 2.0 + 1.4}, 1e-12);
}

TEST(Optim, GroupsNeedNoNames) {
  const Variable a = variable_of({1.0}), b = variable_of({1.0});
  optim::SGD optimizer({{{a}, {.lr = 0.1}}, {{b}, {.lr = 0.2}}}, {.momentum = 0.9});
  EXPECT_EQ(optimizer.param_groups()[1].lr(), 0.2);
  EXPECT_EQ(optimizer.param_groups()[1].params(), (std::vector<Variable>{b}));
}

TEST(Optim, SettingTheRateKeepsTheRatioOfGroups) {
  const Variable a = variable_of({1.0}), b = variable_of({1.0});
  optim::Adam optimizer({{.params = {a}, .lr = 0.1}, {.params = {b}, .lr = 0.2}});
  optimizer.set_learning_rate(0.05);
  EXPECT_EQ(optimizer.learning_rate(), 0.05);
  EXPECT_NEAR(optimizer.param_groups()[1].lr(), 0.1, 1e-15);
  expect_error<UnimplementedError>(
      [&] { optimizer.set_learning_rate(optimizers::schedules::exponential_decay(0.1, 1, 0.5)); },
      "[adam] expected a number as the learning rate of 2 groups");
}

TEST(Optim, BadParametersAndOptionsAreRefused) {
  const Variable w = variable_of({1.0}), v = variable_of({1.0});
  expect_error<InvalidArgumentError>([&] { optim::SGD(std::vector<Variable>()); },
                                     "[sgd] expected parameters, got an empty list");
  expect_error<InvalidArgumentError>(
      [&] {
        optim::SGD({{.params = {w}, .lr = 0.1}, {.params = {w}, .lr = 0.2}});
      },
      "more than one group");
  expect_error<InvalidArgumentError>([&] { optim::SGD({w}, {.params = {v}, .lr = 0.1}); },
                                     "[sgd] expected params in a group alone");
  expect_error<InvalidArgumentError>([&] { optim::SGD({w}, {.lr = 0.1, .nesterov = true}); },
                                     "[sgd] Nesterov momentum requires a momentum");
  expect_error<InvalidArgumentError>([&] { optim::SGD({w}, -0.1); }, "[sgd]");
  expect_error<InvalidArgumentError>(
      [&] {
        optim::Adam({w}, {.betas = {0.9, 1.0}});
      },
      "[adam] expected beta_2 in [0, 1), got 1");
  expect_error<UnimplementedError>(
      [&] {
        optim::RMSprop({{.params = {w}, .momentum = 0.5}, {.params = {v}, .momentum = 0.0}});
      },
      "[rmsprop] expected a momentum in all groups");
}

TEST(Optim, WorksWithAGradScaler) {
  const Variable w = variable_of({1.0}, float32);
  optim::SGD optimizer({w}, 0.5);
  amp::GradScaler scaler({.init_scale = 1024.0});
  scaler.scale(reduce_sum(w * 2.0)).backward();
  scaler.unscale_(optimizer);
  EXPECT_NEAR(nn::utils::clip_grad_norm_({w}, 1.0), 2.0, 1e-6);
  scaler.step(optimizer);
  scaler.update();
  expect_tensor(w, float32, {1}, {0.5}, 1e-5);
}

// --- schedulers ---

Values rates_of(optim::lr_scheduler::LRScheduler& scheduler, int epochs) {
  Values rates;
  for (int i = 0; i < epochs; ++i) {
    scheduler.step();
    rates.push_back(scheduler.get_last_lr().at(0));
  }
  return rates;
}

void expect_near(const Values& a, const Values& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e-12) << i;
}

TEST(LrScheduler, SchedulersFollowPyTorch) {
  namespace lr = optim::lr_scheduler;
  const Variable w = variable_of({1.0});
  const auto fresh = [&] { return optim::SGD({w}, 0.8); };
  {
    optim::SGD optimizer = fresh();
    lr::StepLR scheduler(optimizer, 2, 0.5);
    expect_near(rates_of(scheduler, 4), {0.8, 0.4, 0.4, 0.2});
    EXPECT_EQ(scheduler.last_epoch(), 4);
    EXPECT_NEAR(optimizer.learning_rate(), 0.2, 1e-15);
  }
  {
    optim::SGD optimizer = fresh();
    lr::MultiStepLR scheduler(optimizer, {1, 3}, 0.5);
    expect_near(rates_of(scheduler, 4), {0.4, 0.4, 0.2, 0.2});
  }
  {
    optim::SGD optimizer = fresh();
    lr::ExponentialLR scheduler(optimizer, 0.5);
    expect_near(rates_of(scheduler, 3), {0.4, 0.2, 0.1});
  }
  {
    optim::SGD optimizer = fresh();
    lr::CosineAnnealingLR scheduler(optimizer, 4, 0.1);
    Values expected;
    for (int epoch = 1; epoch <= 9; ++epoch)
      expected.push_back(0.1 + 0.7 * (1.0 + std::cos(std::numbers::pi * epoch / 4.0)) / 2.0);
    expect_near(rates_of(scheduler, 9), expected);
  }
  {
    optim::SGD optimizer = fresh();
    lr::LinearLR scheduler(optimizer, 0.5, 1.0, 4);
    EXPECT_NEAR(optimizer.learning_rate(), 0.4, 1e-15);
    expect_near(rates_of(scheduler, 5), {0.5, 0.6, 0.7, 0.8, 0.8});
  }
  {
    optim::SGD optimizer = fresh();
    lr::LambdaLR scheduler(optimizer, [](std::int64_t epoch) { return 1.0 / double(epoch + 1); });
    EXPECT_NEAR(optimizer.learning_rate(), 0.8, 1e-15);
    expect_near(rates_of(scheduler, 2), {0.4, 0.8 / 3.0});
  }
}

TEST(LrScheduler, TakesNamedOptions) {
  namespace lr = optim::lr_scheduler;
  const Variable w = variable_of({1.0});
  const auto same = [&](const auto& make, const auto& make_named) {
    optim::SGD a({w}, 0.8), b({w}, 0.8);
    auto plain = make(a);
    auto named = make_named(b);
    EXPECT_NEAR(a.learning_rate(), b.learning_rate(), 1e-15);
    expect_near(rates_of(plain, 6), rates_of(named, 6));
    EXPECT_NE(a.learning_rate(), 0.8);
  };
  same([](auto& o) { return lr::StepLR(o, 2, 0.5); },
       [](auto& o) { return lr::StepLR(o, {.step_size = 2, .gamma = 0.5}); });
  same(
      [](auto& o) {
        return lr::MultiStepLR(o, {1, 3}, 0.5);
      },
      [](auto& o) {
        return lr::MultiStepLR(o, {.milestones = {1, 3}, .gamma = 0.5});
      });
  same([](auto& o) { return lr::ExponentialLR(o, 0.5); },
       [](auto& o) { return lr::ExponentialLR(o, {.gamma = 0.5}); });
  same([](auto& o) { return lr::CosineAnnealingLR(o, 5, 0.1); },
       [](auto& o) { return lr::CosineAnnealingLR(o, {.T_max = 5, .eta_min = 0.1}); });
  same([](auto& o) { return lr::LinearLR(o, 0.5, 0.9, 4); },
       [](auto& o) {
         return lr::LinearLR(o, {.start_factor = 0.5, .end_factor = 0.9, .total_iters = 4});
       });
  const auto factor = [](std::int64_t epoch) { return 1.0 / static_cast<double>(epoch + 1); };
  same([&](auto& o) { return lr::LambdaLR(o, factor); },
       [&](auto& o) { return lr::LambdaLR(o, {.lr_lambda = factor}); });
  optim::SGD optimizer({w}, 0.8);
  expect_error<InvalidArgumentError>([&] { lr::StepLR(optimizer, {.gamma = 0.5}); },
                                     "[StepLR] expected step_size of 1 or more");
}

// The rates of OneCycleLR's documentation: from max_lr / div_factor to max_lr in the first part of
// the steps, then down to a fraction of the first rate; in three phases first back to that rate.
TEST(LrScheduler, OneCycleFollowsPyTorch) {
  namespace lr = optim::lr_scheduler;
  const Variable w = variable_of({1.0});
  const auto cosine = [](double from, double to, double part) {
    return to + (from - to) / 2.0 * (1.0 + std::cos(std::numbers::pi * part));
  };
  {
    optim::SGD optimizer({w}, 0.8);
    lr::OneCycleLR scheduler(
        optimizer, {.max_lr = 0.5, .total_steps = 10, .pct_start = 0.4, .cycle_momentum = false});
    // Steps 0 to 3 rise, 3 to 9 fall.
    EXPECT_NEAR(optimizer.learning_rate(), 0.02, 1e-15);
    Values expected;
    for (int step = 1; step <= 3; ++step) expected.push_back(cosine(0.02, 0.5, step / 3.0));
    for (int step = 4; step <= 9; ++step)
      expected.push_back(cosine(0.5, 0.02e-4, (step - 3) / 6.0));
    expect_near(rates_of(scheduler, 9), expected);
    EXPECT_NEAR(optimizer.learning_rate(), 0.02e-4, 1e-15);
  }
  {
    optim::SGD optimizer({w}, 0.8);
    lr::OneCycleLR scheduler(optimizer, {.max_lr = 0.5,
                                         .epochs = 2,
                                         .steps_per_epoch = 5,
                                         .pct_start = 0.4,
                                         .anneal_strategy = "linear",
                                         .cycle_momentum = false,
                                         .div_factor = 5.0,
                                         .final_div_factor = 10.0,
                                         .three_phase = true});
    // Steps 0 to 3 rise from 0.1 to 0.5, 3 to 6 fall back, 6 to 9 fall to 0.01.
    expect_near(rates_of(scheduler, 9), {0.1 + 0.4 / 3, 0.1 + 0.8 / 3, 0.5, 0.1 + 0.8 / 3,
                                         0.1 + 0.4 / 3, 0.1, 0.07, 0.04, 0.01});
    scheduler.step();
    EXPECT_NEAR(optimizer.learning_rate(), 0.01, 1e-15);
    expect_error<InvalidArgumentError>([&] { scheduler.step(); }, "10 steps");
  }
  optim::SGD optimizer({w}, 0.8);
  expect_error<UnimplementedError>(
      [&] { lr::OneCycleLR(optimizer, {.max_lr = 0.5, .total_steps = 10}); },
      "write .cycle_momentum = false");
  expect_error<InvalidArgumentError>(
      [&] { lr::OneCycleLR(optimizer, {.max_lr = 0.5, .cycle_momentum = false}); },
      "expected total_steps, or epochs and steps_per_epoch");
  expect_error<InvalidArgumentError>(
      [&] {
        lr::OneCycleLR(
            optimizer,
            {.max_lr = 0.5, .total_steps = 4, .anneal_strategy = "cubic", .cycle_momentum = false});
      },
      "'cubic'");
}

// A run that is continued from state dicts equals one that was not interrupted, bit by bit.
TEST(Optim, StateDictsContinueARun) {
  const auto continued = [](const auto& make, bool interrupted) {
    Variable a = variable_of(start(), float32), b = variable_of({0.5, -0.5}, float32);
    optim::Optimizer optimizer = make(a, b);
    for (int step = 1; step <= kSteps; ++step) {
      if (interrupted && step == kSteps / 2) {
        const std::map<std::string, Tensor> state = optimizer.state_dict();
        a = Variable(a.value().detach());
        b = Variable(b.value().detach());
        optimizer = make(a, b);
        optimizer.load_state_dict(state);
      }
      const Values g = gradient_at(step);
      set_gradient(a, g);
      if (step % 2 == 0) set_gradient(b, {g[0], g[1]});
      optimizer.step();
      optimizer.zero_grad();
      optimizer.param_groups()[1].set_lr(optimizer.param_groups()[1].lr() * 0.7);
    }
    Values result = values_of(a);
    for (double value : values_of(b)) result.push_back(value);
    return result;
  };
  const auto expect_same = [&](const auto& make) {
    EXPECT_EQ(continued(make, true), continued(make, false));
  };
  expect_same([](const Variable& a, const Variable& b) {
    return optim::Optimizer(optim::Adam({{.params = {a}}, {.params = {b}, .lr = 0.1}}));
  });
  expect_same([](const Variable& a, const Variable& b) {
    return optim::Optimizer(
        optim::SGD({{.params = {a}}, {.params = {b}, .lr = 0.2}}, {.lr = 0.1, .momentum = 0.9}));
  });
  expect_same([](const Variable& a, const Variable& b) {
    return optim::Optimizer(optim::RMSprop({{.params = {a}}, {.params = {b}, .lr = 0.2}},
                                           {.momentum = 0.9, .centered = true}));
  });
}

TEST(Optim, StateDictsHaveTheNamesOfPyTorchAndAreChecked) {
  const Variable w = variable_of({1.0, 2.0}), v = variable_of({1.0});
  optim::Adam adam({w, v}, {.lr = 0.5});
  const std::map<std::string, Tensor> state = adam.state_dict();
  std::vector<std::string> names;
  for (const auto& [name, tensor] : state) names.push_back(name);
  EXPECT_EQ(names, (std::vector<std::string>{"iterations", "param_groups.0.lr", "state.0.exp_avg",
                                             "state.0.exp_avg_sq", "state.1.exp_avg",
                                             "state.1.exp_avg_sq"}));
  EXPECT_EQ(state.at("param_groups.0.lr").item(), 0.5);
  optim::SGD sgd({w, v}, {.lr = 0.1, .momentum = 0.5});
  expect_error<InvalidArgumentError>([&] { sgd.load_state_dict(state); },
                                     "[sgd] expected 'state.0.momentum_buffer' in the state");
  EXPECT_EQ(sgd.learning_rate(), 0.1);
  std::map<std::string, Tensor> wrong = state;
  wrong["state.1.exp_avg_sq"] = constant({1.0, 2.0}, {.dtype = float64});
  expect_error<InvalidArgumentError>([&] { adam.load_state_dict(wrong); }, "'state.1.exp_avg_sq'");
}

TEST(LrScheduler, ActsOnEveryGroup) {
  const Variable a = variable_of({1.0}), b = variable_of({1.0});
  optim::SGD optimizer({{.params = {a}, .lr = 0.1}, {.params = {b}, .lr = 0.2}});
  optim::lr_scheduler::StepLR scheduler(optimizer, 1, 0.5);
  scheduler.step();
  expect_near(scheduler.get_last_lr(), {0.05, 0.1});
}

TEST(LrScheduler, ActsOnAnOptimizerWithoutGroups) {
  optimizers::Adam optimizer(0.1);
  optim::lr_scheduler::ExponentialLR scheduler(optimizer, 0.5);
  scheduler.step();
  EXPECT_EQ(optimizer.learning_rate(), 0.05);
  optimizer.set_learning_rate(optimizers::schedules::exponential_decay(0.1, 1, 0.5));
  expect_error<InvalidArgumentError>([&] { optim::lr_scheduler::ExponentialLR(optimizer, 0.5); },
                                     "[lr_scheduler]");
}

TEST(LrScheduler, ReducesOnAPlateau) {
  const Variable w = variable_of({1.0});
  optim::SGD optimizer({w}, 1.0);
  optim::lr_scheduler::ReduceLROnPlateau scheduler(optimizer, {.factor = 0.5, .patience = 1});
  Values rates;
  for (double loss : {1.0, 0.5, 0.5, 0.5, 0.4, 0.4}) {
    scheduler.step(loss);
    rates.push_back(scheduler.get_last_lr().at(0));
  }
  expect_near(rates, {1.0, 1.0, 1.0, 0.5, 0.5, 0.5});
}

// --- clipping ---

TEST(ClipGradients, ScalesByTheNormOfAll) {
  const Variable a = variable_of({0.0, 0.0}), b = variable_of({0.0}), without = variable_of({0.0});
  const auto set = [&] {
    set_gradient(a, {3.0, 0.0});
    set_gradient(b, {-4.0});
  };
  set();
  EXPECT_NEAR(nn::utils::clip_grad_norm_({a, b, without}, 1.0), 5.0, 1e-12);
  const double factor = 1.0 / (5.0 + 1e-6);
  expect_tensor(a.grad(), float64, {2}, {3.0 * factor, 0.0}, 1e-12);
  expect_tensor(b.grad(), float64, {1}, {-4.0 * factor}, 1e-12);
  EXPECT_FALSE(without.grad().defined());
  set();
  EXPECT_NEAR(nn::utils::clip_grad_norm_({a, b}, 10.0), 5.0, 1e-12);
  expect_tensor(b.grad(), float64, {1}, {-4.0}, 0.0);
  EXPECT_NEAR(nn::utils::clip_grad_norm_({a, b}, 10.0, 1.0), 7.0, 1e-12);
  EXPECT_NEAR(nn::utils::clip_grad_norm_({a, b}, 2.0, std::numeric_limits<double>::infinity()), 4.0,
              1e-12);
  expect_tensor(b.grad(), float64, {1}, {-8.0 / (4.0 + 1e-6)}, 1e-12);
}

TEST(ClipGradients, NonFiniteNormsMayBeErrors) {
  const Variable a = variable_of({0.0});
  set_gradient(a, {std::numeric_limits<double>::infinity()});
  expect_error<InvalidArgumentError>(
      [&] { nn::utils::clip_grad_norm_({a}, 1.0, {.error_if_nonfinite = true}); },
      "[clip_grad_norm_]");
}

TEST(ClipGradients, LimitsElements) {
  const Variable a = variable_of({0.0, 0.0, 0.0});
  set_gradient(a, {3.0, -0.1, -4.0});
  nn::utils::clip_grad_value_({a}, 0.5);
  expect_tensor(a.grad(), float64, {3}, {0.5, -0.1, -0.5}, 0.0);
}

TEST(Options, AreSetOneAfterAnother) {
  using namespace optim;
  const SGDGroup sgd = SGDOptions(0.1).momentum(0.9).nesterov(true);
  EXPECT_EQ(std::tuple(sgd.lr, sgd.momentum, sgd.nesterov, sgd.dampening),
            std::tuple(0.1, 0.9, true, std::optional<double>()));
  const AdamGroup adam = AdamOptions(2e-4).betas(std::make_tuple(0.5, 0.9)).weight_decay(0.1);
  EXPECT_EQ(adam.betas.values(), std::pair(0.5, 0.9));
  EXPECT_EQ(adam.weight_decay, 0.1);
  EXPECT_EQ(RMSprop({variable_of(start())}, RMSpropOptions().alpha(0.9)).learning_rate(), 1e-2);
}

}  // namespace
}  // namespace tandem::optim_test
