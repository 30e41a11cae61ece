// One operation of control flow in a program.
#pragma once

#include <memory>

#include "graph/arena_parts.h"
#include "graph/block.h"
#include "graph/lanes.h"

namespace tandem {

// Runs on the thread of the program, alone. What a loop carries alternates between the operation's
// outputs and the memory behind them, or goes to where it is kept for the way back.
class ControlStep {
 public:
  // `step`: of the operation, whose context has the addresses at each run. Makes the programs of
  // the bodies.
  ControlStep(const Operation& operation, Step& step, LaneTeam& team, ArenaPlace place);
  ~ControlStep();
  ControlStep(const ControlStep&) = delete;
  ControlStep& operator=(const ControlStep&) = delete;

  const Operation& operation() const;
  // Throws what a body throws, and what reading elements throws.
  void run();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tandem
