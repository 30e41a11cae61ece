// The streams that random operations draw from.
#pragma once

#include <cstdint>
#include <mutex>

#include "tandem/random.h"

namespace tandem {

// What identifies one draw: with an element's position, the input of the counter-based generator.
struct Draw {
  std::uint64_t seed = 0;
  std::uint64_t number = 0;
  std::uint32_t stream = 0;  // the replica, where replicas are to differ; 0 otherwise
};

// Thread-safe. Draws are numbered in the order of the calls.
class Generator {
 public:
  explicit Generator(random::GeneratorState state = {.seed = 0x5eed, .draws = 0}) : state_(state) {}
  Draw next();
  random::GeneratorState state() const;
  void set_state(const random::GeneratorState& state);

  // The calling thread's: a replica's own inside a strategy's step, else the process's. A replica's
  // starts each step where the process's stands, so that draw n is the same draw on every replica.
  static Generator& current();
  static Generator& process();

 private:
  mutable std::mutex mutex_;
  random::GeneratorState state_;
};

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
