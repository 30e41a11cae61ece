// Compares schedules with Keras's formulas.
#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "support/tensors.h"
#include "tandem/optimizers.h"

namespace tandem::schedules_test {
namespace {

using namespace optimizers;
using testing::expect_error;

template <class F>
void expect_schedule(const LearningRate& rate, const F& expected) {
  EXPECT_TRUE(rate.scheduled());
  for (std::int64_t step : {0, 1, 4, 5, 9, 10, 11, 19, 20, 25, 1000})
    EXPECT_NEAR(rate.at(step), expected(static_cast<double>(step)), 1e-14) << "step " << step;
}

TEST(Schedules, AConstantIsNoSchedule) {
  EXPECT_FALSE(LearningRate(0.1).scheduled());
  EXPECT_EQ(LearningRate(0.1).at(1000), 0.1);
}

TEST(Schedules, ExponentialDecayEqualsItsFormula) {
  expect_schedule(schedules::exponential_decay(0.5, 10, 0.9),
                  [](double s) { return 0.5 * std::pow(0.9, s / 10.0); });
  expect_schedule(schedules::exponential_decay(0.5, 10, 0.9, true),
                  [](double s) { return 0.5 * std::pow(0.9, std::floor(s / 10.0)); });
}

TEST(Schedules, InverseTimeDecay) {
  expect_schedule(schedules::inverse_time_decay(0.5, 10, 0.7),
                  [](double s) { return 0.5 / (1.0 + 0.7 * s / 10.0); });
  expect_schedule(schedules::inverse_time_decay(0.5, 10, 0.7, true),
                  [](double s) { return 0.5 / (1.0 + 0.7 * std::floor(s / 10.0)); });
}

TEST(Schedules, PiecewiseConstantHoldsUpToAndIncludingItsBoundary) {
  const LearningRate rate = schedules::piecewise_constant({4, 10}, {1.0, 0.5, 0.1});
  expect_schedule(rate, [](double s) { return s <= 4 ? 1.0 : s <= 10 ? 0.5 : 0.1; });
}

TEST(Schedules, PolynomialDecayEqualsItsFormula) {
  expect_schedule(schedules::polynomial_decay(0.5, 10, 0.01, 2.0), [](double s) {
    return (0.5 - 0.01) * std::pow(1.0 - std::min(s, 10.0) / 10.0, 2.0) + 0.01;
  });
  expect_schedule(schedules::polynomial_decay(0.5, 10, 0.01, 1.0, true), [](double s) {
    const double length = s == 0.0 ? 10.0 : 10.0 * std::ceil(s / 10.0);
    return (0.5 - 0.01) * (1.0 - s / length) + 0.01;
  });
}

TEST(Schedules, CosineDecayEqualsItsFormula) {
  const auto cosine = [](double top, double share, double alpha) {
    return top * ((1.0 - alpha) * 0.5 * (1.0 + std::cos(std::numbers::pi * share)) + alpha);
  };
  expect_schedule(schedules::cosine_decay(0.5, 10),
                  [&](double s) { return cosine(0.5, std::min(s, 10.0) / 10.0, 0.0); });
  expect_schedule(
      schedules::cosine_decay(0.1, 10, {.alpha = 0.2, .warmup_target = 0.9, .warmup_steps = 5}),
      [&](double s) {
        return s < 5.0 ? 0.1 + 0.8 * s / 5.0 : cosine(0.9, std::min(s - 5.0, 10.0) / 10.0, 0.2);
      });
}

TEST(Schedules, AreTypesWithKerassNames) {
  using namespace schedules;
  for (std::int64_t step : {0, 3, 7, 20}) {
    EXPECT_EQ(ExponentialDecay(0.5, 4, 0.9, {.staircase = true}).at(step),
              ExponentialDecay(0.5, 4, 0.9, true).at(step));
    EXPECT_EQ(InverseTimeDecay(0.5, 4, 0.9, {.staircase = true}).at(step),
              InverseTimeDecay(0.5, 4, 0.9, true).at(step));
    EXPECT_EQ(ExponentialDecay(0.5, 4, 0.9, true).at(step),
              exponential_decay(0.5, 4, 0.9, true).at(step));
    EXPECT_EQ(PiecewiseConstantDecay({3, 8}, {1.0, 0.5, 0.1}).at(step),
              piecewise_constant({3, 8}, {1.0, 0.5, 0.1}).at(step));
    EXPECT_EQ(PolynomialDecay(0.5, 10, 0.1, 2.0).at(step),
              polynomial_decay(0.5, 10, 0.1, 2.0).at(step));
    EXPECT_EQ(InverseTimeDecay(0.5, 4, 0.9).at(step), inverse_time_decay(0.5, 4, 0.9).at(step));
    EXPECT_EQ(CosineDecay(0.5, 10, 0.1).at(step), cosine_decay(0.5, 10, {.alpha = 0.1}).at(step));
    // With named arguments.
    EXPECT_EQ(
        ExponentialDecay(
            {.initial_learning_rate = 0.5, .decay_steps = 4, .decay_rate = 0.9, .staircase = true})
            .at(step),
        exponential_decay(0.5, 4, 0.9, true).at(step));
    EXPECT_EQ(InverseTimeDecay({.initial_learning_rate = 0.5, .decay_steps = 4, .decay_rate = 0.9})
                  .at(step),
              inverse_time_decay(0.5, 4, 0.9).at(step));
    EXPECT_EQ(PolynomialDecay({.initial_learning_rate = 0.5,
                               .decay_steps = 4,
                               .end_learning_rate = 0.1,
                               .power = 2.0,
                               .cycle = true})
                  .at(step),
              polynomial_decay(0.5, 4, 0.1, 2.0, true).at(step));
    EXPECT_EQ(
        CosineDecay({.initial_learning_rate = 0.1,
                     .decay_steps = 10,
                     .alpha = 0.2,
                     .warmup_target = 0.9,
                     .warmup_steps = 5})
            .at(step),
        cosine_decay(0.1, 10, {.alpha = 0.2, .warmup_target = 0.9, .warmup_steps = 5}).at(step));
  }
  EXPECT_EQ(SGD(ExponentialDecay(0.5, 4, 0.9)).learning_rate(), 0.5);
  EXPECT_TRUE(Adam([](std::int64_t step) { return 0.1 / double(step + 1); }).scheduled());
}

TEST(Schedules, BadOptionsAreRefused) {
  const auto refused = [](const auto& make, const std::string& text) {
    expect_error<InvalidArgumentError>(make, text);
  };
  refused([] { schedules::exponential_decay(0.1, 0, 0.5); },
          "[exponential_decay] expected a positive number of decay steps, got 0");
  refused(
      [] {
        schedules::piecewise_constant({1, 2}, {0.1});
      },
      "[piecewise_constant] expected 3 values for 2 boundaries, got 1");
  refused(
      [] {
        schedules::piecewise_constant({5, 2}, {0.1, 0.2, 0.3});
      },
      "[piecewise_constant] expected boundaries in rising order, got 5, 2");
  refused([] { schedules::cosine_decay(0.1, 10, {.warmup_target = 1.0}); },
          "[cosine_decay] expected a positive number of warm-up steps");
}

}  // namespace
}  // namespace tandem::schedules_test
