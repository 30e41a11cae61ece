// The generators that number random operations.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>

#include "graph/control_flow.h"
#include "op/context.h"
#include "op/op.h"
#include "tandem/random.h"

namespace tandem {

// Thread-safe. Random operations are numbered in the order of the calls.
class Generator {
 public:
  explicit Generator(random::GeneratorState state = {.seed = 0x5eed, .offset = 0})
      : state_(state) {}
  RandomKey next();
  random::GeneratorState state() const;
  void set_state(const random::GeneratorState& state);

  // While a graph is built: the last control flow that uses random numbers. Later random operations
  // add its total() to their own numbers when the graph runs.
  const std::shared_ptr<RandomSequence>& last_random() const { return last_random_; }
  void set_last_random(std::shared_ptr<RandomSequence> last) { last_random_ = std::move(last); }
  // Copies the state of `other`.
  void follow(const Generator& other) {
    set_state(other.state());
    last_random_ = other.last_random_;
  }

  // The calling thread's: inside a strategy's step the replica's own, else the process's. A
  // replica's generator starts each step with the process's state, so that the n-th random
  // operation has the same number on every replica.
  static Generator& current() { return context.generator ? *context.generator : process(); }
  static Generator& process();

 private:
  mutable std::mutex mutex_;
  random::GeneratorState state_;
  std::shared_ptr<RandomSequence> last_random_;
};

// OpDef::exchange_key of an operation whose attributes keep the key in three fields.
template <class Attrs>
RandomKey exchange_key(void* attrs, const RandomKey& key) {
  auto& fields = *static_cast<Attrs*>(attrs);
  const RandomKey previous = {fields.seed, fields.number, fields.stream};
  fields.seed = key.seed;
  fields.number = key.number;
  fields.stream = key.stream;
  return previous;
}

}  // namespace tandem
