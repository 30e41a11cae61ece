// The optimizers: the options, slots and update operation of each.
#include "tandem/optimizers.h"

#include "nn/naming.h"
#include "nn/rule_optimizer.h"

namespace tandem::optimizers {
namespace {

using SlotSpec = Optimizer::Impl::SlotSpec;
using Slots = std::span<const Tensor>;

template <class Rule, class Options>
Optimizer make(const char* name, const Options& options, std::vector<Variable> parameters,
               const Rule& rule, std::vector<SlotSpec> slots,
               typename RuleOptimizer<Rule>::Apply apply) {
  return make_optimizer(name, options.learning_rate, options.clipping, std::move(parameters), rule,
                        std::move(slots), apply);
}

// Adam-like optimizers keep running means of the gradient and of its square.
template <class Rule, class Options>
Optimizer make_adaptive(const char* name, const Options& options, std::vector<Variable> parameters,
                        double weight_decay) {
  return make<Rule>(name, options, std::move(parameters),
                    Rule{.beta_1 = options.beta_1,
                         .beta_2 = options.beta_2,
                         .epsilon = options.epsilon,
                         .weight_decay = weight_decay},
                    {{"momentum"}, {"velocity"}}, apply_with_two_slots<Rule>);
}

void expect_momentum(const char* optimizer, double value) {
  if (!(value >= 0.0 && value <= 1.0))
    fail<InvalidArgumentError>("[{}] expected momentum in [0, 1], got {}", optimizer, value);
}

}  // namespace

Optimizer SGD(const SGDOptions& options, std::vector<Variable> parameters) {
  expect_momentum("sgd", options.momentum);
  if (options.nesterov && options.momentum == 0.0)
    fail<InvalidArgumentError>("[sgd] Nesterov momentum requires a momentum, got 0");
  if (options.momentum == 0.0)
    return make<update::GradientDescent>(
        "sgd", options, std::move(parameters), {.weight_decay = options.weight_decay}, {},
        [](const update::GradientDescent& rule, const Tensor& variable, const Tensor& gradient,
           Slots) { update::apply(rule, variable, gradient); });
  return make<update::Momentum>("sgd", options, std::move(parameters),
                                {.momentum = options.momentum,
                                 .nesterov = options.nesterov,
                                 .weight_decay = options.weight_decay},
                                {{"momentum"}}, apply_with_one_slot<update::Momentum>);
}

Optimizer Adam(const AdamOptions& options, std::vector<Variable> parameters) {
  return make_adaptive<update::Adam>("adam", options, std::move(parameters), 0.0);
}

Optimizer AdamW(const AdamWOptions& options, std::vector<Variable> parameters) {
  return make_adaptive<update::Adam>("adamw", options, std::move(parameters), options.weight_decay);
}

Optimizer LAMB(const LAMBOptions& options, std::vector<Variable> parameters) {
  return make_adaptive<update::Lamb>("lamb", options, std::move(parameters), options.weight_decay);
}

Optimizer RMSprop(const RMSpropOptions& options, std::vector<Variable> parameters) {
  expect_momentum("rmsprop", options.momentum);
  const update::RmsProp rule{
      .rho = options.rho, .momentum = options.momentum, .epsilon = options.epsilon};
  std::vector<SlotSpec> slots = {{"velocity"}};
  if (options.momentum > 0.0) slots.push_back({"momentum"});
  if (options.centered) slots.push_back({"average_gradient"});
  return make<update::RmsProp>(
      "rmsprop", options, std::move(parameters), rule, std::move(slots),
      [](const update::RmsProp& rule, const Tensor& variable, const Tensor& gradient, Slots slots) {
        const std::size_t mean_at = rule.momentum > 0.0 ? 2 : 1;
        const Tensor none;
        update::apply(rule, variable, slots[0], rule.momentum > 0.0 ? slots[1] : none,
                      slots.size() > mean_at ? slots[mean_at] : none, gradient);
      });
}

Optimizer Adagrad(const AdagradOptions& options, std::vector<Variable> parameters) {
  if (!(options.initial_accumulator_value >= 0.0))
    fail<InvalidArgumentError>("[adagrad] expected an initial accumulator of 0 or more, got {}",
                               options.initial_accumulator_value);
  return make<update::Adagrad>(
      "adagrad", options, std::move(parameters), {.epsilon = options.epsilon},
      {{"accumulator", options.initial_accumulator_value}}, apply_with_one_slot<update::Adagrad>);
}

Optimizer from_name(std::string_view name, std::optional<LearningRate> rate) {
  using Factory = Optimizer (*)();
  static constexpr NamedEntry<Factory> kTable[] = {
      {"sgd", [] { return SGD(); }},         {"adam", [] { return Adam(); }},
      {"adamw", [] { return AdamW(); }},     {"rmsprop", [] { return RMSprop(); }},
      {"adagrad", [] { return Adagrad(); }}, {"lamb", [] { return LAMB(); }},
  };
  Optimizer optimizer =
      find_named(std::span<const NamedEntry<Factory>>(kTable), "optimizers", name)();
  if (rate) optimizer.set_learning_rate(*rate);
  return optimizer;
}

}  // namespace tandem::optimizers
