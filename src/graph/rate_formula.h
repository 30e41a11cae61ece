// Learning rates that are formulas of the number of steps taken: data, so that a graph can be
// stored with them.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace tandem {

struct RateFormula;

// A formula and what its numbers are: Keras's schedules.
struct RateFormulaKind {
  std::string_view name;
  double (*at)(const RateFormula& formula, std::int64_t step);
  // Throws InvalidArgumentError for numbers that there is no such formula for, or another count.
  void (*check)(const RateFormula& formula);
};

struct RateFormula {
  const RateFormulaKind* kind = nullptr;
  std::vector<std::int64_t> integers;
  std::vector<double> reals;

  // The rate of the step behind `step` others.
  double operator()(std::int64_t step) const { return kind->at(*this, step); }
};

// Each with its integers; its reals.
extern const RateFormulaKind kExponentialDecay;   // decay_steps, staircase; initial, decay_rate
extern const RateFormulaKind kPiecewiseConstant;  // boundaries; values, one more
extern const RateFormulaKind kPolynomialDecay;    // decay_steps, cycle; initial, end, power
extern const RateFormulaKind kInverseTimeDecay;   // decay_steps, staircase; initial, decay_rate
// decay_steps, warmup_steps, 0 for none; initial, top, alpha
extern const RateFormulaKind kCosineDecay;

// Null when there is none of that name.
const RateFormulaKind* find_rate_formula(std::string_view name);

}  // namespace tandem
