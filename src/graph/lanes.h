// The lists of steps of a program, one a device, and the threads that run them.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "comm/communicator.h"
#include "graph/block.h"

namespace tandem {

// One kernel of a program, everything it needs at hand.
struct Step {
  KernelFn kernel = nullptr;  // null: a copy between devices, or a wait
  KernelContext context;
  std::shared_ptr<const void> attrs;
  std::size_t copy_bytes = 0;
  Device* from = nullptr;  // kernel == nullptr: where the input is
  // The step of another device that this one waits for; null: none.
  Step* behind = nullptr;
  const CollectiveMember* member = nullptr;  // starts a collective
  Step* started = nullptr;                   // waits for the one that this step started
  std::shared_ptr<Work> work;                // started, not waited for yet
  bool awaited = false;                      // some step of another device waits for this one
  std::atomic<std::uint64_t> finished{0};    // awaited: the round in which it was last done
  const Operation* operation = nullptr;
};

class Lanes {
 public:
  // A step for each operation of `block`, which must outlive the lanes; contexts are empty.
  explicit Lanes(const Block& block);
  ~Lanes();
  Lanes(const Lanes&) = delete;
  Lanes& operator=(const Lanes&) = delete;

  Step& step(std::size_t operation);
  // Runs every lane to its end. When a step throws, the others stop at their next step or in the
  // collective that they wait in, and the first error is thrown.
  void run();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tandem
