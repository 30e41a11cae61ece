// Runs the steps of a program: one list (lane) and one thread per device.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "core/thread_team.h"
#include "graph/program_step.h"

namespace tandem {

// The threads of a program, one per device; all Lanes of the program share them. The thread that
// runs the program serves the first device.
class LaneTeam {
 public:
  // For the devices of the block and of the blocks that its control flow runs.
  explicit LaneTeam(const Block& block);
  // REQUIRES: the device is one of them.
  std::size_t member(const DeviceImpl& device) const;
  std::size_t size() const { return devices_.size(); }
  ThreadTeam& threads() { return threads_; }

 private:
  std::vector<const DeviceImpl*> devices_;
  ThreadTeam threads_;
};

// A sequence of steps without control flow between them, split by device.
class Lanes {
 public:
  Lanes(std::span<ProgramStep* const> steps, LaneTeam& team);
  ~Lanes();
  Lanes(const Lanes&) = delete;
  Lanes& operator=(const Lanes&) = delete;

  // Runs every lane to its end. If a step throws, the other lanes stop at their next step, or in
  // the collective that they are waiting for, and the first error is rethrown.
  void run();
  // Whether CUDA graphs were recorded that could not be replayed, because their addresses change
  // from run to run.
  bool wastes_recordings() const;
  // Drops the recorded CUDA graphs, whose addresses are no longer valid.
  void forget_recordings();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tandem
