// Compares optimizers with double-precision implementations of the published rules.
#include "tandem/optimizers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "device/device_manager.h"
#include "support/gpus.h"
#include "support/tensors.h"
#include "tandem/autodiff.h"
#include "tandem/device.h"
#include "tandem/math.h"
#include "tensor/tensor_impl.h"

namespace tandem::optimizers_test {
namespace {

using namespace optimizers;
using testing::expect_error;
using testing::expect_tensor;
using testing::random_values;
using testing::values_of;

using Values = std::vector<double>;

constexpr std::int64_t kSize = 6;
constexpr int kSteps = 7;

Values gradient_at(int step) {
  return random_values(kSize, 100 + static_cast<std::uint32_t>(step), -1.0, 1.0);
}
Values start() { return random_values(kSize, 5, -1.0, 1.0); }

// The reference: called in each step (numbered from 1) with the gradient and with the values, which
// it updates.
using Rule = std::function<void(int step, Values& w, const Values& g)>;

void expect_follows(const std::function<Optimizer()>& make, const std::function<Rule()>& rule) {
  for (const auto& [dtype, tolerance] : {std::pair{float64, 1e-12}, std::pair{float32, 2e-6}}) {
    Optimizer optimizer = make();
    Variable variable(constant(start(), {.dtype = dtype}), {.name = "w"});
    Values expected = start();
    const Rule reference = rule();
    for (int step = 1; step <= kSteps; ++step) {
      optimizer.apply_gradients({constant(gradient_at(step), {.dtype = dtype})}, {variable});
      reference(step, expected, gradient_at(step));
      SCOPED_TRACE(optimizer.name() + " step " + std::to_string(step));
      expect_tensor(variable, dtype, {kSize}, expected, tolerance);
    }
    EXPECT_EQ(optimizer.iterations(), kSteps);
  }
}

// Calls f(w[i], g[i], i) for every element.
template <class F>
void each(Values& w, const Values& g, const F& f) {
  for (std::size_t i = 0; i < w.size(); ++i) f(w[i], g[i], i);
}

TEST(Optimizers, SgdWithMomentumNesterovAndDecay) {
  for (double momentum : {0.0, 0.9})
    for (bool nesterov : {false, true})
      for (double decay : {0.0, 0.05}) {
        if (nesterov && momentum == 0.0) continue;  // refused
        expect_follows(
            [&] {
              return SGD({.learning_rate = 0.1,
                          .momentum = momentum,
                          .nesterov = nesterov,
                          .weight_decay = decay});
            },
            [&] {
              return [=, m = Values(kSize)](int, Values& w, const Values& g) mutable {
                each(w, g, [&](double& x, double d, std::size_t i) {
                  x -= 0.1 * decay * x;
                  m[i] = momentum * m[i] - 0.1 * d;
                  x += nesterov ? momentum * m[i] - 0.1 * d : m[i];
                });
              };
            });
      }
}

Rule adam_rule(double rate, double b1, double b2, double epsilon, double decay) {
  return [=, m = Values(kSize), v = Values(kSize)](int step, Values& w, const Values& g) mutable {
    const double alpha = rate * std::sqrt(1.0 - std::pow(b2, step)) / (1.0 - std::pow(b1, step));
    each(w, g, [&](double& x, double d, std::size_t i) {
      x -= rate * decay * x;
      m[i] = b1 * m[i] + (1.0 - b1) * d;
      v[i] = b2 * v[i] + (1.0 - b2) * d * d;
      x -= alpha * m[i] / (std::sqrt(v[i]) + epsilon);
    });
  };
}

TEST(Optimizers, AdamEqualsItsFormula) {
  expect_follows([] { return Adam(); }, [] { return adam_rule(1e-3, 0.9, 0.999, 1e-7, 0.0); });
  expect_follows(
      [] { return Adam({.learning_rate = 0.05, .beta_1 = 0.8, .beta_2 = 0.95, .epsilon = 1e-3}); },
      [] { return adam_rule(0.05, 0.8, 0.95, 1e-3, 0.0); });
}

TEST(Optimizers, AmsgradEqualsItsFormula) {
  for (const bool decoupled : {false, true}) {
    const double decay = decoupled ? 0.2 : 0.0;
    expect_follows(
        [&]() -> Optimizer {
          if (decoupled)
            return AdamW(
                {.learning_rate = 0.1, .weight_decay = 0.2, .beta_2 = 0.5, .amsgrad = true});
          return Adam({.learning_rate = 0.1, .beta_2 = 0.5, .amsgrad = true});
        },
        [&] {
          return [=, m = Values(kSize), v = Values(kSize), largest = Values(kSize)](
                     int step, Values& w, const Values& g) mutable {
            const double alpha =
                0.1 * std::sqrt(1.0 - std::pow(0.5, step)) / (1.0 - std::pow(0.9, step));
            each(w, g, [&](double& x, double d, std::size_t i) {
              x -= 0.1 * decay * x;
              m[i] = 0.9 * m[i] + 0.1 * d;
              v[i] = 0.5 * v[i] + 0.5 * d * d;
              largest[i] = std::max(largest[i], v[i]);
              x -= alpha * m[i] / (std::sqrt(largest[i]) + 1e-7);
            });
          };
        });
  }
}

TEST(Optimizers, AdamWDecaysApartFromTheGradient) {
  expect_follows([] { return AdamW(); }, [] { return adam_rule(1e-3, 0.9, 0.999, 1e-7, 0.004); });
  expect_follows([] { return AdamW({.learning_rate = 0.1, .weight_decay = 0.2}); },
                 [] { return adam_rule(0.1, 0.9, 0.999, 1e-7, 0.2); });
}

TEST(Optimizers, RmsPropWithMomentumAndCentred) {
  for (double momentum : {0.0, 0.5})
    for (bool centered : {false, true})
      expect_follows(
          [&] {
            return RMSprop({.learning_rate = 0.01,
                            .momentum = momentum,
                            .epsilon = 1e-4,
                            .centered = centered});
          },
          [&] {
            return [=, ms = Values(kSize), mg = Values(kSize), mom = Values(kSize)](
                       int, Values& w, const Values& g) mutable {
              each(w, g, [&](double& x, double d, std::size_t i) {
                ms[i] = 0.9 * ms[i] + 0.1 * d * d;
                mg[i] = 0.9 * mg[i] + 0.1 * d;
                const double spread = centered ? ms[i] - mg[i] * mg[i] : ms[i];
                mom[i] = momentum * mom[i] + 0.01 * d / std::sqrt(spread + 1e-4);
                x -= mom[i];
              });
            };
          });
}

TEST(Optimizers, AdagradStartsFromItsAccumulator) {
  for (double initial : {0.1, 0.0})
    expect_follows(
        [&] { return Adagrad({.learning_rate = 0.1, .initial_accumulator_value = initial}); },
        [&] {
          return [sum = Values(kSize, initial)](int, Values& w, const Values& g) mutable {
            each(w, g, [&](double& x, double d, std::size_t i) {
              sum[i] += d * d;
              x -= 0.1 * d / std::sqrt(sum[i] + 1e-7);
            });
          };
        });
}

TEST(Optimizers, LambScalesByTheTrustRatio) {
  for (double decay : {0.0, 0.1})
    expect_follows([&] { return LAMB({.learning_rate = 0.02, .weight_decay = decay}); },
                   [&] {
                     return [decay, m = Values(kSize), v = Values(kSize)](int step, Values& w,
                                                                          const Values& g) mutable {
                       Values r(kSize);
                       double w_norm = 0.0, r_norm = 0.0;
                       each(w, g, [&](double& x, double d, std::size_t i) {
                         m[i] = 0.9 * m[i] + 0.1 * d;
                         v[i] = 0.999 * v[i] + 0.001 * d * d;
                         r[i] = m[i] / (1.0 - std::pow(0.9, step)) /
                                    (std::sqrt(v[i] / (1.0 - std::pow(0.999, step))) + 1e-6) +
                                decay * x;
                         w_norm += x * x;
                         r_norm += r[i] * r[i];
                       });
                       const double ratio = std::sqrt(w_norm) / std::sqrt(r_norm);
                       each(w, g,
                            [&](double& x, double, std::size_t i) { x -= 0.02 * ratio * r[i]; });
                     };
                   });
}

TEST(Optimizers, TheRateFollowsItsSchedule) {
  expect_follows([] { return SGD({.learning_rate = schedules::exponential_decay(0.1, 2, 0.5)}); },
                 [] {
                   return [](int step, Values& w, const Values& g) {
                     each(w, g, [&](double& x, double d, std::size_t) {
                       x -= 0.1 * std::pow(0.5, (step - 1) / 2.0) * d;
                     });
                   };
                 });
}

// --- clipping ---

Values clipped_by(double bound, double norm, Values g) {
  for (double& v : g) v *= bound / std::max(norm, bound);
  return g;
}

double norm_of(const Values& g) {
  double sum = 0.0;
  for (double v : g) sum += v * v;
  return std::sqrt(sum);
}

// The change that SGD with learning rate 1 makes for gradients a and b.
std::pair<Values, Values> step_of(const SGDOptions& options, const Values& a, const Values& b) {
  const std::vector<Variable> variables{Variable(zeros({kSize}, {.dtype = float64})),
                                        Variable(zeros({kSize}, {.dtype = float64})),
                                        Variable(zeros({1}, {.dtype = float64}))};
  SGD(options).apply_gradients({constant(a), constant(b), Tensor()}, variables);
  return {values_of(negative(variables[0])), values_of(negative(variables[1]))};
}

void expect_near(const Values& a, const Values& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e-12);
}

TEST(Optimizers, ClipGradients) {
  const Values a = gradient_at(1), b = gradient_at(2);
  Values bounded = a;
  for (double& v : bounded) v = std::clamp(v, -0.3, 0.3);
  expect_near(step_of({.learning_rate = 1.0, .clipvalue = 0.3}, a, b).first, bounded);
  expect_near(step_of({.learning_rate = 1.0, .clipnorm = 0.5}, a, b).first,
              clipped_by(0.5, norm_of(a), a));
  expect_near(step_of({.learning_rate = 1.0, .clipnorm = 0.5}, a, b).second,
              clipped_by(0.5, norm_of(b), b));
  const double together = std::hypot(norm_of(a), norm_of(b));
  expect_near(step_of({.learning_rate = 1.0, .global_clipnorm = 0.5}, a, b).first,
              clipped_by(0.5, together, a));
  expect_near(step_of({.learning_rate = 1.0, .global_clipnorm = 0.5}, a, b).second,
              clipped_by(0.5, together, b));
  expect_near(step_of({.learning_rate = 1.0, .global_clipnorm = 100.0}, a, b).second, b);
}

TEST(Optimizers, AcceptAtMostOneGradientBound) {
  expect_error<InvalidArgumentError>(
      [] { SGD({.clipnorm = 1.0, .clipvalue = 1.0}); },
      "[sgd] expected at most one of clipvalue, clipnorm and global_clipnorm, got 2");
  expect_error<InvalidArgumentError>([] { Adam({.clipnorm = -1.0}); },
                                     "[adam] expected a positive bound on gradients, got -1");
}

// --- the types ---

TEST(Optimizers, AreTypesThatConstructAnOptimizer) {
  const Variable w(constant({1.0}));
  const auto rate_of = [](const Optimizer& optimizer) { return optimizer.learning_rate(); };
  Adam adam(0.5);
  EXPECT_EQ(rate_of(adam), 0.5);
  EXPECT_EQ(rate_of(SGD({w}, 0.25)), 0.25);
  EXPECT_EQ(SGD({w}, {.learning_rate = 0.25}).parameters(), std::vector<Variable>{w});
  EXPECT_EQ(AdamW(std::vector<Variable>{w}).parameters(), std::vector<Variable>{w});
  Optimizer copy = adam;
  copy.set_learning_rate(0.125);
  EXPECT_EQ(adam.learning_rate(), 0.125);  // the same optimizer
  const std::unique_ptr<Optimizer> pointer = std::make_unique<RMSprop>(0.5);
  EXPECT_EQ(pointer->name(), "rmsprop");
  const Optimizer shared = std::make_shared<Adagrad>(0.5);
  EXPECT_EQ(shared.name(), "adagrad");
  copy = SGD(0.5);
  EXPECT_EQ(copy.name(), "sgd");
  EXPECT_FALSE(Optimizer().defined());
}

TEST(Optimizers, SgdTakesAMomentumByPosition) {
  for (bool nesterov : {false, true}) {
    const Variable a(constant(start())), b(constant(start()));
    SGD by_position(0.1, 0.9, nesterov);
    SGD by_name({.learning_rate = 0.1, .momentum = 0.9, .nesterov = nesterov});
    for (int step = 1; step <= 3; ++step) {
      by_position.apply_gradients({constant(gradient_at(step))}, {a});
      by_name.apply_gradients({constant(gradient_at(step))}, {b});
    }
    expect_near(values_of(a), values_of(b));
  }
}

TEST(Optimizers, TakeARateBeforeTheOtherOptions) {
  const auto stepped = [](optimizers::Optimizer optimizer) {
    const Variable w(constant({1.0, -2.0}));
    for (int i = 0; i < 3; ++i) {
      GradientTape tape;
      const Tensor loss = reduce_sum(square(w));
      optimizer.minimize(loss, {w}, tape);
    }
    return w.value().to_vector<float>();
  };
  EXPECT_EQ(stepped(optimizers::SGD(0.1, {.momentum = 0.9})),
            stepped(optimizers::SGD({.learning_rate = 0.1, .momentum = 0.9})));
  EXPECT_EQ(stepped(optimizers::AdamW(0.1, {.beta_1 = 0.5, .epsilon = 1e-3})),
            stepped(optimizers::AdamW({.learning_rate = 0.1, .beta_1 = 0.5, .epsilon = 1e-3})));
  const optimizers::LossScaleOptimizer scaled(optimizers::SGD(0.1, {.momentum = 0.9}));
  EXPECT_EQ(stepped(scaled), stepped(optimizers::SGD(0.1, {.momentum = 0.9})));
  EXPECT_EQ(scaled.iterations(), 3);
}

TEST(Optimizers, AdamMayDecayWeights) {
  expect_follows([] { return Adam({.learning_rate = 0.1, .weight_decay = 0.2}); },
                 [] { return adam_rule(0.1, 0.9, 0.999, 1e-7, 0.2); });
}

// --- the three APIs: minimize, apply_gradients and step ---

TEST(Optimizers, MinimizeApplyGradientsAndStepAgree) {
  const Tensor x = constant({{1.0, -2.0}, {0.5, 3.0}});
  const auto loss_of = [&](const Variable& w) { return reduce_sum(square(matmul(x, w))); };
  const auto fresh = [] { return Variable(constant({{0.3}, {0.7}}), {.name = "w"}); };
  const SGDOptions options{.learning_rate = 0.01, .momentum = 0.9};

  const Variable applied = fresh(), minimized = fresh(), stepped = fresh();
  Optimizer first = SGD(options), second = SGD(options), third = SGD(options, {stepped});
  for (int step = 0; step < 3; ++step) {
    {
      GradientTape tape;
      first.apply_gradients(tape.gradient(loss_of(applied), std::vector<Variable>{applied}),
                            {applied});
    }
    second.minimize(loss_of(minimized), {minimized});
    third.zero_grad();
    loss_of(stepped).backward();
    third.step();
  }
  EXPECT_EQ(values_of(applied), values_of(minimized));
  EXPECT_EQ(values_of(applied), values_of(stepped));
  EXPECT_NE(values_of(applied), values_of(fresh()));
  EXPECT_FALSE(minimized.grad().defined()) << "minimize() leaves grad() alone";
  third.zero_grad();
  EXPECT_FALSE(stepped.grad().defined());
}

TEST(Optimizers, AVariableWithoutAGradientStays) {
  const Variable used(ones({2})), unused(ones({2}));
  Optimizer optimizer = Adam();
  optimizer.minimize(reduce_sum(square(used)), {used, unused});
  EXPECT_EQ(values_of(unused), (Values{1.0, 1.0}));
  EXPECT_NE(values_of(used), (Values{1.0, 1.0}));
  EXPECT_EQ(optimizer.iterations(), 1);
}

TEST(Optimizers, WarnsOnceAboutVariablesWithoutAGradient) {
  Variable w(constant({1.0, 2.0}), {.name = "w"}), b(constant({3.0}), {.name = "b"});
  Optimizer sgd = SGD({.learning_rate = 1.0}, {w, b});
  ::testing::internal::CaptureStderr();
  for (int step = 0; step < 2; ++step) sgd.apply_gradients({ones({2}), Tensor()}, {w, b});
  const std::string log = ::testing::internal::GetCapturedStderr();
  const std::string line = "Gradients do not exist for variables [b] when minimizing the loss";
  EXPECT_NE(log.find(line), std::string::npos) << log;
  EXPECT_EQ(log.find(line), log.rfind(line)) << log;  // once
  EXPECT_EQ(b.value().to_vector<float>(), (std::vector<float>{3.0f}));
  expect_error<InvalidArgumentError>(
      [&] {
        sgd.apply_gradients({Tensor(), Tensor()}, {w, b});
      },
      "[sgd] No gradients provided for any variable: [w, b].");
  sgd.step();  // as after zero_grad(), without backward()
  EXPECT_EQ(w.value().to_vector<float>(), (std::vector<float>{-1.0f, 0.0f}));
}

TEST(Optimizers, ReadersKeepTheOldValue) {
  Variable w(ones({2}));
  const Tensor before = w;
  SGD({.learning_rate = 0.5}).apply_gradients({ones({2})}, {w});
  EXPECT_EQ(values_of(before), (Values{1.0, 1.0}));
  EXPECT_EQ(values_of(w), (Values{0.5, 0.5}));
}

TEST(Optimizers, StepsWorkInPlace) {
  Variable w(ones({1024}));
  Optimizer optimizer = SGD({.momentum = 0.9});
  const Tensor gradient = ones({1024});
  optimizer.apply_gradients({gradient}, {w});
  const std::byte* const address = impl_of(w.value()).data();
  optimizer.apply_gradients({gradient}, {w});
  EXPECT_EQ(impl_of(w.value()).data(), address);
}

TEST(Optimizers, BadListsAreRefused) {
  const Variable w(ones({2}), {.name = "w"}),
      fixed(ones({2}), {.trainable = false, .name = "fixed"});
  Optimizer optimizer = SGD();
  const auto refused = [](const auto& call, const std::string& text) {
    expect_error<InvalidArgumentError>(call, text);
  };
  refused([&] { optimizer.apply_gradients({}, {w}); },
          "[sgd] expected a gradient for each of 1 variables, got 0");
  refused([&] { optimizer.apply_gradients({}, std::vector<Variable>()); },
          "[sgd] expected variables to update, got none");
  refused([&] { optimizer.apply_gradients({ones({3})}, {w}); },
          "[sgd] expected a gradient of shape (2,) and dtype float32 for variable 'w', got (3,) "
          "and float32");
  refused([&] { optimizer.apply_gradients({ones({2}, {.dtype = float64})}, {w}); },
          "got (2,) and float64");
  refused([&] { optimizer.minimize(reduce_sum(w.value()) * 1.0, {fixed}); },
          "[sgd] variable 'fixed' is not trainable");
  refused([&] { optimizer.minimize(w.value() * 1.0, {w}); },
          "[sgd] expected a scalar loss, got shape (2,)");
  expect_error<FailedPreconditionError>([&] { optimizer.minimize(constant(1.0), {w}); },
                                        "[sgd] the loss depends on no trainable variable");
  expect_error<FailedPreconditionError>([&] { optimizer.step(); },
                                        "[sgd] step() needs parameters, got none");
  expect_error<FailedPreconditionError>([] { Optimizer().name(); }, "[Optimizer]");
  EXPECT_EQ(optimizer.iterations(), 0);
}

TEST(Optimizers, BadOptionsAreRefused) {
  const auto refused = [](const auto& make, const std::string& text) {
    expect_error<InvalidArgumentError>(make, text);
  };
  refused([] { SGD({.momentum = 1.5}); }, "[sgd] expected momentum in [0, 1], got 1.5");
  refused([] { SGD({.nesterov = true}); }, "[sgd] Nesterov momentum requires a momentum, got 0");
  refused([] { SGD({.weight_decay = -1.0}); },
          "[sgd] expected a finite weight_decay of 0 or more, got -1");
  refused([] { Adam({.beta_1 = -0.1}); }, "[adam] expected beta_1 in [0, 1), got -0.1");
  refused([] { Adam({.beta_1 = 1.0}); }, "[adam] expected beta_1 in [0, 1), got 1");
  refused([] { LAMB({.beta_2 = NAN}); }, "[lamb] expected beta_2 in [0, 1), got nan");
  refused([] { RMSprop({.rho = 1.0}); }, "[rmsprop] expected rho in [0, 1), got 1");
  refused([] { Adagrad({.epsilon = -1.0}); },
          "[adagrad] expected a finite epsilon of 0 or more, got -1");
  refused([] { Adam({.learning_rate = NAN}); },
          "[adam] expected a finite learning rate of 0 or more, got nan");
  refused([] { SGD().set_learning_rate(-0.1); },
          "[sgd] expected a finite learning rate of 0 or more, got -0.1");
  refused([] { Adagrad({.initial_accumulator_value = -1.0}); },
          "[adagrad] expected a finite initial accumulator of 0 or more, got -1");
  refused([] { from_name("adamm"); },
          "[optimizers] expected one of: sgd, adam, adamw, rmsprop, adagrad, lamb; got 'adamm'");
}

TEST(Optimizers, AScheduleThatEndsInNaNIsAnErrorOfItsStep) {
  const Variable w(ones({2}));
  SGDOptions options;
  options.learning_rate =
      LearningRate::Schedule([](std::int64_t step) { return step < 2 ? 0.5 : NAN; });
  Optimizer optimizer = SGD(options, {w});
  const auto step = [&] { optimizer.apply_gradients({ones({2})}, {w}); };
  step();
  step();
  expect_error<InvalidArgumentError>(
      step, "[sgd] expected a finite learning rate of 0 or more, got nan in step 2");
  EXPECT_EQ(values_of(w.value()), (std::vector<double>{0.0, 0.0}));
}

TEST(Optimizers, AreFoundByName) {
  for (const char* name : {"sgd", "adam", "adamw", "rmsprop", "adagrad", "lamb"})
    EXPECT_EQ(from_name(name).name(), name);
  EXPECT_EQ(from_name("sgd").learning_rate(), 0.01);
  EXPECT_EQ(from_name("adam").learning_rate(), 1e-3);
  EXPECT_EQ(from_name("adam", 0.5).learning_rate(), 0.5);
}

// --- state ---

TEST(Optimizers, VariablesAreTheStepCounterAndSlots) {
  const Variable a(ones({2}), {.name = "dense/kernel"}), b(ones({3}), {.name = "dense/bias"});
  Optimizer optimizer = Adam();
  EXPECT_TRUE(optimizer.variables().empty());
  EXPECT_EQ(optimizer.iterations(), 0);
  optimizer.build({a, b});
  std::vector<std::string> names;
  for (const Variable& variable : optimizer.variables()) {
    names.push_back(variable.name());
    EXPECT_FALSE(variable.trainable());
  }
  EXPECT_EQ(names, (std::vector<std::string>{
                       "iterations", "adam/dense/kernel/momentum", "adam/dense/kernel/velocity",
                       "adam/dense/bias/momentum", "adam/dense/bias/velocity"}));
  EXPECT_EQ(optimizer.variables()[0].dtype(), int64);
  optimizer.apply_gradients({ones({2}), ones({3})}, {a, b});
  EXPECT_EQ(optimizer.variables().size(), 5u);
  EXPECT_EQ(optimizer.variables()[0].value().item<std::int64_t>(), 1);
}

TEST(Optimizers, ContinuesExactlyFromRestoredState) {
  const auto train = [](Optimizer& optimizer, const Variable& w, int from, int to) {
    for (int step = from; step < to; ++step)
      optimizer.apply_gradients({constant(gradient_at(step))}, {w});
  };
  const auto make = [] {
    return Adam({.learning_rate = schedules::inverse_time_decay(0.1, 3, 0.5)});
  };
  const Variable whole(constant(start())), before(constant(start()));
  Optimizer unbroken = make(), broken = make(), resumed = make();
  train(unbroken, whole, 0, 6);
  train(broken, before, 0, 3);

  const Variable after(before.value());
  resumed.build({after});
  auto saved = broken.variables(), restored = resumed.variables();
  ASSERT_EQ(saved.size(), restored.size());
  for (std::size_t i = 0; i < saved.size(); ++i) restored[i].assign(saved[i]);
  EXPECT_EQ(resumed.iterations(), 3);
  EXPECT_EQ(resumed.learning_rate(), broken.learning_rate());
  train(resumed, after, 3, 6);
  EXPECT_EQ(values_of(after), values_of(whole));
}

TEST(Optimizers, SettingTheRateReplacesTheSchedule) {
  Optimizer optimizer = SGD({.learning_rate = schedules::exponential_decay(0.1, 1, 0.5)});
  Variable w(zeros({1}));
  optimizer.apply_gradients({ones({1})}, {w});
  EXPECT_NEAR(optimizer.learning_rate(), 0.05, 1e-15);
  optimizer.set_learning_rate(0.3);
  EXPECT_EQ(optimizer.learning_rate(), 0.3);
  optimizer.apply_gradients({ones({1})}, {w});
  expect_tensor(w, float32, {1}, {-0.4}, 1e-6);
}

TEST(Optimizers, SlotsAreOnTheDeviceOfTheirVariable) {
  testing::use_gpus(1, 64);
  DeviceScope gpu("/gpu:0");
  const Variable w(ones({100'000}), {.name = "w"});
  Optimizer optimizer = Adam();
  Allocator& allocator =
      DeviceManager::get().devices(DeviceType::kGpu, "test").front()->allocator();
  const auto tagged = [&](MemoryTag tag) {
    return allocator.stats().bytes_by_tag[static_cast<std::size_t>(tag)];
  };
  const auto weights = tagged(MemoryTag::kWeights), before = tagged(MemoryTag::kOptimizer);
  optimizer.build({w});
  EXPECT_EQ(optimizer.variables()[1].device(), w.device());
  EXPECT_EQ(optimizer.variables()[0].device(), DeviceManager::get().host().full_name());
  EXPECT_EQ(tagged(MemoryTag::kWeights), weights);
  EXPECT_NEAR(static_cast<double>(tagged(MemoryTag::kOptimizer) - before), 800'000.0, 2'000.0);
  optimizer.apply_gradients({ones({100'000})}, {w});
  EXPECT_NEAR(w.value().cpu().to_vector<float>()[7], 1.0 - 1e-3, 1e-6);
}

}  // namespace
}  // namespace tandem::optimizers_test
