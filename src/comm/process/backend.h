// What moves the bytes of a group of processes: shared memory, a library, a network.
#pragma once

#include <chrono>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "comm/group_failure.h"
#include "comm/signature.h"

namespace tandem {

// A call of a rank, as ProcessCommunicator checked it. Lives until its operation is gone.
struct Collective {
  std::uint64_t sequence = 0;  // among the collectives of the group; none for kSend and kRecv
  Signature signature;
  Label label;
  // What this rank gives and gets, in memory that the backend takes. kAllReduce, kReduce and
  // kBroadcast work in place: the same list twice. kAllGather and kExchange: one and one a rank;
  // kReduceScatter: one a rank and one; kAllToAll: one a rank, both. kSend and kRecv: one, in the
  // list that it belongs to.
  std::span<const Buffer> in, out;
};

// A collective under way in a backend. May outlive its wait, when that throws, but not its backend.
class BackendOperation {
 public:
  virtual ~BackendOperation() = default;
  // Does what can be done without waiting for a peer; whether the collective is complete. Throws
  // InvalidArgumentError when the ranks parted, and what failed() of the group says.
  virtual bool advance() = 0;
  // Sleeps until the operation has ended or `limit` has passed, and returns true, where a thread of
  // the backend's does the work; false at once where advance() does.
  virtual bool sleep(std::chrono::microseconds limit) const {
    static_cast<void>(limit);
    return false;
  }
  // Does something that a peer has not got round to; false where there is nothing. For who waits.
  virtual bool help() { return false; }
  // Grows whenever advance() has got on: who waits is patient anew.
  virtual std::uint64_t steps() const = 0;
  // Ranks that have not reached this collective yet, as far as this one can tell.
  virtual std::vector<int> missing() const = 0;
};

// One rank of a group of processes. Belongs to one thread at a time: its owner's, or the progress
// engine's, which starts and advances operations while the owner computes. The destructor says
// goodbye: peers that wait for this rank from then on learn that it has left.
class Backend {
 public:
  virtual ~Backend() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // The group's: the same on all ranks, and no other group's.
  virtual const std::string& name() const = 0;
  // The names of the group's ranks in errors.
  virtual const RankNames& names() const = 0;
  // Whether buffers may be in the memory of a device that the host cannot reach.
  virtual bool takes_device_memory() const = 0;
  // Whether it adds up in an order that the ranks alone decide (ReduceOp::kTreeSum).
  virtual bool sums_by_tree() const { return true; }
  // Whether threads other than the owner's may call it, one at a time.
  virtual bool takes_any_thread() const { return true; }
  // Whether spinning keeps others from their work: the ranks that share this host outnumber its
  // cores, or one of them runs on this one's.
  virtual bool crowded() const = 0;

  // Called in the order of the collectives' sequence numbers.
  virtual std::unique_ptr<BackendOperation> start(const Collective& collective) = 0;
  // Looks after peers that are gone or have left, more thoroughly than advance() can afford to;
  // called several times a second by a rank that waits for `operation`. Throws AbortedError.
  virtual void check_peers(const BackendOperation& operation) = 0;
  // Sleeps until a peer has got on with anything since the call before this one, or `limit` has
  // passed; false at once where peers do not wake those that sleep.
  virtual bool wait_for_peers(std::chrono::microseconds limit) {
    static_cast<void>(limit);
    return false;
  }
  // The group is of no use any more: tells the peers, whose advance() throws the same, where the
  // backend has a way to.
  virtual void fail_group(GroupFailure failure, const std::string& text) noexcept = 0;
  // Throws what a peer has told so. Asked when a rank has failed: it may have ended because of it.
  virtual void check_failure() {}

  // Memory that the peers reach directly, or null: then plain memory serves as well.
  virtual std::shared_ptr<void> allocate(std::size_t bytes) = 0;
  // Called by the ranks of the new group alone, whose name is `name`.
  virtual std::unique_ptr<Backend> split(std::span<const int> ranks, const std::string& name) = 0;
};

}  // namespace tandem
