#include "ps/function_scheduler.h"

#include "core/status.h"
#include "graph/graph.h"
#include "ps/split.h"
#include "runtime/generator.h"
#include "runtime/variable_name.h"

namespace tandem::ps {
namespace {

// The state of the random operations of a call that starts now. Advances the thread's generator as
// a call that runs here would.
random::GeneratorState random_state_of_call(const TracedFunction& function) {
  const random::GeneratorState state = Generator::current().state();
  random::GeneratorState next = state;
  next.offset += function.random_count;
  if (function.last_random) next.offset += function.last_random->total();
  Generator::current().set_state(next);
  return state;
}

}  // namespace

FunctionScheduler::Sent& FunctionScheduler::send(
    const std::shared_ptr<const TracedFunction>& function) {
  const auto found = sent_.find(function.get());
  if (found != sent_.end() && found->second.function.lock() == function) return found->second;
  remove_expired();
  SplitFunction parts = split(*function, [&](const Resource& variable) {
    std::vector<Shard> shards = servers_->find(variable.identity());
    if (shards.empty())
      fail<FailedPreconditionError>(
          "[{}] uses variable {}, which is not on the parameter servers: create it in the scope of "
          "the ParameterServerStrategy",
          function->name, quoted_name(variable.name(), variable.spec()));
    return shards;
  });
  Sent sent{.function = function,
            .used = {},
            .id = next_id_++,
            .worker_attributes = std::move(parts.worker_attributes),
            .update_attributes = std::move(parts.update_attributes)};
  servers_->add_updates(sent.id, parts.message);
  sent.used = coordinator_.add_function(sent.id, std::move(parts.message));
  return sent_.emplace(function.get(), std::move(sent)).first->second;
}

void FunctionScheduler::remove_expired() {
  // First, so that the functions that used these variables are seen to be gone below.
  const std::vector<VariableId> dropped = servers_->take_dropped();
  dropped_.insert(dropped_.end(), dropped.begin(), dropped.end());
  std::erase_if(sent_, [&](const auto& entry) {
    const Sent& sent = entry.second;
    if (!sent.function.expired()) return false;
    coordinator_.remove_function(sent.id);
    gone_.emplace(sent.id, sent.used);
    return true;
  });
  std::vector<std::uint64_t> unused;
  for (const auto& [id, used] : gone_)
    if (used.expired()) unused.push_back(id);
  if (!unused.empty()) servers_->remove_updates(unused);
  for (const std::uint64_t id : unused) gone_.erase(id);
  if (!gone_.empty() || dropped_.empty()) return;  // a closure may still use them
  servers_->remove(dropped_);
  dropped_.clear();
}

std::shared_ptr<RemoteResult> FunctionScheduler::schedule(
    const std::shared_ptr<const TracedFunction>& function, std::vector<Tensor> arguments,
    std::vector<std::uint64_t> iterators, std::vector<Coordinator::WorkersArgument> workers) {
  const std::lock_guard lock(mutex_);
  Sent& sent = send(function);
  FunctionRun run{.function = sent.id,
                  .arguments = std::move(arguments),
                  .iterators = std::move(iterators),
                  .max_staleness = options_.max_staleness,
                  .contributions = options_.contributions,
                  .random = random_state_of_call(*function)};
  for (const Node* node : sent.worker_attributes)
    run.worker_attributes.push_back(attributes_of_run(*node));
  for (const Node* node : sent.update_attributes)
    if (node) run.update_attributes.push_back(attributes_of_run(*node));
  if (++sent.calls_of_step >= options_.contributions) {
    sent.calls_of_step = 0;
    for (const auto& action : function->graph->after_run()) action();
  }
  return coordinator_.schedule(std::move(run), std::move(workers));
}

}  // namespace tandem::ps
