// The steps of a program: kernel calls, copies between devices and waits.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "comm/bucket.h"
#include "comm/communicator.h"
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
  DeviceImpl* from = nullptr;  // of a copy: the device of the input
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

// An operation that the program's thread runs while no other step runs
// (BlockOperation::runs_alone).
class LoneStep {
 public:
  virtual ~LoneStep() = default;
  virtual const BlockOperation& operation() const = 0;
  // Throws the errors of the operation.
  virtual void run() = 0;
};

// One step per operation of `block`, which must outlive them. Their contexts are empty.
std::vector<std::unique_ptr<ProgramStep>> make_steps(const Block& block);

}  // namespace tandem
