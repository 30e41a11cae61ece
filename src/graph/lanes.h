// The steps of a program, one list (lane) per device, and the threads that run them.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "comm/bucket.h"
#include "comm/communicator.h"
#include "core/thread_team.h"
#include "graph/block.h"

namespace tandem {

// One kernel call of a program, with its arguments.
struct ProgramStep {
  KernelFn kernel = nullptr;  // null for a copy between devices and for a wait
  KernelContext context;
  std::shared_ptr<const void> attrs;
  // Objects that the kernel keeps (KernelContext::keep); shared with calls queued on a stream.
  std::shared_ptr<std::vector<std::shared_ptr<void>>> kept;
  std::size_t copy_bytes = 0;
  Device* from = nullptr;  // of a copy: the device of the input
  // The step on another device that this one waits for; null if there is none.
  ProgramStep* awaits = nullptr;
  const CollectiveMember* member = nullptr;  // launches a collective
  ProgramStep* started = nullptr;            // waits for the collective that this step launched
  std::shared_ptr<CollectiveWork> work;      // launched, not waited for yet
  Bucket* bucket = nullptr;                  // of the launched collective, if its group packs
  bool awaited = false;                      // a step on another device waits for this one
  std::atomic<std::uint64_t> finished{
      0};  // the number of the last run that completed it, if awaited
  const BlockOperation* operation = nullptr;
};

// One step per operation of `block`, which must outlive them. Their contexts are empty.
std::vector<std::unique_ptr<ProgramStep>> make_steps(const Block& block);

// The threads of a program, one per device; all Lanes of the program share them. The thread that
// runs the program serves the first device.
class LaneTeam {
 public:
  explicit LaneTeam(std::vector<const Device*> devices)
      : devices_(std::move(devices)), threads_(static_cast<int>(devices_.size())) {}
  // REQUIRES: the device is one of them.
  std::size_t member(const Device& device) const;
  std::size_t size() const { return devices_.size(); }
  ThreadTeam& threads() { return threads_; }

 private:
  std::vector<const Device*> devices_;
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
