// The lists of steps of a program, one a device, and the threads that run them.
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

// One kernel of a program, everything it needs at hand.
struct Step {
  KernelFn kernel = nullptr;  // null: a copy between devices, or a wait
  KernelContext context;
  std::shared_ptr<const void> attrs;
  // By the kernel (KernelContext::keep); shared with calls that a stream still has to make.
  std::shared_ptr<std::vector<std::shared_ptr<void>>> kept;
  std::size_t copy_bytes = 0;
  Device* from = nullptr;  // kernel == nullptr: where the input is
  // The step of another device that this one waits for; null: none.
  Step* behind = nullptr;
  const CollectiveMember* member = nullptr;  // starts a collective
  Step* started = nullptr;                   // waits for the one that this step started
  std::shared_ptr<Work> work;                // started, not waited for yet
  Bucket* bucket = nullptr;                  // of the one it starts, where its group packs
  bool awaited = false;                      // some step of another device waits for this one
  std::atomic<std::uint64_t> finished{0};    // awaited: the round in which it was last done
  const Operation* operation = nullptr;
};

// A step for each operation of `block`, which must outlive them; contexts are empty.
std::vector<std::unique_ptr<Step>> make_steps(const Block& block);

// The threads of a program, one for each of its devices, which is the same in all its lanes. The
// first device's is the thread that runs the program.
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

// Steps between which no control flow stands.
class Lanes {
 public:
  Lanes(std::span<Step* const> steps, LaneTeam& team);
  ~Lanes();
  Lanes(const Lanes&) = delete;
  Lanes& operator=(const Lanes&) = delete;

  // Runs every lane to its end. When a step throws, the others stop at their next step or in the
  // collective that they wait in, and the first error is thrown.
  void run();
  // Whether GPUs get their kernels in recordings that are of no use a second time, for the
  // addresses in them change from run to run.
  bool records_in_vain() const;
  // Drops the recordings: what they address is elsewhere from now on.
  void forget_recordings();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tandem
