#include <gtest/gtest.h>

#include <cmath>

#include "ops/nn/update.h"
#include "support/tensors.h"
#include "support/thread_counts.h"
#include "tandem/math.h"

namespace tandem::update_test {
namespace {

using testing::expect_error;
using testing::expect_tensor;
using testing::random_tensor;
using testing::values_of;

constexpr std::int64_t kCount = 20011;  // more than a single thread processes, and odd

// The elements of one variable and its slots, which the reference rules below update.
struct State {
  double variable, slots[3];
};

// Runs three steps of step(tensors, step number) and of the reference rule(state, gradient, number)
// on the same numbers, in every dtype. Slots of 16-bit variables are float32.
template <class Step, class Rule>
void expect_same(int slots, double initial, const Step& step, const Rule& rule) {
  for (const DType dtype : testing::kFloatingTypes) {
    SCOPED_TRACE(name_of(dtype));
    const DType of_slots = dtype == float64 ? float64 : float32;
    std::vector<Tensor> tensors;
    tensors.push_back(random_tensor({kCount}, 1, -1, 1, dtype));
    for (int i = 0; i < slots; ++i) tensors.push_back(full({kCount}, initial, {.dtype = of_slots}));
    std::vector<State> states;
    for (double value : values_of(tensors[0]))
      states.push_back({value, {initial, initial, initial}});
    for (int number = 1; number <= 3; ++number) {
      const Tensor gradient =
          random_tensor({kCount}, static_cast<std::uint32_t>(number + 1), -1, 1, dtype);
      step(tensors, gradient, number);
      const std::vector<double> slopes = values_of(gradient);
      for (std::size_t i = 0; i < states.size(); ++i) rule(states[i], slopes[i], number);
    }
    for (int which = 0; which <= slots; ++which) {
      SCOPED_TRACE(which);
      std::vector<double> expected;
      for (const State& state : states)
        expected.push_back(which == 0 ? state.variable : state.slots[which - 1]);
      expect_tensor(tensors[static_cast<std::size_t>(which)], which == 0 ? dtype : of_slots,
                    {kCount}, expected, 4 * testing::epsilon_of(dtype));
    }
  }
}

TEST(Update, GradientDescentEqualsItsFormula) {
  expect_same(
      0, 0.0,
      [](const auto& t, const Tensor& g, int) {
        update::apply(
            update::GradientDescent{.learning_rate = 0.1, .weight_decay = 0.01, .grad_scale = 0.5},
            t[0], g);
      },
      [](State& s, double g, int) {
        s.variable = s.variable - 0.1 * 0.01 * s.variable - 0.1 * 0.5 * g;
      });
}

TEST(Update, MomentumEqualsItsFormula) {
  for (const bool nesterov : {false, true})
    expect_same(
        1, 0.0,
        [&](const auto& t, const Tensor& g, int) {
          update::apply(
              update::Momentum{
                  .learning_rate = 0.1, .momentum = 0.9, .nesterov = nesterov, .grad_scale = 2.0},
              t[0], t[1], g);
        },
        [&](State& s, double g, int) {
          s.slots[0] = 0.9 * s.slots[0] - 0.1 * 2.0 * g;
          s.variable += nesterov ? 0.9 * s.slots[0] - 0.1 * 2.0 * g : s.slots[0];
        });
}

TEST(Update, DampedMomentumEqualsItsFormula) {
  for (const bool nesterov : {false, true})
    for (const bool after : {false, true})
      expect_same(
          1, 0.0,
          [&](const auto& t, const Tensor& g, int number) {
            update::apply(update::DampedMomentum{.learning_rate = 0.1,
                                                 .dampening = 0.25,
                                                 .nesterov = nesterov,
                                                 .decay_after_momentum = after,
                                                 .step = number,
                                                 .weight_decay = 0.5,
                                                 .grad_scale = 2.0},
                          t[0], t[1], g);
          },
          [&](State& s, double g, int number) {
            const double slope = 2.0 * g + (after ? 0.0 : 0.5 * s.variable);
            s.slots[0] = number == 1 ? slope : 0.9 * s.slots[0] + 0.75 * slope;
            const double direction = nesterov ? slope + 0.9 * s.slots[0] : s.slots[0];
            s.variable -= 0.1 * (direction + (after ? 0.5 * s.variable : 0.0));
          });
}

TEST(Update, AdamAndAdamWEqualTheirFormulas) {
  for (const double decay : {0.0, 0.05})
    expect_same(
        2, 0.0,
        [&](const auto& t, const Tensor& g, int number) {
          update::apply(
              update::Adam{
                  .learning_rate = 0.01, .beta_2 = 0.99, .step = number, .weight_decay = decay},
              t[0], t[1], t[2], g);
        },
        [&](State& s, double g, int number) {
          s.variable -= 0.01 * decay * s.variable;
          s.slots[0] = 0.9 * s.slots[0] + 0.1 * g;
          s.slots[1] = 0.99 * s.slots[1] + 0.01 * g * g;
          const double alpha =
              0.01 * std::sqrt(1 - std::pow(0.99, number)) / (1 - std::pow(0.9, number));
          s.variable -= alpha * s.slots[0] / (std::sqrt(s.slots[1]) + 1e-7);
        });
}

TEST(Update, AmsgradDividesByTheLargestMeanSoFar) {
  expect_same(
      3, 0.0,
      [&](const auto& t, const Tensor& g, int number) {
        update::apply(update::Adam{.learning_rate = 0.01, .beta_2 = 0.5, .step = number}, t[0],
                      t[1], t[2], t[3], g);
      },
      [&](State& s, double g, int number) {
        s.slots[0] = 0.9 * s.slots[0] + 0.1 * g;
        s.slots[1] = 0.5 * s.slots[1] + 0.5 * g * g;
        s.slots[2] = std::max(s.slots[2], s.slots[1]);
        const double alpha =
            0.01 * std::sqrt(1 - std::pow(0.5, number)) / (1 - std::pow(0.9, number));
        s.variable -= alpha * s.slots[0] / (std::sqrt(s.slots[2]) + 1e-7);
      });
}

TEST(Update, RmsPropEqualsItsFormula) {
  for (const bool centred : {false, true})
    for (const double momentum : {0.0, 0.7}) {
      SCOPED_TRACE(::testing::Message() << centred << " " << momentum);
      const int slots = 1 + centred + (momentum != 0.0);
      expect_same(
          slots, 0.0,
          [&](const auto& t, const Tensor& g, int) {
            const Tensor mean = centred ? t[2] : Tensor();
            const Tensor velocity = momentum != 0.0 ? t.back() : Tensor();
            update::apply(
                update::RmsProp{.learning_rate = 0.01, .momentum = momentum, .epsilon = 1e-2}, t[0],
                t[1], velocity, mean, g);
          },
          [&](State& s, double g, int) {
            s.slots[0] = 0.9 * s.slots[0] + 0.1 * g * g;
            double square = s.slots[0];
            if (centred) {
              s.slots[1] = 0.9 * s.slots[1] + 0.1 * g;
              square -= s.slots[1] * s.slots[1];
            }
            double drop = 0.01 * g / std::sqrt(square + 1e-2);
            if (momentum != 0.0) {
              double& velocity = s.slots[centred ? 2 : 1];
              velocity = drop + momentum * velocity;
              drop = velocity;
            }
            s.variable -= drop;
          });
    }
}

TEST(Update, AdagradEqualsItsFormula) {
  expect_same(
      1, 0.1,
      [](const auto& t, const Tensor& g, int) {
        update::apply(update::Adagrad{.learning_rate = 0.1}, t[0], t[1], g);
      },
      [](State& s, double g, int) {
        s.slots[0] += g * g;
        s.variable -= 0.1 * g / std::sqrt(s.slots[0] + 1e-7);
      });
}

TEST(Update, LambEqualsItsFormula) {
  for (const DType dtype : {float32, float64}) {
    const Tensor variable = random_tensor({kCount}, 1, -1, 1, dtype),
                 m = zeros({kCount}, {.dtype = dtype}), v = zeros({kCount}, {.dtype = dtype});
    std::vector<double> w = values_of(variable), first(w.size()), second(w.size());
    for (int number = 1; number <= 3; ++number) {
      const Tensor gradient =
          random_tensor({kCount}, static_cast<std::uint32_t>(number + 1), -1, 1, dtype);
      update::apply(update::Lamb{.learning_rate = 0.05, .step = number, .weight_decay = 0.02},
                    variable, m, v, gradient);
      const std::vector<double> g = values_of(gradient);
      std::vector<double> r;
      double norm_w = 0, norm_r = 0;
      for (std::size_t i = 0; i < w.size(); ++i) {
        first[i] = 0.9 * first[i] + 0.1 * g[i];
        second[i] = 0.999 * second[i] + 0.001 * g[i] * g[i];
        const double m_hat = first[i] / (1 - std::pow(0.9, number)),
                     v_hat = second[i] / (1 - std::pow(0.999, number));
        r.push_back(m_hat / (std::sqrt(v_hat) + 1e-6) + 0.02 * w[i]);
        norm_w += w[i] * w[i];
        norm_r += r.back() * r.back();
      }
      for (std::size_t i = 0; i < w.size(); ++i) w[i] -= 0.05 * std::sqrt(norm_w / norm_r) * r[i];
    }
    expect_tensor(variable, dtype, {kCount}, w, dtype == float32 ? 2e-6 : 1e-13);
  }
}

TEST(Update, LambOfZerosTakesAnUnscaledStep) {
  const Tensor variable = zeros({2}), m = zeros({2}), v = zeros({2});
  update::apply(update::Lamb{.learning_rate = 0.5}, variable, m, v, constant({1.0, -1.0}));
  expect_tensor(variable, float32, {2}, {-0.5, 0.5}, 1e-5);
}

TEST(Update, DoesNotDependOnTheNumberOfThreads) {
  testing::expect_same_bits_with_any_team([] {
    const Tensor variable = random_tensor({70000}, 1, -1, 1, float32), m = zeros({70000}),
                 v = zeros({70000});
    const Tensor gradient = random_tensor({70000}, 2, -1, 1, float32);
    for (int step = 1; step <= 2; ++step) {
      update::apply(update::Adam{.step = step}, variable, m, v, gradient);
      update::apply(update::Lamb{.step = step}, variable, m, v, gradient);
    }
    return values_of(variable);
  });
}

TEST(Update, ExplainsBadInput) {
  expect_error<InvalidArgumentError>(
      [] { update::apply(update::GradientDescent{}, zeros({2}), zeros({3})); },
      "[ApplyGradientDescent] expected a gradient of dtype float32 and shape (2,), got float32 "
      "(3,)");
  expect_error<InvalidArgumentError>(
      [] {
        update::apply(update::Momentum{}, zeros({2}), zeros({2}, {.dtype = float64}), zeros({2}));
      },
      "[ApplyKerasMomentum] expected a slot of dtype float32 and shape (2,), got float64 (2,)");
  expect_error<InvalidArgumentError>(
      [] {
        const Tensor half = zeros({2}, {.dtype = float16});
        update::apply(update::Momentum{}, half, half, half);
      },
      "[ApplyKerasMomentum] expected a slot of dtype float32 and shape (2,), got float16 (2,)");
  expect_error<InvalidArgumentError>(
      [] {
        update::apply(update::RmsProp{.momentum = 0.9}, zeros({2}), zeros({2}), {}, {}, zeros({2}));
      },
      "[RMSprop] expected a momentum slot with momentum 0.9, got none");
}

}  // namespace
}  // namespace tandem::update_test
