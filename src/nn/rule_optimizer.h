// Optimizers with one of the rules of ops/nn/update.h.
#pragma once

#include <cmath>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "core/status.h"
#include "nn/optimizer_impl.h"
#include "ops/nn/update.h"

namespace tandem::optimizers {

// Each step sets the rule's learning rate and, if it has one, its step number.
template <class Rule>
class RuleOptimizer final : public Optimizer::Impl {
 public:
  using Slots = std::span<const Tensor>;
  using Apply = void (*)(const Rule& rule, const Tensor& variable, const Tensor& gradient,
                         Slots slots);

  RuleOptimizer(const char* name, const LearningRate& rate, const Clipping& clipping,
                std::vector<Variable> parameters, const Rule& rule, std::vector<SlotSpec> slots,
                Apply apply)
      : Impl(name, rate, clipping, std::move(parameters)),
        rules_({rule}),
        slots_(std::move(slots)),
        apply_(apply) {}

  // As Impl::add_group(), with the group's rule.
  void add_group_with(const Rule& rule, const LearningRate& rate,
                      const std::vector<Variable>& parameters) {
    rules_.push_back(rule);
    add_group(rate, parameters);
  }

  std::shared_ptr<Impl> with_trust(TrustRatio trust) const override {
    Rule rule = rules_[0];
    trust.weight_decay = std::exchange(rule.weight_decay, 0.0);
    if constexpr (requires { rule.gradient_decay; })
      trust.weight_decay += std::exchange(rule.gradient_decay, 0.0);
    return std::shared_ptr<Impl>(new RuleOptimizer(*this, rule, trust));
  }

 private:
  RuleOptimizer(const RuleOptimizer& other, const Rule& rule, const TrustRatio& trust)
      : Impl(other, trust), rules_({rule}), slots_(other.slots_), apply_(other.apply_) {}

  std::vector<SlotSpec> slots() const override { return slots_; }

  void update(const StepInfo& step, const Tensor& variable, const Tensor& gradient,
              Slots slots) const override {
    Rule rule = rules_[step.group];
    set_step(step, &rule);
    apply_(rule, variable, gradient, slots);
  }

  SetStep step_setter() const override { return set_step; }

  static void set_step(const StepInfo& step, void* attrs) {
    Rule& rule = *static_cast<Rule*>(attrs);
    rule.learning_rate = step.learning_rate;
    if constexpr (requires { rule.step; }) rule.step = step.number;
  }

  std::vector<Rule> rules_;  // by group
  std::vector<SlotSpec> slots_;
  Apply apply_;
};

// Throws InvalidArgumentError "[optimizer] expected ..." for arguments that make NaN of weights.
template <class Rule>
void check_rule(const char* optimizer, const Rule& rule) {
  const auto below_one = [&](const char* what, double value) {
    if (!(value >= 0.0 && value < 1.0))
      fail<InvalidArgumentError>("[{}] expected {} in [0, 1), got {}", optimizer, what, value);
  };
  const auto not_negative = [&](const char* what, double value) {
    if (!(value >= 0.0 && std::isfinite(value)))
      fail<InvalidArgumentError>("[{}] expected a finite {} of 0 or more, got {}", optimizer, what,
                                 value);
  };
  not_negative("weight_decay", rule.weight_decay);
  if constexpr (requires { rule.gradient_decay; })
    not_negative("weight_decay", rule.gradient_decay);
  if constexpr (requires { rule.epsilon; }) not_negative("epsilon", rule.epsilon);
  if constexpr (requires { rule.momentum; }) not_negative("momentum", rule.momentum);
  if constexpr (requires { rule.dampening; })
    if (!std::isfinite(rule.dampening))
      fail<InvalidArgumentError>("[{}] expected a finite dampening, got {}", optimizer,
                                 rule.dampening);
  if constexpr (requires { rule.rho; }) below_one("rho", rule.rho);
  if constexpr (requires { rule.beta_1; }) {
    below_one("beta_1", rule.beta_1);
    below_one("beta_2", rule.beta_2);
  }
}

template <class Rule>
Optimizer make_optimizer(const char* name, const LearningRate& rate, const Clipping& clipping,
                         std::vector<Variable> parameters, const Rule& rule,
                         std::vector<Optimizer::Impl::SlotSpec> slots,
                         typename RuleOptimizer<Rule>::Apply apply) {
  check_rule(name, rule);
  return Optimizer(std::make_shared<RuleOptimizer<Rule>>(
      name, rate, clipping, std::move(parameters), rule, std::move(slots), apply));
}

// The function that applies a rule with two slots, such as Adam's.
template <class Rule>
void apply_with_two_slots(const Rule& rule, const Tensor& variable, const Tensor& gradient,
                          std::span<const Tensor> slots) {
  update::apply(rule, variable, slots[0], slots[1], gradient);
}
// AMSGrad's.
inline void apply_amsgrad(const update::Adam& rule, const Tensor& variable, const Tensor& gradient,
                          std::span<const Tensor> slots) {
  update::apply(rule, variable, slots[0], slots[1], slots[2], gradient);
}
template <class Rule>
void apply_with_one_slot(const Rule& rule, const Tensor& variable, const Tensor& gradient,
                         std::span<const Tensor> slots) {
  update::apply(rule, variable, slots[0], gradient);
}
// The slots of update::RmsProp: the mean square, then the momentum if there is one, and the mean
// gradient if the rule is centred.
inline void apply_rms_prop(const update::RmsProp& rule, const Tensor& variable,
                           const Tensor& gradient, std::span<const Tensor> slots) {
  const std::size_t mean_at = rule.momentum > 0.0 ? 2 : 1;
  const Tensor none;
  update::apply(rule, variable, slots[0], rule.momentum > 0.0 ? slots[1] : none,
                slots.size() > mean_at ? slots[mean_at] : none, gradient);
}

}  // namespace tandem::optimizers
