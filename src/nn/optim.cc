// PyTorch's optimizers: rules with the options of each group of parameters.
#include "tandem/optim.h"

#include "nn/rule_optimizer.h"
#include "tandem/creation.h"

namespace tandem::optim {
namespace {

using optimizers::Clipping;
using optimizers::LearningRate;
using optimizers::ParameterList;
using optimizers::RuleOptimizer;
using SlotSpec = optimizers::Optimizer::Impl::SlotSpec;

// Parameters with their options.
template <class Options>
using Groups = std::vector<Options>;

void check_not_negative(const char* optimizer, const char* what, double value) {
  if (!(value >= 0.0 && std::isfinite(value)))
    fail<InvalidArgumentError>("[{}] expected a finite {} of 0 or more, got {}", optimizer, what,
                               value);
}

// The options of a group, all of which are set.
SGDGroup merged(const SGDGroup& group, const SGDGroup& rest) {
  return {.params = group.params,
          .lr = group.lr.value_or(rest.lr.value_or(1e-3)),
          .momentum = group.momentum.value_or(rest.momentum.value_or(0.0)),
          .dampening = group.dampening.value_or(rest.dampening.value_or(0.0)),
          .weight_decay = group.weight_decay.value_or(rest.weight_decay.value_or(0.0)),
          .nesterov = group.nesterov.value_or(rest.nesterov.value_or(false))};
}

template <class Options>
Options merged_adam(const Options& group, const Options& rest, double weight_decay) {
  return {
      .params = group.params,
      .lr = group.lr.value_or(rest.lr.value_or(1e-3)),
      .betas = group.betas.values().value_or(rest.betas.values().value_or(std::pair(0.9, 0.999))),
      .eps = group.eps.value_or(rest.eps.value_or(1e-8)),
      .weight_decay = group.weight_decay.value_or(rest.weight_decay.value_or(weight_decay)),
      .amsgrad = group.amsgrad.value_or(rest.amsgrad.value_or(false))};
}
AdamGroup merged(const AdamGroup& group, const AdamGroup& rest) {
  return merged_adam(group, rest, 0.0);
}
AdamWGroup merged(const AdamWGroup& group, const AdamWGroup& rest) {
  return merged_adam(group, rest, 0.01);
}

RMSpropGroup merged(const RMSpropGroup& group, const RMSpropGroup& rest) {
  return {.params = group.params,
          .lr = group.lr.value_or(rest.lr.value_or(1e-2)),
          .alpha = group.alpha.value_or(rest.alpha.value_or(0.99)),
          .eps = group.eps.value_or(rest.eps.value_or(1e-8)),
          .weight_decay = group.weight_decay.value_or(rest.weight_decay.value_or(0.0)),
          .momentum = group.momentum.value_or(rest.momentum.value_or(0.0)),
          .centered = group.centered.value_or(rest.centered.value_or(false))};
}

AdagradGroup merged(const AdagradGroup& group, const AdagradGroup& rest) {
  return {.params = group.params,
          .lr = group.lr.value_or(rest.lr.value_or(1e-2)),
          .lr_decay = group.lr_decay.value_or(rest.lr_decay.value_or(0.0)),
          .weight_decay = group.weight_decay.value_or(rest.weight_decay.value_or(0.0)),
          .initial_accumulator_value = group.initial_accumulator_value.value_or(
              rest.initial_accumulator_value.value_or(0.0)),
          .eps = group.eps.value_or(rest.eps.value_or(1e-10))};
}

template <class Options>
Groups<Options> one_group(ParameterList params) {
  Groups<Options> groups(1);
  groups[0].params = std::move(params);
  return groups;
}

template <class Options>
void complete(const char* name, Groups<Options>& groups, const Options& defaults) {
  if (!defaults.params.variables().empty())
    fail<InvalidArgumentError>(
        "[{}] expected params in a group alone, got them in the options of all groups", name);
  if (groups.empty())
    fail<InvalidArgumentError>("[{}] expected parameters, got an empty list", name);
  for (Options& group : groups) {
    if (group.params.variables().empty())
      fail<InvalidArgumentError>("[{}] expected parameters, got an empty list", name);
    group = merged(group, defaults);
  }
}

template <class Options>
LearningRate rate_of(const Options& options) {
  if constexpr (requires { options.lr_decay; })
    if (*options.lr_decay != 0.0)
      return optimizers::schedules::inverse_time_decay(*options.lr, 1, *options.lr_decay);
  return *options.lr;
}

// REQUIRES: the groups are complete.
template <class Rule, class Options, class RuleOf>
optimizers::Optimizer make(const char* name, const Groups<Options>& groups, const RuleOf& rule_of,
                           std::vector<SlotSpec> slots, typename RuleOptimizer<Rule>::Apply apply) {
  for (const Options& group : groups) optimizers::check_rule(name, rule_of(group));
  auto impl = std::make_shared<RuleOptimizer<Rule>>(name, rate_of(groups[0]), Clipping(),
                                                    groups[0].params.variables(),
                                                    rule_of(groups[0]), std::move(slots), apply);
  for (std::size_t i = 1; i < groups.size(); ++i)
    impl->add_group_with(rule_of(groups[i]), rate_of(groups[i]), groups[i].params.variables());
  return optimizers::Optimizer(std::move(impl));
}

optimizers::Optimizer make_optimizer_of(Groups<SGDGroup> groups, const SGDGroup& defaults) {
  complete("sgd", groups, defaults);
  bool has_momentum = false;
  for (const auto& options : groups) {
    if (*options.nesterov && (*options.momentum <= 0.0 || *options.dampening != 0.0))
      fail<InvalidArgumentError>(
          "[sgd] Nesterov momentum requires a momentum and zero dampening, got a momentum of {} "
          "and a dampening of {}",
          *options.momentum, *options.dampening);
    has_momentum = has_momentum || *options.momentum != 0.0;
  }
  if (!has_momentum)  // decoupled and other weight decay are then the same
    return make<update::GradientDescent>(
        "sgd", groups,
        [](const SGDGroup& options) {
          return update::GradientDescent{.weight_decay = *options.weight_decay};
        },
        {},
        [](const update::GradientDescent& rule, const Tensor& variable, const Tensor& gradient,
           std::span<const Tensor>) { update::apply(rule, variable, gradient); });
  return make<update::DampedMomentum>(
      "sgd", groups,
      [](const SGDGroup& options) {
        return update::DampedMomentum{
            .momentum = *options.momentum,
            // Without a momentum, PyTorch does not dampen.
            .dampening = *options.momentum != 0.0 ? *options.dampening : 0.0,
            .nesterov = *options.nesterov,
            .weight_decay = *options.weight_decay};
      },
      {{"momentum_buffer"}}, optimizers::apply_with_one_slot<update::DampedMomentum>);
}

template <class Options>
optimizers::Optimizer make_adam(const char* name, Groups<Options> groups, const Options& defaults,
                                bool decoupled) {
  complete(name, groups, defaults);
  const bool amsgrad = *groups[0].amsgrad;
  for (const Options& options : groups)
    if (*options.amsgrad != amsgrad)
      fail<UnimplementedError>(
          "[{}] expected the same value of amsgrad in all groups of parameters", name);
  std::vector<SlotSpec> slots = {{"exp_avg"}, {"exp_avg_sq"}};
  if (amsgrad) slots.push_back({"max_exp_avg_sq"});
  return make<update::Adam>(
      name, groups,
      [decoupled](const Options& options) {
        return update::Adam{.beta_1 = options.betas.values()->first,
                            .beta_2 = options.betas.values()->second,
                            .epsilon = *options.eps,
                            .weight_decay = decoupled ? *options.weight_decay : 0.0,
                            .gradient_decay = decoupled ? 0.0 : *options.weight_decay,
                            .corrected_epsilon = true};
      },
      std::move(slots),
      amsgrad ? optimizers::apply_amsgrad : optimizers::apply_with_two_slots<update::Adam>);
}
optimizers::Optimizer make_optimizer_of(Groups<AdamGroup> groups, const AdamGroup& defaults) {
  return make_adam("adam", std::move(groups), defaults, /*decoupled=*/false);
}
optimizers::Optimizer make_optimizer_of(Groups<AdamWGroup> groups, const AdamWGroup& defaults) {
  return make_adam("adamw", std::move(groups), defaults, /*decoupled=*/true);
}

optimizers::Optimizer make_optimizer_of(Groups<RMSpropGroup> groups, const RMSpropGroup& defaults) {
  complete("rmsprop", groups, defaults);
  const RMSpropGroup& first = groups[0];
  for (const auto& options : groups)
    if ((*options.momentum == 0.0) != (*first.momentum == 0.0) ||
        *options.centered != *first.centered)
      throw UnimplementedError(
          "[rmsprop] expected a momentum in all groups of parameters or in none, and the same "
          "value of centered");
  std::vector<SlotSpec> slots = {{"square_avg"}};
  if (*first.momentum != 0.0) slots.push_back({"momentum_buffer"});
  if (*first.centered) slots.push_back({"grad_avg"});
  return make<update::RmsProp>(
      "rmsprop", groups,
      [](const RMSpropGroup& options) {
        return update::RmsProp{.rho = *options.alpha,
                               .momentum = *options.momentum,
                               .epsilon = *options.eps,
                               .gradient_decay = *options.weight_decay,
                               .outer_epsilon = true};
      },
      std::move(slots), optimizers::apply_rms_prop);
}

optimizers::Optimizer make_optimizer_of(Groups<AdagradGroup> groups, const AdagradGroup& defaults) {
  complete("adagrad", groups, defaults);
  const double initial = *groups[0].initial_accumulator_value;
  check_not_negative("adagrad", "initial_accumulator_value", initial);
  for (const auto& options : groups) {
    check_not_negative("adagrad", "lr_decay", *options.lr_decay);
    if (*options.initial_accumulator_value != initial)
      throw UnimplementedError(
          "[adagrad] expected one initial_accumulator_value for all groups of parameters");
  }
  return make<update::Adagrad>(
      "adagrad", groups,
      [](const AdagradGroup& options) {
        return update::Adagrad{.epsilon = *options.eps,
                               .gradient_decay = *options.weight_decay,
                               .outer_epsilon = true};
      },
      {{"sum", initial}}, optimizers::apply_with_one_slot<update::Adagrad>);
}

// The groups with names.
template <class Options>
std::vector<Options> named_groups(std::initializer_list<ParamsWithOptions<Options>> groups) {
  std::vector<Options> result;
  for (const ParamsWithOptions<Options>& group : groups) {
    result.push_back(group.options);
    result.back().params = group.parameters;
  }
  return result;
}

}  // namespace

SGD::SGD(ParameterList params, const SGDGroup& options)
    : SGD(one_group<SGDGroup>(std::move(params)), options) {}
SGD::SGD(ParameterList params, double lr) : SGD(std::move(params), SGDGroup{.lr = lr}) {}
SGD::SGD(std::vector<SGDGroup> groups, const SGDGroup& defaults)
    : Optimizer(make_optimizer_of(std::move(groups), defaults)) {}
SGD::SGD(std::vector<SGDGroup> groups, double lr) : SGD(std::move(groups), SGDGroup{.lr = lr}) {}
SGD::SGD(std::initializer_list<SGDGroup> groups, const SGDGroup& defaults)
    : SGD(std::vector<SGDGroup>(groups), defaults) {}
SGD::SGD(std::initializer_list<ParamsWithOptions<SGDGroup>> groups, const SGDGroup& defaults)
    : SGD(named_groups(groups), defaults) {}

Adam::Adam(ParameterList params, const AdamGroup& options)
    : Adam(one_group<AdamGroup>(std::move(params)), options) {}
Adam::Adam(ParameterList params, double lr) : Adam(std::move(params), AdamGroup{.lr = lr}) {}
Adam::Adam(std::vector<AdamGroup> groups, const AdamGroup& defaults)
    : Optimizer(make_optimizer_of(std::move(groups), defaults)) {}
Adam::Adam(std::vector<AdamGroup> groups, double lr)
    : Adam(std::move(groups), AdamGroup{.lr = lr}) {}
Adam::Adam(std::initializer_list<AdamGroup> groups, const AdamGroup& defaults)
    : Adam(std::vector<AdamGroup>(groups), defaults) {}
Adam::Adam(std::initializer_list<ParamsWithOptions<AdamGroup>> groups, const AdamGroup& defaults)
    : Adam(named_groups(groups), defaults) {}

AdamW::AdamW(ParameterList params, const AdamWGroup& options)
    : AdamW(one_group<AdamWGroup>(std::move(params)), options) {}
AdamW::AdamW(ParameterList params, double lr) : AdamW(std::move(params), AdamWGroup{.lr = lr}) {}
AdamW::AdamW(std::vector<AdamWGroup> groups, const AdamWGroup& defaults)
    : Optimizer(make_optimizer_of(std::move(groups), defaults)) {}
AdamW::AdamW(std::vector<AdamWGroup> groups, double lr)
    : AdamW(std::move(groups), AdamWGroup{.lr = lr}) {}
AdamW::AdamW(std::initializer_list<AdamWGroup> groups, const AdamWGroup& defaults)
    : AdamW(std::vector<AdamWGroup>(groups), defaults) {}
AdamW::AdamW(std::initializer_list<ParamsWithOptions<AdamWGroup>> groups,
             const AdamWGroup& defaults)
    : AdamW(named_groups(groups), defaults) {}

RMSprop::RMSprop(ParameterList params, const RMSpropGroup& options)
    : RMSprop(one_group<RMSpropGroup>(std::move(params)), options) {}
RMSprop::RMSprop(ParameterList params, double lr)
    : RMSprop(std::move(params), RMSpropGroup{.lr = lr}) {}
RMSprop::RMSprop(std::vector<RMSpropGroup> groups, const RMSpropGroup& defaults)
    : Optimizer(make_optimizer_of(std::move(groups), defaults)) {}
RMSprop::RMSprop(std::vector<RMSpropGroup> groups, double lr)
    : RMSprop(std::move(groups), RMSpropGroup{.lr = lr}) {}
RMSprop::RMSprop(std::initializer_list<RMSpropGroup> groups, const RMSpropGroup& defaults)
    : RMSprop(std::vector<RMSpropGroup>(groups), defaults) {}
RMSprop::RMSprop(std::initializer_list<ParamsWithOptions<RMSpropGroup>> groups,
                 const RMSpropGroup& defaults)
    : RMSprop(named_groups(groups), defaults) {}

Adagrad::Adagrad(ParameterList params, const AdagradGroup& options)
    : Adagrad(one_group<AdagradGroup>(std::move(params)), options) {}
Adagrad::Adagrad(ParameterList params, double lr)
    : Adagrad(std::move(params), AdagradGroup{.lr = lr}) {}
Adagrad::Adagrad(std::vector<AdagradGroup> groups, const AdagradGroup& defaults)
    : Optimizer(make_optimizer_of(std::move(groups), defaults)) {}
Adagrad::Adagrad(std::vector<AdagradGroup> groups, double lr)
    : Adagrad(std::move(groups), AdagradGroup{.lr = lr}) {}
Adagrad::Adagrad(std::initializer_list<AdagradGroup> groups, const AdagradGroup& defaults)
    : Adagrad(std::vector<AdagradGroup>(groups), defaults) {}
Adagrad::Adagrad(std::initializer_list<ParamsWithOptions<AdagradGroup>> groups,
                 const AdagradGroup& defaults)
    : Adagrad(named_groups(groups), defaults) {}

namespace {

std::string rate_name(std::size_t group) { return fmt::format("param_groups.{}.lr", group); }

}  // namespace

std::map<std::string, Tensor> Optimizer::state_dict() const {
  optimizers::Optimizer::Impl& impl = defined_impl();
  std::map<std::string, Tensor> state;
  for (const auto& [name, variable] : impl.named_state())
    state.emplace(name, variable.value().detach());
  for (std::size_t group = 0; group < impl.num_groups(); ++group)
    if (!impl.scheduled(group))
      state.emplace(rate_name(group), constant(impl.learning_rate(group), {.dtype = float64}));
  return state;
}

void Optimizer::load_state_dict(const std::map<std::string, Tensor>& state) const {
  optimizers::Optimizer::Impl& impl = defined_impl();
  const auto value_of = [&](const std::string& name, const Shape& shape, DType dtype) {
    const auto found = state.find(name);
    if (found == state.end())
      fail<InvalidArgumentError>("[{}] expected '{}' in the state, got a state without it",
                                 impl.name(), name);
    if (found->second.shape() != shape || found->second.dtype() != dtype)
      fail<InvalidArgumentError>("[{}] expected '{}' to be {} of shape {}, got {} of shape {}",
                                 impl.name(), name, name_of(dtype), shape.to_string(),
                                 name_of(found->second.dtype()), found->second.shape().to_string());
    return found->second;
  };
  std::vector<std::pair<Variable, Tensor>> values;
  for (const auto& [name, variable] : impl.named_state())
    values.emplace_back(variable, value_of(name, variable.shape(), variable.dtype()));
  std::vector<std::pair<std::size_t, double>> rates;
  for (std::size_t group = 0; group < impl.num_groups(); ++group)
    if (!impl.scheduled(group))
      rates.emplace_back(group, value_of(rate_name(group), Shape::scalar(), float64).item());
  for (auto& [variable, value] : values) variable.assign(value);
  for (const auto& [group, rate] : rates) impl.set_group_rate(group, rate);
}

double ParamGroup::lr() const { return optimizer_.defined_impl().learning_rate(index_); }
void ParamGroup::set_lr(double lr) { optimizer_.defined_impl().set_group_rate(index_, lr); }
const std::vector<Variable>& ParamGroup::params() const {
  return optimizer_.defined_impl().group_parameters(index_);
}

std::vector<ParamGroup> param_groups(const optimizers::Optimizer& optimizer) {
  std::vector<ParamGroup> groups;
  for (std::size_t i = 0; i < optimizer.defined_impl().num_groups(); ++i)
    groups.emplace_back(optimizer, i);
  return groups;
}

}  // namespace tandem::optim
