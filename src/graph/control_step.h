// Runs one control flow operation of a program.
#pragma once

#include <memory>

#include "graph/arena_parts.h"
#include "graph/block.h"
#include "graph/lanes.h"

namespace tandem {

// Runs on the program's thread while no other step runs. Carried values of a loop alternate between
// the operation's outputs and the extra buffers after them, or are kept for the gradient.
class ControlStep {
 public:
  // Builds the programs of the bodies. `step`: the operation's step, whose context has the
  // addresses of each run.
  ControlStep(const BlockOperation& operation, ProgramStep& step, LaneTeam& team,
              ArenaRegion place);
  ~ControlStep();
  ControlStep(const ControlStep&) = delete;
  ControlStep& operator=(const ControlStep&) = delete;

  const BlockOperation& operation() const;
  // Throws what a body or the element source throws.
  void run();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tandem
