#include <cmath>

#include "autodiff/engine.h"
#include "core/joined.h"
#include "core/log.h"
#include "core/status.h"
#include "device/device_manager.h"
#include "graph/control_flow.h"
#include "graph/graph.h"
#include "nn/optimizer_impl.h"
#include "ops/nn/update.h"
#include "runtime/placement.h"
#include "runtime/replica_context.h"
#include "runtime/replica_invariance.h"
#include "runtime/variable_impl.h"
#include "tandem/autodiff.h"
#include "tandem/creation.h"
#include "tandem/device.h"
#include "tandem/graph.h"
#include "tandem/math.h"

namespace tandem::optimizers {
namespace {

// The number of steps that a replica has taken.
std::int64_t read_count(const VariableImpl& steps, std::size_t replica) {
  if (steps.of_graph())
    throw FailedPreconditionError(
        "[Optimizer] the step counter is a variable of a graph: fetch it by Session::run()");
  return *steps.storage().value(replica).data<std::int64_t>();
}

void check_pair(const std::string& optimizer, const Tensor& gradient, const Variable& variable) {
  if (!gradient.defined()) return;
  if (!may_agree(gradient.shape(), variable.shape()) || gradient.dtype() != variable.dtype())
    fail<InvalidArgumentError>(
        "[{}] expected a gradient of shape {} and dtype {} for variable {}, got {} and {}",
        optimizer, variable.shape().to_string(), name_of(variable.dtype()), quoted_name(variable),
        gradient.shape().to_string(), name_of(gradient.dtype()));
}

void check_clipping(const std::string& optimizer, const Clipping& clipping) {
  int given = 0;
  for (const auto& bound : {clipping.clipnorm, clipping.clipvalue, clipping.global_clipnorm}) {
    if (!bound) continue;
    ++given;
    if (!(*bound > 0.0 && std::isfinite(*bound)))  // infinity / infinity is NaN
      fail<InvalidArgumentError>("[{}] expected a positive bound on gradients, got {}", optimizer,
                                 *bound);
  }
  if (given > 1)
    fail<InvalidArgumentError>(
        "[{}] expected at most one of clipvalue, clipnorm and global_clipnorm, got {}", optimizer,
        given);
}

}  // namespace

Optimizer::Impl::Impl(std::string name, LearningRate rate, const Clipping& clipping,
                      std::vector<Variable> parameters)
    : name_(std::move(name)), clipping_(clipping) {
  check_clipping(name_, clipping_);
  add_group(rate, parameters);
}

void Optimizer::Impl::add_group(const LearningRate& rate, const std::vector<Variable>& parameters) {
  const std::size_t group = groups_.size();
  groups_.push_back({std::make_shared<LearningRate>(0.0), parameters});
  for (const Variable& variable : parameters) {
    const auto [found, added] = group_of_.emplace(&variable.impl(), group);
    if (!added && found->second != group)
      fail<InvalidArgumentError>("[{}] parameter {} is in more than one group of parameters", name_,
                                 quoted_name(variable));
    parameters_.push_back(variable);
  }
  set_group_rate(group, rate);
}

void Optimizer::Impl::set_group_rate(std::size_t group, const LearningRate& rate) {
  if (!rate.scheduled()) rate_at(name_, rate, 0);
  *groups_[group].rate = rate;
  if (group == 0 && rate.scheduled()) schedule_ = rate;
}

void Optimizer::Impl::set_learning_rate(const LearningRate& rate) {
  if (groups_.size() > 1 && rate.scheduled())
    fail<UnimplementedError>(
        "[{}] expected a number as the learning rate of {} groups of parameters, got a schedule",
        name_, groups_.size());
  const double before = groups_.size() > 1 ? learning_rate() : 0.0;
  set_group_rate(0, rate);
  if (!(before > 0.0)) return;
  for (std::size_t group = 1; group < groups_.size(); ++group)
    if (!scheduled(group)) set_group_rate(group, learning_rate(group) * (learning_rate() / before));
}

double Optimizer::Impl::rate_at(const std::string& name, const LearningRate& rate,
                                std::int64_t step) {
  const double value = rate.at(step);
  if (!(value >= 0.0 && std::isfinite(value)))
    fail<InvalidArgumentError>("[{}] expected a finite learning rate of 0 or more, got {}{}", name,
                               value,
                               rate.scheduled() ? fmt::format(" in step {}", step) : std::string());
  return value;
}

// --- slots ---

// One step's update of any of the variables.
class Optimizer::Impl::StepUpdate final : public VariableUpdate {
 public:
  // `of_run` keeps `optimizer` alive. Null outside functions.
  StepUpdate(const Impl& optimizer, const StepInfo& step, StepOfRun of_run)
      : optimizer_(optimizer), step_(step), of_run_(std::move(of_run)) {}

  std::size_t group() const { return step_.group; }

  void apply(const Tensor& variable, const Tensor& gradient,
             std::span<const Tensor> slots) const override {
    optimizer_.update(in_run_ ? of_run_(0) : step_, variable, gradient, slots);
  }

  std::shared_ptr<const VariableUpdate> for_runs() const override {
    if (!of_run_)
      throw UnimplementedError(
          "[Optimizer] graphs for sessions do not support variables that update themselves");
    auto result = std::make_shared<StepUpdate>(*this);
    result->in_run_ = true;
    return result;
  }

 private:
  const Impl& optimizer_;
  StepInfo step_;
  StepOfRun of_run_;
  bool in_run_ = false;
};

// Each replica needs its own copy, so all variables of an optimizer must have the same number of
// copies.
void Optimizer::Impl::check_copies(const Variable& variable) const {
  static_cast<void>(variable.impl().local_index());  // throws in a replica of another strategy
  const std::size_t copies = variable.impl().storage().num_readers();
  const auto expect = [&](std::size_t replicas) {
    if (copies == replicas) return;
    fail<InvalidArgumentError>(
        "[{}] Trying to create optimizer slot variable under the scope for a strategy of {} "
        "replica(s), which is different from the scope used for the original variable ({}, created "
        "for {}). Create the variables and run the optimizer under the same strategy.",
        name_, replicas, quoted_name(variable), copies);
  };
  if (iterations_.defined()) expect(iterations_.impl().storage().num_readers());
  if (const ReplicaContext* context = ReplicaContext::current())
    expect(static_cast<std::size_t>(context->num_local_replicas()));
}

std::unique_ptr<Optimizer::Impl::State> Optimizer::Impl::make_state(
    const Variable& variable) const {
  VariableImpl& impl = variable.impl();
  auto state = std::make_unique<State>(State{variable, {}});
  if (const auto group = group_of_.find(&impl); group != group_of_.end())
    state->group = group->second;
  const std::string of =
      variable.name().empty() ? fmt::format("variable_{}", order_.size()) : variable.name();
  const auto make_slots = [&] {
    for (const SlotSpec& slot : slots())
      state->slots.push_back(impl.make_slot(full(variable.shape(), slot.initial_value,
                                                 {.dtype = update::slot_dtype(variable.dtype())}),
                                            fmt::format("{}/{}/{}", name_, of, slot.name)));
  };
  if (impl.of_graph()) {
    const ColocateWith beside(impl.storage().value(0));
    make_slots();
  } else {
    const OnDevice on(impl.storage().home(0));
    make_slots();
  }
  return state;
}

// Has one copy on the host per copy of `like`.
Variable Optimizer::Impl::make_step_counter(const VariableImpl& like) {
  const DeviceScope on_host("/cpu:0");
  const Tensor zero = zeros(Shape::scalar(), {.dtype = int64});
  VariableOptions options{
      .trainable = false, .name = "iterations", .synchronization = like.options().synchronization};
  if (like.of_graph()) return Variable(make_ref<VariableImpl>(zero, std::move(options)));
  const std::vector<DeviceImpl*> hosts(like.storage().num_readers(), &DeviceManager::get().host());
  return Variable(make_ref<VariableImpl>(zero, hosts, std::move(options), MemoryTag::kOptimizer,
                                         nullptr, like.strategy()));
}

std::vector<Optimizer::Impl::State*> Optimizer::Impl::states_of(
    const std::vector<Variable>& variables) {
  NoGradScope no_grad;
  const Scoped tag(memory_tag, MemoryTag::kOptimizer);
  const std::lock_guard lock(mutex_);
  std::vector<State*> states;
  states.reserve(variables.size());
  for (const Variable& variable : variables) {
    check_copies(variable);
    // Slots are created eagerly, also while a function is traced. Slots of a graph's variables
    // belong to that graph.
    std::optional<Scoped<GraphImpl*>> eager;
    if (!variable.impl().of_graph()) eager.emplace(context.graph, nullptr);
    if (!iterations_.defined()) iterations_ = make_step_counter(variable.impl());
    std::unique_ptr<State>& state = states_[&variable.impl()];
    if (!state) {
      state = make_state(variable);
      order_.push_back(state.get());
    }
    states.push_back(state.get());
  }
  return states;
}

std::vector<Variable> Optimizer::Impl::variables_of_steps() const {
  const std::lock_guard lock(mutex_);
  std::vector<Variable> result;
  if (iterations_.defined()) result.push_back(iterations_);
  for (const State* state : order_)
    result.insert(result.end(), state->slots.begin(), state->slots.end());
  return result;
}

std::vector<std::pair<std::string, Variable>> Optimizer::Impl::named_state() {
  const std::vector<State*> states = states_of(parameters_);
  const std::vector<SlotSpec> specs = slots();
  std::vector<std::pair<std::string, Variable>> result = {{"iterations", iterations_}};
  for (std::size_t i = 0; i < states.size(); ++i)
    for (std::size_t slot = 0; slot < specs.size(); ++slot)
      result.emplace_back(fmt::format("state.{}.{}", i, specs[slot].name), states[i]->slots[slot]);
  return result;
}

std::vector<Variable> Optimizer::Impl::variables() const {
  std::vector<Variable> result = variables_of_steps();
  for (const auto& scale : loss_scales_)
    for (Variable& variable : scale->variables()) result.push_back(std::move(variable));
  return result;
}

std::int64_t Optimizer::Impl::iterations() const {
  const std::lock_guard lock(mutex_);
  if (!iterations_.defined()) return 0;
  const VariableImpl& steps = iterations_.impl();
  return read_count(steps, steps.local_index());
}

// --- a step ---

void Optimizer::Impl::clip(std::vector<Tensor>& gradients) const {
  if (clipping_.global_clipnorm) {
    gradients = clip_by_global_norm(gradients, *clipping_.global_clipnorm).tensors;
    return;
  }
  for (Tensor& gradient : gradients) {
    if (!gradient.defined()) continue;
    if (clipping_.clipvalue)
      gradient = clip_by_value(gradient, -*clipping_.clipvalue, *clipping_.clipvalue);
    else if (clipping_.clipnorm)
      gradient = clip_by_norm(gradient, *clipping_.clipnorm);
  }
}

void Optimizer::Impl::update_states(const StepUpdate& update, std::size_t copy,
                                    std::span<State* const> states,
                                    std::span<const Tensor> gradients) {
  for (std::size_t i = 0; i < states.size(); ++i)
    if (gradients[i].defined() && states[i]->group == update.group())
      states[i]->variable.impl().update(copy, update, gradients[i], states[i]->slots);
}

void Optimizer::Impl::update_in_graph(std::size_t copy, std::span<State* const> states,
                                      std::span<const Tensor> gradients) {
  if (trust_) throw UnimplementedError("[LARC] graphs for sessions do not support trust ratios");
  if (groups_.size() > 1)
    fail<UnimplementedError>(
        "[{}] graphs for sessions support one group of parameters, got {}; use a td::function",
        name_, groups_.size());
  const std::shared_ptr<LearningRate> rate_of_steps = groups_[0].rate;
  VariableImpl& iterations = iterations_.impl();
  const std::size_t before = context.graph->nodes().size();
  update_states({*this, step_at(0), nullptr}, copy, states, gradients);
  auto counted = std::make_shared<CountedAttrUpdate>();
  counted->counter = symbol_of(iterations.memory(copy)).node;
  counted->formula = [rate = rate_of_steps, name = name_]() -> std::optional<RateFormula> {
    if (!rate->scheduled()) return std::nullopt;
    if (const auto* formula = rate->schedule().target<RateFormula>()) return *formula;
    fail<UnimplementedError>(
        "[Graph] the learning rate of '{}' is a C++ function, which cannot be serialised; use one "
        "of optimizers::schedules",
        name);
  };
  counted->update = [rate = rate_of_steps, name = name_, set_step = step_setter()](
                        void* attrs, std::int64_t count) {
    set_step({.learning_rate = rate_at(name, *rate, count), .number = count + 1}, attrs);
  };
  for (std::size_t i = before; i < context.graph->nodes().size(); ++i) {
    Node& node = *context.graph->nodes()[i];
    if (node.op->mutated_inputs != 0) node.counted = counted;
  }
  const DeviceScope host("/cpu:0");
  iterations.write(copy, iterations.read(copy) + ones(Shape::scalar(), {.dtype = int64}));
}

void Optimizer::Impl::update_copy(std::size_t copy, std::span<State* const> states,
                                  std::span<const Tensor> gradients) {
  if (context.graph && context.graph->for_sessions) {
    update_in_graph(copy, states, gradients);
    return;
  }
  VariableImpl& steps = iterations_.impl();
  const RefPtr<Resource> counter = steps.resource(copy);
  std::int64_t count = read_count(steps, copy);
  // In a program, each run reads the counter's current value and increments it.
  const int earlier = context.graph ? context.graph->next_of(steps.storage().identity(copy)) : 0;
  count += earlier;
  if (context.graph) context.graph->count(counter);
  const auto of_run = [&](std::size_t group) -> StepOfRun {
    if (!context.graph) return nullptr;
    return [self = shared_from_this(), &steps, copy, earlier, group](std::int64_t more) {
      return self->step_at(read_count(steps, copy) + earlier + more, group);
    };
  };
  const std::vector<Tensor> scaled =
      trusted(copy, states, gradients, step_at(count), {of_run(0), counter});
  for (std::size_t group = 0; group < groups_.size(); ++group) {
    std::shared_ptr<const AttrUpdate> step_update;
    if (context.graph)
      step_update = std::make_shared<const AttrUpdate>(
          [of_run = of_run(group), set_step = step_setter()](void* attrs, std::int64_t more) {
            set_step(of_run(more), attrs);
          },
          counter);
    const Scoped update_scope(context.attr_update, &step_update);
    update_states({*this, step_at(count, group), of_run(group)}, copy, states, scaled);
  }
  if (!context.graph) add_to(*counter, 1);
}

void Optimizer::Impl::report_missing(std::span<const Tensor> gradients,
                                     const std::vector<Variable>& variables) {
  std::vector<std::string> missing;
  for (std::size_t i = 0; i < gradients.size(); ++i)
    if (!gradients[i].defined())
      missing.push_back(variables[i].name().empty() ? quoted_name(variables[i])
                                                    : variables[i].name());
  if (missing.empty()) return;
  if (missing.size() == variables.size())
    fail<InvalidArgumentError>(
        "[{}] No gradients provided for any variable: [{}]. The loss does not depend on them, or "
        "it was computed while gradients were not recorded",
        name_, joined(missing, ", "));
  const std::lock_guard lock(mutex_);
  if (std::exchange(missing_reported_, true)) return;
  logging::warn(
      "[{}] Gradients do not exist for variables [{}] when minimizing the loss. They are not "
      "updated.",
      name_, joined(missing, ", "));
}

namespace {

[[noreturn]] void fail_without_parts(const std::string& optimizer) {
  fail<FailedPreconditionError>(
      "[{}] the replica-invariant mode is on (config::set_replica_invariant_parts), but the step "
      "runs outside a part: run it inside distribute::for_each_part()",
      optimizer);
}

// Returns null if the gradients need no reduction.
std::unique_ptr<GradientSync> start_sync(const std::string& optimizer,
                                         const std::vector<Variable>& variables,
                                         GradientExchange* exchange) {
  if (exchange && invariant_parts() > 0)
    fail<UnimplementedError>(
        "[{}] the replica-invariant mode (config::set_replica_invariant_parts) is supported by "
        "strategies and DistributedDataParallel, but not by Horovod's DistributedOptimizer",
        optimizer);
  if (exchange) return exchange->start(variables);
  ReplicaContext* context = ReplicaContext::current();
  if (!context || (context->num_replicas() == 1 && context->part() < 0)) return nullptr;
  if (invariant_parts() > 0 && context->part() < 0) fail_without_parts(optimizer);
  return context->start_sync(variables, ReduceOp::kSum);
}

}  // namespace

void Optimizer::Impl::update_replicas(std::span<State* const> states,
                                      std::span<const Tensor> gradients,
                                      const std::vector<Variable>& variables,
                                      GradientExchange* exchange) {
  const auto update = [&] {
    if (ReplicaContext* context = ReplicaContext::current()) {
      update_copy(static_cast<std::size_t>(context->local_replica_id()), states, gradients);
      context->run_for_idle_replicas([&] {
        const int idle = ReplicaContext::current()->local_replica_id();
        update_copy(static_cast<std::size_t>(idle), states, gradients);
      });
      context->end_write(variables);
    } else {
      const std::size_t copies = iterations_.impl().storage().num_readers();
      for (std::size_t copy = 0; copy < copies; ++copy) update_copy(copy, states, gradients);
    }
  };
  if (exchange)
    exchange->apply(variables, update);
  else
    update();
}

void Optimizer::Impl::take_step(std::span<State* const> states, std::vector<Tensor> gradients,
                                const std::vector<Variable>& variables, GradientExchange* exchange,
                                LossScaledStep* scaled) {
  NoGradScope no_grad;
  const Scoped tag(memory_tag, MemoryTag::kGradients);  // for clipped copies
  if (scaled) return take_scaled_step(states, std::move(gradients), variables, exchange, *scaled);
  clip(gradients);
  update_replicas(states, gradients, variables, exchange);
}

void Optimizer::Impl::apply(std::vector<Tensor> gradients, const std::vector<Variable>& variables,
                            const ApplyOptions& options, GradientExchange* exchange,
                            Missing missing, LossScaledStep* scaled) {
  if (gradients.size() != variables.size())
    fail<InvalidArgumentError>("[{}] expected a gradient for each of {} variables, got {}", name_,
                               variables.size(), gradients.size());
  if (variables.empty())
    fail<InvalidArgumentError>("[{}] expected variables to update, got none", name_);
  for (std::size_t i = 0; i < variables.size(); ++i) check_pair(name_, gradients[i], variables[i]);

  NoGradScope no_grad;
  const Scoped tag(memory_tag, MemoryTag::kGradients);
  std::optional<LossScaledStep> own;
  if (!scaled && (own = own_scaled_step())) scaled = &*own;
  if (scaled && scaled->unscaled.defined()) spread_overflow(scaled->unscaled, gradients);
  // Checks the variables before the gradients are reduced.
  const std::vector<State*> states = states_of(variables);
  if (!options.skip_gradients_aggregation) {
    if (const auto sync = start_sync(name_, variables, exchange)) {
      for (std::size_t i = 0; i < gradients.size(); ++i) sync->ready(i, std::move(gradients[i]));
      std::optional<std::vector<Tensor>> reduced = sync->finish();
      if (!reduced) return;
      gradients = std::move(*reduced);
    }
  }
  if (missing == Missing::kReported) report_missing(gradients, variables);
  take_step(states, std::move(gradients), variables, exchange, scaled);
}

void Optimizer::Impl::minimize(const Tensor& loss, const std::vector<Variable>& variables,
                               GradientExchange* exchange) {
  if (loss.size() != 1)
    fail<InvalidArgumentError>("[{}] expected a scalar loss, got shape {}", name_,
                               loss.shape().to_string());
  if (is_constant(impl_of(loss).grad))
    fail<FailedPreconditionError>(
        "[{}] the loss depends on no trainable variable, or was computed under NoGradScope", name_);
  if (variables.empty())
    fail<InvalidArgumentError>("[{}] expected variables to update, got none", name_);

  const Scoped tag(memory_tag, MemoryTag::kGradients);
  BackwardPass pass;
  const Tensor one = ones_like(loss.detach());
  pass.roots.push_back(
      {impl_of(loss).grad, loss_scale() ? cast(loss_scale()->scaled(one), one.dtype()) : one});
  for (const Variable& variable : variables) {
    const RefPtr<Leaf>& leaf = variable.impl().leaf();
    if (!leaf)
      fail<InvalidArgumentError>("[{}] variable {} is not trainable", name_, quoted_name(variable));
    pass.sources.push_back({leaf, 0});
  }
  const auto sync = start_sync(name_, variables, exchange);
  if (!sync && invariant_parts() > 0) fail_without_parts(name_);
  if (!sync) return apply(run_backward(pass), variables, {}, nullptr, Missing::kReported);
  pass.on_ready = [&](std::size_t source, Tensor gradient) {
    sync->ready(source, std::move(gradient));
  };
  pass.buffer = [&](std::size_t source) { return sync->gradient_buffer(source); };
  run_backward(pass);
  std::optional<std::vector<Tensor>> gradients = sync->finish();
  if (!gradients) return;
  report_missing(*gradients, variables);
  std::optional<LossScaledStep> scaled = own_scaled_step();
  take_step(states_of(variables), std::move(*gradients), variables, exchange,
            scaled ? &*scaled : nullptr);
}

}  // namespace tandem::optimizers
