// The interface of a communication backend, which moves bytes between processes.
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

struct CheckedCall;

// A checked call of a rank. Outlives its operation.
struct Collective {
  std::uint64_t sequence = 0;  // among the group's collectives; unused for kSend and kRecv
  Signature signature;
  Label label;
  // This rank's inputs and outputs, in memory that the backend accepts.
  // kAllReduce, kReduce, kBroadcast: in place, the same list twice.
  // kAllGather, kExchange: one input, one output per rank.
  // kReduceScatter: one input per rank, one output.
  // kAllToAll: one input and one output per rank.
  // kSend: one input. kRecv: one output.
  std::span<const Buffer> in, out;
};

// A launched collective in a backend. It may outlive a wait() that throws, but not its backend.
class BackendOperation {
 public:
  virtual ~BackendOperation() = default;
  // Makes progress without waiting for a peer. Returns whether the collective is complete. Throws
  // InvalidArgumentError when the ranks' calls mismatch, and the group's error once it has failed.
  virtual bool advance() = 0;
  // If a thread of the backend advances the operation, sleeps until it has ended or `limit` has
  // passed, and returns true. If advance() does the work, returns false at once.
  virtual bool sleep(std::chrono::microseconds limit) const {
    static_cast<void>(limit);
    return false;
  }
  // Does part of a slow peer's work. Returns false if there is none. A waiting rank calls it.
  virtual bool help() { return false; }
  // Increases whenever advance() makes progress, which resets the waiter's back-off.
  virtual std::uint64_t steps() const = 0;
  // The ranks that have not reached this collective, as far as this rank knows.
  virtual std::vector<int> missing() const = 0;
  // Whether a rank that is not missing() has certainly reached it.
  virtual bool knows(int rank) const {
    static_cast<void>(rank);
    return true;
  }
  // When the wait of a rank that began at `begin` exceeds `limit`.
  virtual std::chrono::steady_clock::time_point deadline(
      std::chrono::steady_clock::time_point begin, std::chrono::milliseconds limit) const {
    return begin + limit;
  }
};

// One rank of a group of processes. Used by one thread at a time: the owner's, or the progress
// engine's, which starts and advances operations while the owner computes. The destructor announces
// that this rank has left the group, so that peers stop waiting for it.
class Backend {
 public:
  virtual ~Backend() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // The group's name, the same on all its ranks and unique among groups.
  virtual const std::string& name() const = 0;
  // The names of the group's ranks in error messages.
  virtual const RankNames& names() const = 0;
  // Whether buffers may be in device memory that the host cannot access.
  virtual bool supports_device_memory() const { return false; }
  // Whether threads other than the owner's may call it, one at a time.
  virtual bool allows_any_thread() const { return true; }
  // Whether spinning would take CPU time from other ranks: this host has more ranks than cores, or
  // another rank runs on this rank's core.
  virtual bool oversubscribed() const = 0;

  // Throws if the backend cannot do this call. The group stays usable.
  virtual void check(const CheckedCall& call) const { static_cast<void>(call); }
  // Called in the order of the collectives' sequence numbers.
  virtual std::unique_ptr<BackendOperation> start(const Collective& collective) = 0;
  // Advances what its operations share. Called before each round of their advance(), and throws as
  // that does. Returns whether anything was done.
  virtual bool advance() { return false; }
  // Checks more thoroughly than advance() whether peers have died or left. A rank that waits for
  // `operation` calls it several times per second. Throws AbortedError.
  virtual void check_peers(const BackendOperation& operation) = 0;
  // Sleeps until a peer has made progress since the previous call, or `limit` has passed. Returns
  // false at once if peers do not wake sleepers.
  virtual bool wait_for_peers(std::chrono::microseconds limit) {
    static_cast<void>(limit);
    return false;
  }
  // Aborts the group. Sends the error to the peers, whose advance() then throws it, if the backend
  // can.
  virtual void abort(GroupFailure failure, const std::string& text) noexcept = 0;
  // Throws the error that a peer has sent. Called when a rank has failed, possibly because of it.
  virtual void check_failure() {}

  // Memory that peers access directly. Null: plain memory is as good.
  virtual std::shared_ptr<void> allocate(std::size_t) { return nullptr; }
  // The new group, if the backend consists of communicators that can make it; else null.
  virtual std::unique_ptr<Communicator> split_below(std::span<const int> ranks) {
    static_cast<void>(ranks);
    return nullptr;
  }
  // Called by the ranks of the new group only. `name` is the new group's.
  virtual std::unique_ptr<Backend> split(std::span<const int> ranks, const std::string& name) = 0;
};

}  // namespace tandem
