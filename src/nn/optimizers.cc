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
  return make_optimizer(name, options.learning_rate,
                        {.clipnorm = options.clipnorm,
                         .clipvalue = options.clipvalue,
                         .global_clipnorm = options.global_clipnorm},
                        std::move(parameters), rule, std::move(slots), apply);
}

// Adam-like optimizers keep running means of the gradient and of its square.
template <class Rule, class Options>
Optimizer make_adaptive(const char* name, const Options& options,
                        std::vector<Variable> parameters) {
  const Rule rule{.beta_1 = options.beta_1,
                  .beta_2 = options.beta_2,
                  .epsilon = options.epsilon,
                  .weight_decay = options.weight_decay};
  if constexpr (requires { options.amsgrad; })
    if (options.amsgrad)
      return make<Rule>(name, options, std::move(parameters), rule,
                        {{"momentum"}, {"velocity"}, {"velocity_hat"}}, apply_amsgrad);
  return make<Rule>(name, options, std::move(parameters), rule, {{"momentum"}, {"velocity"}},
                    apply_with_two_slots<Rule>);
}

void expect_momentum(const char* optimizer, double value) {
  if (!(value >= 0.0 && value <= 1.0))
    fail<InvalidArgumentError>("[{}] expected momentum in [0, 1], got {}", optimizer, value);
}

Optimizer make_optimizer_of(const SGDOptions& options, std::vector<Variable> parameters) {
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

Optimizer make_optimizer_of(const AdamOptions& options, std::vector<Variable> parameters) {
  return make_adaptive<update::Adam>("adam", options, std::move(parameters));
}

Optimizer make_optimizer_of(const AdamWOptions& options, std::vector<Variable> parameters) {
  return make_adaptive<update::Adam>("adamw", options, std::move(parameters));
}

Optimizer make_optimizer_of(const LAMBOptions& options, std::vector<Variable> parameters) {
  return make_adaptive<update::Lamb>("lamb", options, std::move(parameters));
}

Optimizer make_optimizer_of(const RMSpropOptions& options, std::vector<Variable> parameters) {
  expect_momentum("rmsprop", options.momentum);
  const update::RmsProp rule{.rho = options.rho,
                             .momentum = options.momentum,
                             .epsilon = options.epsilon,
                             .weight_decay = options.weight_decay};
  std::vector<SlotSpec> slots = {{"velocity"}};
  if (options.momentum > 0.0) slots.push_back({"momentum"});
  if (options.centered) slots.push_back({"average_gradient"});
  return make<update::RmsProp>("rmsprop", options, std::move(parameters), rule, std::move(slots),
                               apply_rms_prop);
}

Optimizer make_optimizer_of(const AdagradOptions& options, std::vector<Variable> parameters) {
  if (!(options.initial_accumulator_value >= 0.0 &&
        std::isfinite(options.initial_accumulator_value)))
    fail<InvalidArgumentError>(
        "[adagrad] expected a finite initial accumulator of 0 or more, got {}",
        options.initial_accumulator_value);
  return make<update::Adagrad>("adagrad", options, std::move(parameters),
                               {.epsilon = options.epsilon, .weight_decay = options.weight_decay},
                               {{"accumulator", options.initial_accumulator_value}},
                               apply_with_one_slot<update::Adagrad>);
}

}  // namespace

SGD::SGD() : SGD(SGDOptions()) {}
SGD::SGD(const SGDOptions& options, std::vector<Variable> parameters)
    : Optimizer(make_optimizer_of(options, std::move(parameters))) {}
SGD::SGD(const LearningRate& rate, ParameterList parameters)
    : SGD(SGDOptions{.learning_rate = rate}, std::move(parameters).take()) {}
SGD::SGD(ParameterList parameters, const SGDOptions& options)
    : SGD(options, std::move(parameters).take()) {}
SGD::SGD(ParameterList parameters, const LearningRate& rate) : SGD(rate, std::move(parameters)) {}
SGD::SGD(const LearningRate& rate, double momentum, bool nesterov)
    : SGD(SGDOptions{.learning_rate = rate, .momentum = momentum, .nesterov = nesterov}) {}

Adam::Adam() : Adam(AdamOptions()) {}
Adam::Adam(const AdamOptions& options, std::vector<Variable> parameters)
    : Optimizer(make_optimizer_of(options, std::move(parameters))) {}
Adam::Adam(const LearningRate& rate, ParameterList parameters)
    : Adam(AdamOptions{.learning_rate = rate}, std::move(parameters).take()) {}
Adam::Adam(ParameterList parameters, const AdamOptions& options)
    : Adam(options, std::move(parameters).take()) {}
Adam::Adam(ParameterList parameters, const LearningRate& rate)
    : Adam(rate, std::move(parameters)) {}

AdamW::AdamW() : AdamW(AdamWOptions()) {}
AdamW::AdamW(const AdamWOptions& options, std::vector<Variable> parameters)
    : Optimizer(make_optimizer_of(options, std::move(parameters))) {}
AdamW::AdamW(const LearningRate& rate, ParameterList parameters)
    : AdamW(AdamWOptions{.learning_rate = rate}, std::move(parameters).take()) {}
AdamW::AdamW(ParameterList parameters, const AdamWOptions& options)
    : AdamW(options, std::move(parameters).take()) {}
AdamW::AdamW(ParameterList parameters, const LearningRate& rate)
    : AdamW(rate, std::move(parameters)) {}

RMSprop::RMSprop() : RMSprop(RMSpropOptions()) {}
RMSprop::RMSprop(const RMSpropOptions& options, std::vector<Variable> parameters)
    : Optimizer(make_optimizer_of(options, std::move(parameters))) {}
RMSprop::RMSprop(const LearningRate& rate, ParameterList parameters)
    : RMSprop(RMSpropOptions{.learning_rate = rate}, std::move(parameters).take()) {}
RMSprop::RMSprop(ParameterList parameters, const RMSpropOptions& options)
    : RMSprop(options, std::move(parameters).take()) {}
RMSprop::RMSprop(ParameterList parameters, const LearningRate& rate)
    : RMSprop(rate, std::move(parameters)) {}

Adagrad::Adagrad() : Adagrad(AdagradOptions()) {}
Adagrad::Adagrad(const AdagradOptions& options, std::vector<Variable> parameters)
    : Optimizer(make_optimizer_of(options, std::move(parameters))) {}
Adagrad::Adagrad(const LearningRate& rate, ParameterList parameters)
    : Adagrad(AdagradOptions{.learning_rate = rate}, std::move(parameters).take()) {}
Adagrad::Adagrad(ParameterList parameters, const AdagradOptions& options)
    : Adagrad(options, std::move(parameters).take()) {}
Adagrad::Adagrad(ParameterList parameters, const LearningRate& rate)
    : Adagrad(rate, std::move(parameters)) {}

LAMB::LAMB() : LAMB(LAMBOptions()) {}
LAMB::LAMB(const LAMBOptions& options, std::vector<Variable> parameters)
    : Optimizer(make_optimizer_of(options, std::move(parameters))) {}
LAMB::LAMB(const LearningRate& rate, ParameterList parameters)
    : LAMB(LAMBOptions{.learning_rate = rate}, std::move(parameters).take()) {}
LAMB::LAMB(ParameterList parameters, const LAMBOptions& options)
    : LAMB(options, std::move(parameters).take()) {}
LAMB::LAMB(ParameterList parameters, const LearningRate& rate)
    : LAMB(rate, std::move(parameters)) {}

Optimizer from_name(std::string_view name, std::optional<LearningRate> rate) {
  using Factory = Optimizer (*)();
  static constexpr NamedEntry<Factory> kTable[] = {
      {"sgd", []() -> Optimizer { return SGD(); }},
      {"adam", []() -> Optimizer { return Adam(); }},
      {"adamw", []() -> Optimizer { return AdamW(); }},
      {"rmsprop", []() -> Optimizer { return RMSprop(); }},
      {"adagrad", []() -> Optimizer { return Adagrad(); }},
      {"lamb", []() -> Optimizer { return LAMB(); }},
  };
  Optimizer optimizer =
      find_named(std::span<const NamedEntry<Factory>>(kTable), "optimizers", name)();
  if (rate) optimizer.set_learning_rate(*rate);
  return optimizer;
}

}  // namespace tandem::optimizers
