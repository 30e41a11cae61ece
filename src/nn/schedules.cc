// Learning-rate schedules, by Keras's formulas.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "core/status.h"
#include "tandem/optimizers.h"

namespace tandem::optimizers::schedules {
namespace {

void expect_positive(const char* what, std::int64_t decay_steps) {
  if (decay_steps <= 0)
    fail<InvalidArgumentError>("[{}] expected a positive number of decay steps, got {}", what,
                               decay_steps);
}

// Steps in units of decay_steps; whole ones for staircases.
double periods(std::int64_t step, std::int64_t decay_steps, bool staircase) {
  const double passed = static_cast<double>(step) / static_cast<double>(decay_steps);
  return staircase ? std::floor(passed) : passed;
}

}  // namespace

LearningRate exponential_decay(double initial, std::int64_t decay_steps, double decay_rate,
                               bool staircase) {
  expect_positive("exponential_decay", decay_steps);
  return LearningRate::Schedule([=](std::int64_t step) {
    return initial * std::pow(decay_rate, periods(step, decay_steps, staircase));
  });
}

LearningRate piecewise_constant(std::vector<std::int64_t> boundaries, std::vector<double> values) {
  if (values.size() != boundaries.size() + 1)
    fail<InvalidArgumentError>("[piecewise_constant] expected {} values for {} boundaries, got {}",
                               boundaries.size() + 1, boundaries.size(), values.size());
  if (!std::ranges::is_sorted(boundaries))
    fail<InvalidArgumentError>("[piecewise_constant] expected boundaries in rising order, got {}",
                               fmt::join(boundaries, ", "));
  return LearningRate::Schedule(
      [boundaries = std::move(boundaries), values = std::move(values)](std::int64_t step) {
        const auto next = std::ranges::lower_bound(boundaries, step);
        return values[static_cast<std::size_t>(next - boundaries.begin())];
      });
}

LearningRate polynomial_decay(double initial, std::int64_t decay_steps, double end, double power,
                              bool cycle) {
  expect_positive("polynomial_decay", decay_steps);
  return LearningRate::Schedule([=](std::int64_t step) {
    const double passed = periods(step, decay_steps, false);
    // With cycles the length grows to the next multiple of decay_steps once it is passed.
    const double share = cycle ? passed / std::max(1.0, std::ceil(passed)) : std::min(passed, 1.0);
    return (initial - end) * std::pow(1.0 - share, power) + end;
  });
}

LearningRate inverse_time_decay(double initial, std::int64_t decay_steps, double decay_rate,
                                bool staircase) {
  expect_positive("inverse_time_decay", decay_steps);
  return LearningRate::Schedule([=](std::int64_t step) {
    return initial / (1.0 + decay_rate * periods(step, decay_steps, staircase));
  });
}

LearningRate cosine_decay(double initial, std::int64_t decay_steps, const CosineOptions& options) {
  expect_positive("cosine_decay", decay_steps);
  if (options.warmup_steps < 0 || (options.warmup_target && options.warmup_steps == 0))
    fail<InvalidArgumentError>(
        "[cosine_decay] expected a positive number of warm-up steps with a warm-up target, got {}",
        options.warmup_steps);
  return LearningRate::Schedule([=](std::int64_t step) {
    const std::int64_t warmup = options.warmup_target ? options.warmup_steps : 0;
    const double top = options.warmup_target.value_or(initial);
    if (step < warmup)
      return initial + (top - initial) * static_cast<double>(step) / static_cast<double>(warmup);
    const double share = std::min(1.0, periods(step - warmup, decay_steps, false));
    const double cosine = 0.5 * (1.0 + std::cos(std::numbers::pi * share));
    return top * ((1.0 - options.alpha) * cosine + options.alpha);
  });
}

}  // namespace tandem::optimizers::schedules
