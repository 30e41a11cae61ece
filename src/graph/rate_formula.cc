#include "graph/rate_formula.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "core/joined.h"
#include "core/status.h"

namespace tandem {
namespace {

void expect_count(const RateFormula& formula, std::size_t integers, std::size_t reals) {
  if (formula.integers.size() != integers || formula.reals.size() != reals)
    fail<InvalidArgumentError>("[{}] expected {} integers and {} numbers, got {} and {}",
                               formula.kind->name, integers, reals, formula.integers.size(),
                               formula.reals.size());
}

void expect_decay(const RateFormula& formula, std::size_t integers, std::size_t reals) {
  expect_count(formula, integers, reals);
  if (formula.integers[0] <= 0)
    fail<InvalidArgumentError>("[{}] expected a positive number of decay steps, got {}",
                               formula.kind->name, formula.integers[0]);
}

// Steps in units of decay_steps, rounded down for staircases.
double periods(std::int64_t step, std::int64_t decay_steps, bool staircase) {
  const double passed = static_cast<double>(step) / static_cast<double>(decay_steps);
  return staircase ? std::floor(passed) : passed;
}

double exponential_at(const RateFormula& f, std::int64_t step) {
  return f.reals[0] * std::pow(f.reals[1], periods(step, f.integers[0], f.integers[1] != 0));
}

double inverse_time_at(const RateFormula& f, std::int64_t step) {
  return f.reals[0] / (1.0 + f.reals[1] * periods(step, f.integers[0], f.integers[1] != 0));
}

void check_piecewise(const RateFormula& f) {
  if (f.reals.size() != f.integers.size() + 1)
    fail<InvalidArgumentError>("[{}] expected {} values for {} boundaries, got {}", f.kind->name,
                               f.integers.size() + 1, f.integers.size(), f.reals.size());
  if (!std::ranges::is_sorted(f.integers))
    fail<InvalidArgumentError>("[{}] expected boundaries in rising order, got {}", f.kind->name,
                               joined(f.integers, ", "));
}

double piecewise_at(const RateFormula& f, std::int64_t step) {
  const auto next = std::ranges::lower_bound(f.integers, step);
  return f.reals[static_cast<std::size_t>(next - f.integers.begin())];
}

double polynomial_at(const RateFormula& f, std::int64_t step) {
  const double initial = f.reals[0], end = f.reals[1], power = f.reals[2];
  const double passed = periods(step, f.integers[0], false);
  // With cycles, the decay length grows to the next multiple of decay_steps.
  const bool cycle = f.integers[1] != 0;
  const double share = cycle ? passed / std::max(1.0, std::ceil(passed)) : std::min(passed, 1.0);
  return (initial - end) * std::pow(1.0 - share, power) + end;
}

void check_cosine(const RateFormula& f) {
  expect_decay(f, 2, 3);
  if (f.integers[1] < 0)
    fail<InvalidArgumentError>("[{}] expected a number of warm-up steps, got {}", f.kind->name,
                               f.integers[1]);
}

double cosine_at(const RateFormula& f, std::int64_t step) {
  const std::int64_t decay_steps = f.integers[0], warmup = f.integers[1];
  const double initial = f.reals[0], top = f.reals[1], alpha = f.reals[2];
  if (step < warmup)
    return initial + (top - initial) * static_cast<double>(step) / static_cast<double>(warmup);
  const double share = std::min(1.0, periods(step - warmup, decay_steps, false));
  const double cosine = 0.5 * (1.0 + std::cos(std::numbers::pi * share));
  return top * ((1.0 - alpha) * cosine + alpha);
}

void check_two(const RateFormula& f) { expect_decay(f, 2, 2); }
void check_polynomial(const RateFormula& f) { expect_decay(f, 2, 3); }

}  // namespace

const RateFormulaKind kExponentialDecay = {"exponential_decay", exponential_at, check_two};
const RateFormulaKind kPiecewiseConstant = {"piecewise_constant", piecewise_at, check_piecewise};
const RateFormulaKind kPolynomialDecay = {"polynomial_decay", polynomial_at, check_polynomial};
const RateFormulaKind kInverseTimeDecay = {"inverse_time_decay", inverse_time_at, check_two};
const RateFormulaKind kCosineDecay = {"cosine_decay", cosine_at, check_cosine};

const RateFormulaKind* find_rate_formula(std::string_view name) {
  for (const RateFormulaKind* kind : {&kExponentialDecay, &kPiecewiseConstant, &kPolynomialDecay,
                                      &kInverseTimeDecay, &kCosineDecay})
    if (kind->name == name) return kind;
  return nullptr;
}

}  // namespace tandem
