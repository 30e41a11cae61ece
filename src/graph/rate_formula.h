// Learning rates as formulas of the number of steps. They are data, so that a graph with them can
// be serialised.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace tandem {

struct RateFormula;

// A kind of formula: one of Keras's schedules.
struct RateFormulaKind {
  std::string_view name;
  double (*at)(const RateFormula& formula, std::int64_t step);
  // Throws InvalidArgumentError for invalid numbers, or a wrong count of them.
  void (*check)(const RateFormula& formula);
};

struct RateFormula {
  const RateFormulaKind* kind = nullptr;
  std::vector<std::int64_t> integers;
  std::vector<double> reals;

  // The rate of the step that follows `step` others.
  double operator()(std::int64_t step) const { return kind->at(*this, step); }
};

// The comments list the integers; the reals.
extern const RateFormulaKind kExponentialDecay;   // decay_steps, staircase; initial, decay_rate
extern const RateFormulaKind kPiecewiseConstant;  // boundaries; values, one more
extern const RateFormulaKind kPolynomialDecay;    // decay_steps, cycle; initial, end, power
extern const RateFormulaKind kInverseTimeDecay;   // decay_steps, staircase; initial, decay_rate
// decay_steps, warmup_steps (0 if there are none); initial, top, alpha
extern const RateFormulaKind kCosineDecay;

// Returns null for an unknown name.
const RateFormulaKind* find_rate_formula(std::string_view name);

}  // namespace tandem
