#include "runtime/generator.h"

#include "core/mutex.h"
#include "runtime/replica_context.h"

namespace tandem {

RandomKey Generator::next() {
  const ReplicaContext* replica = ReplicaContext::current();
  const std::lock_guard lock(mutex_);
  return {.seed = state_.seed,
          .number = state_.offset++,
          .stream = replica ? static_cast<std::uint32_t>(replica->replica_id()) : 0u};
}

random::GeneratorState Generator::state() const {
  const std::lock_guard lock(mutex_);
  return state_;
}

void Generator::set_state(const random::GeneratorState& state) {
  const std::lock_guard lock(mutex_);
  state_ = state;
}

Generator& Generator::process() {
  static auto& generator = *new Generator;
  static const auto& held_at_fork = *new HeldAtFork(generator.mutex_);
  static_cast<void>(held_at_fork);
  return generator;
}

namespace random {

void set_seed(std::uint64_t seed) {
  tandem::Generator::process().set_state({.seed = seed, .offset = 0});
}
GeneratorState get_state() { return tandem::Generator::process().state(); }
void set_state(const GeneratorState& state) { tandem::Generator::process().set_state(state); }

}  // namespace random
}  // namespace tandem
