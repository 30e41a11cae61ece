// The streams that random operations draw from.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>

#include "graph/control_flow.h"
#include "op/op.h"
#include "tandem/random.h"

namespace tandem {

// Thread-safe. Draws are numbered in the order of the calls.
class Generator {
 public:
  explicit Generator(random::GeneratorState state = {.seed = 0x5eed, .draws = 0}) : state_(state) {}
  Draw next();
  random::GeneratorState state() const;
  void set_state(const random::GeneratorState& state);

  // While a graph is built: the latest control flow that draws. How many draws that takes is known
  // when it has run, and counts for what is drawn behind it.
  const std::shared_ptr<DrawSequence>& behind() const { return behind_; }
  void set_behind(std::shared_ptr<DrawSequence> behind) { behind_ = std::move(behind); }
  // Stands where `other` does.
  void follow(const Generator& other) {
    set_state(other.state());
    behind_ = other.behind_;
  }

  // The calling thread's: a replica's own inside a strategy's step, else the process's. A replica's
  // starts each step where the process's stands, so that draw n is the same draw on every replica.
  static Generator& current();
  static Generator& process();

 private:
  mutable std::mutex mutex_;
  random::GeneratorState state_;
  std::shared_ptr<DrawSequence> behind_;
};

// OpDef::exchange_draw of an operation whose attributes keep the draw in three fields.
template <class Attrs>
Draw exchange_draw(void* attrs, const Draw& draw) {
  auto& fields = *static_cast<Attrs*>(attrs);
  const Draw previous = {fields.seed, fields.number, fields.stream};
  fields.seed = draw.seed;
  fields.number = draw.number;
  fields.stream = draw.stream;
  return previous;
}

// Makes `generator` the calling thread's while it lives.
class GeneratorScope {
 public:
  explicit GeneratorScope(Generator& generator);
  ~GeneratorScope();
  GeneratorScope(const GeneratorScope&) = delete;
  GeneratorScope& operator=(const GeneratorScope&) = delete;

 private:
  Generator* previous_;
};

}  // namespace tandem
