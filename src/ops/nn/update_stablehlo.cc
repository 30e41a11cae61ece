// The optimizers' updates in StableHLO (ops/nn/update_steps.h). The host computes the numbers that
// change from run to run, as the kernels do.
#include "ops/lowering_support.h"
#include "ops/nn/update.h"
#include "ops/nn/update_steps.h"

namespace tandem::stablehlo {
namespace {

template <class Step, double Step::*kMember>
double number_of(const typename Step::Rule& rule) {
  return Step(rule).*kMember;
}

// The variable, its slots and its gradient, in the element type of the slots.
template <class Step>
class Update {
 public:
  using Rule = typename Step::Rule;

  explicit Update(Context& c)
      : c_(c),
        rule(c.attrs<Rule>()),
        variable(widened(c, 0)),
        gradient(widened(c, Step::kSlots + 1)) {
    if (rule.grad_scale != 1.0) gradient = gradient * rule.grad_scale;
  }

  Expression slot(std::size_t index) const { return widened(c_, index + 1); }
  // A number of the step, repeated to the variable's shape.
  template <double Step::*kMember>
  Expression number() const {
    return variable.repeat(c_.number<Rule, number_of<Step, kMember>>(variable.element()));
  }
  // The variable after decoupled weight decay.
  Expression kept() const {
    return rule.weight_decay == 0.0 ? variable : variable * number<&Step::keep>();
  }

  void write(const Expression& updated, const std::vector<Expression>& slots) const {
    c_.write(0, updated.as(c_.input(0).element()).value());
    std::size_t input = 1;
    for (const Expression& slot : slots) c_.write(input++, slot.value());
  }

 private:
  Context& c_;

 public:
  const Rule& rule;
  const Expression variable;
  Expression gradient;
};

Expression with_decay(const Expression& gradient, double decay, const Expression& variable) {
  return decay == 0.0 ? gradient : gradient + decay * variable;
}

void lower_gradient_descent(Context& c) {
  using Step = cpu::DescentStep<double>;
  const Update<Step> u(c);
  u.write(u.kept() - u.number<&Step::rate>() * u.gradient, {});
}

void lower_momentum(Context& c) {
  using Step = cpu::MomentumStep<double>;
  const Update<Step> u(c);
  const Expression drop = u.number<&Step::rate>() * u.gradient;
  const Expression velocity = u.rule.momentum * u.slot(0) - drop;
  u.write(u.kept() + (u.rule.nesterov ? u.rule.momentum * velocity - drop : velocity), {velocity});
}

void lower_damped_momentum(Context& c) {
  using Step = cpu::DampedMomentumStep<double>;
  const Update<Step> u(c);
  const double decay = u.rule.weight_decay;
  const bool after = u.rule.decay_after_momentum;
  const Expression slope = with_decay(u.gradient, after ? 0.0 : decay, u.variable);
  const Expression buffer = u.rule.momentum * u.slot(0) + u.number<&Step::take>() * slope;
  const Expression direction = u.rule.nesterov ? slope + u.rule.momentum * buffer : buffer;
  u.write(
      u.variable - u.number<&Step::rate>() * with_decay(direction, after ? decay : 0.0, u.variable),
      {buffer});
}

template <bool kAmsgrad>
void lower_adam(Context& c) {
  using Step = typename cpu::AdamSteps<kAmsgrad>::template UpdateStep<double>;
  const Update<Step> u(c);
  const Step step(u.rule);
  const Expression slope = with_decay(u.gradient, u.rule.gradient_decay, u.variable);
  const Expression m = u.slot(0) + (slope - u.slot(0)) * step.take_1;
  const Expression v = u.slot(1) + (slope * slope - u.slot(1)) * step.take_2;
  std::vector<Expression> slots = {m, v};
  if constexpr (kAmsgrad) slots.push_back(u.slot(2).binary("maximum", v));
  u.write(u.kept() - u.template number<&Step::rate>() * m /
                         (sqrt(slots.back()) + u.template number<&Step::epsilon>()),
          slots);
}

void lower_adagrad(Context& c) {
  using Step = cpu::AdagradStep<double>;
  const Update<Step> u(c);
  const Expression slope = with_decay(u.gradient, u.rule.gradient_decay, u.variable);
  const Expression sum = u.slot(0) + slope * slope;
  const Expression root =
      u.rule.outer_epsilon ? sqrt(sum) + u.rule.epsilon : sqrt(sum + u.rule.epsilon);
  u.write(u.kept() - u.number<&Step::rate>() * slope / root, {sum});
}

template <bool kCentred, bool kMomentum>
void lower_rms_prop(Context& c) {
  using Step = typename cpu::RmsPropSteps<kCentred, kMomentum>::template UpdateStep<double>;
  const Update<Step> u(c);
  const double take = Step(u.rule).take;
  const bool outer = u.rule.outer_epsilon;
  const Expression g = with_decay(u.gradient, u.rule.gradient_decay, u.variable);
  std::vector<Expression> slots = {u.slot(0) + (g * g - u.slot(0)) * take};
  Expression square = slots[0];
  if constexpr (kCentred) {
    slots.push_back(u.slot(1) + (g - u.slot(1)) * take);
    square = square - slots[1] * slots[1];
  }
  Expression drop = outer ? g / (sqrt(square) + u.rule.epsilon)
                          : u.template number<&Step::rate>() * g / sqrt(square + u.rule.epsilon);
  if constexpr (kMomentum) {
    drop = drop + u.rule.momentum * u.slot(Step::kSlots - 1);
    slots.push_back(drop);
  }
  if (outer) drop = u.template number<&Step::rate_after>() * drop;
  u.write(u.kept() - drop, slots);
}

double lamb_rate(const update::Lamb& rule) { return rule.learning_rate; }

void lower_lamb(Context& c) {
  using Step = cpu::LambStep<double>;
  const Update<Step> u(c);
  const Step step(u.rule);
  const Axes all = all_axes(u.variable.shape());
  const Expression slope = with_decay(u.gradient, u.rule.gradient_decay, u.variable);
  const Expression m = u.slot(0) + (slope * step.share - u.slot(0)) * step.take_1;
  const Expression v = u.slot(1) + (slope * slope - u.slot(1)) * step.take_2;
  const Expression direction =
      m * u.number<&Step::correct_1>() / (sqrt(v * u.number<&Step::correct_2>()) + u.rule.epsilon) +
      u.rule.weight_decay * u.variable;
  Expression rate(c.build, c.number<update::Lamb, lamb_rate>(u.variable.element()));
  if (u.rule.scaled) {
    const Expression of_variable = square(u.variable).sum(all),
                     of_step = square(direction).sum(all);
    const Expression both = (of_variable > 0.0).binary("and", of_step > 0.0);
    rate = rate * sqrt(of_variable / of_step).where(both, rate.like(1.0));
  }
  u.write(u.variable - u.variable.repeat(rate.value()) * direction, {m, v});
}

double value_of_step(const update::StepScalar& scalar) { return scalar.value; }
void lower_step_scalar(Context& c) {
  c.result(c.number<update::StepScalar, value_of_step>(Element::kF64));
}

constexpr Lowering kUpdateLowerings[] = {
    {"ApplyAdagradV2", lower_adagrad},
    {"ApplyAdam", lower_adam<false>},
    {"ApplyAdamWithAmsgrad", lower_adam<true>},
    {"ApplyCenteredRMSProp", lower_rms_prop<true, false>},
    {"ApplyCenteredRMSPropMomentum", lower_rms_prop<true, true>},
    {"ApplyGradientDescent", lower_gradient_descent},
    {"ApplyKerasMomentum", lower_momentum},
    {"ApplyLamb", lower_lamb},
    {"ApplyMomentum", lower_damped_momentum},
    {"ApplyRMSProp", lower_rms_prop<false, false>},
    {"ApplyRMSPropMomentum", lower_rms_prop<false, true>},
    {"StepScalar", lower_step_scalar},
};

}  // namespace

LoweringList update_lowerings() { return kUpdateLowerings; }

}  // namespace tandem::stablehlo
