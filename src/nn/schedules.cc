// Learning-rate schedules with Keras's formulas.
#include "core/status.h"
#include "graph/rate_formula.h"
#include "tandem/optimizers.h"

namespace tandem::optimizers::schedules {
namespace {

LearningRate make(const RateFormulaKind& kind, std::vector<std::int64_t> integers,
                  std::vector<double> reals) {
  RateFormula formula{&kind, std::move(integers), std::move(reals)};
  kind.check(formula);
  return LearningRate::Schedule(std::move(formula));
}

}  // namespace

LearningRate exponential_decay(double initial, std::int64_t decay_steps, double decay_rate,
                               bool staircase) {
  return make(kExponentialDecay, {decay_steps, staircase}, {initial, decay_rate});
}

LearningRate piecewise_constant(std::vector<std::int64_t> boundaries, std::vector<double> values) {
  return make(kPiecewiseConstant, std::move(boundaries), std::move(values));
}

LearningRate polynomial_decay(double initial, std::int64_t decay_steps, double end, double power,
                              bool cycle) {
  return make(kPolynomialDecay, {decay_steps, cycle}, {initial, end, power});
}

LearningRate inverse_time_decay(double initial, std::int64_t decay_steps, double decay_rate,
                                bool staircase) {
  return make(kInverseTimeDecay, {decay_steps, staircase}, {initial, decay_rate});
}

LearningRate cosine_decay(double initial, std::int64_t decay_steps, const CosineOptions& options) {
  if (options.warmup_steps < 0 || (options.warmup_target && options.warmup_steps == 0))
    fail<InvalidArgumentError>(
        "[cosine_decay] expected a positive number of warm-up steps with a warm-up target, got {}",
        options.warmup_steps);
  return make(kCosineDecay, {decay_steps, options.warmup_target ? options.warmup_steps : 0},
              {initial, options.warmup_target.value_or(initial), options.alpha});
}

}  // namespace tandem::optimizers::schedules
