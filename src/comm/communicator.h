// Collectives over raw buffers, the same for threads of a process and for processes. Knows no
// tensors.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "comm/group_failure.h"
#include "device/device.h"
#include "tandem/dtype.h"
#include "tandem/reduce_op.h"

namespace tandem {

// Elements in the memory of a device.
struct Buffer {
  void* data = nullptr;
  std::int64_t count = 0;  // elements
  DType dtype = float32;

  std::size_t bytes() const { return static_cast<std::size_t>(count) * size_of(dtype); }
};

// A collective under way.
class Work {
 public:
  virtual ~Work() = default;
  // Returns when work enqueued on the rank's device from now on sees the result. Throws
  // DeadlineExceededError at the communicator's time limit, AbortedError when a peer failed,
  // InvalidArgumentError when the ranks called different collectives.
  virtual void wait() = 0;
  // Does what can be done without waiting. Whether wait() would return at once; throws as it does.
  virtual bool test() = 0;

  // What wait() does while it waits, for who waits for several by test(). A work that needs no
  // peers need not do anything. Throws AbortedError when a peer that it needs is gone; several
  // times a second is enough.
  virtual void check_peers() {}
  // Ranks that have not reached it yet, as far as this one can tell. The group may be of no use
  // afterwards: for the text of an error.
  virtual std::vector<int> missing() const { return {}; }
  // Sleeps until the work has ended or `limit` has passed, and returns true, where another thread
  // does it; false at once where test() does.
  virtual bool sleep(std::chrono::microseconds limit) const {
    static_cast<void>(limit);
    return false;
  }
};

// One rank of a group. Every rank must call the same collectives in the same order. Belongs to one
// thread at a time.
//
// The buffers of a collective belong to it until wait() returns. Where a rank gives or gets a share
// for each rank it passes a buffer a rank, in the order of the ranks; they have one dtype, may be
// empty and need not lie one behind the other. What a rank gives to itself may lie where it is to
// arrive (mine and gathered[rank()]); other buffers must not overlap, which nobody checks.
class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual Device& device() const = 0;

  // Combines the ranks' elements, in place, the parts taken as one vector. The order of the sum
  // does not depend on timing: the same bits every run. kMean divides the sum by size(); types
  // and NaNs are as combine() has them. Throws InvalidArgumentError for bool.
  virtual std::shared_ptr<Work> all_reduce(std::span<const Buffer> parts, ReduceOp op) = 0;
  // The same, but the root alone gets the result; the other ranks' parts stay as they are.
  virtual std::shared_ptr<Work> reduce(std::span<const Buffer> parts, ReduceOp op, int root) = 0;
  // Overwrites the parts of every rank by the root's.
  virtual std::shared_ptr<Work> broadcast(std::span<const Buffer> parts, int root) = 0;
  // gathered[r] becomes rank r's `mine`. Counts may differ from rank to rank; every rank names the
  // same.
  virtual std::shared_ptr<Work> all_gather(const Buffer& mine,
                                           std::span<const Buffer> gathered) = 0;
  // `mine` becomes the combination of all ranks' parts[rank()]; the parts stay as they are, but
  // for one that is `mine`. Counts as in all_gather, operations as in all_reduce.
  virtual std::shared_ptr<Work> reduce_scatter(std::span<const Buffer> parts, const Buffer& mine,
                                               ReduceOp op) = 0;
  // received[r] becomes rank r's sent[rank()], which must have as many elements.
  virtual std::shared_ptr<Work> all_to_all(std::span<const Buffer> sent,
                                           std::span<const Buffer> received) = 0;
  // Between two ranks of the group, beside its collectives. What one rank sends to another arrives
  // in the order in which it was sent. REQUIRES: peer != rank().
  virtual std::shared_ptr<Work> send(const Buffer& buffer, int peer) = 0;
  virtual std::shared_ptr<Work> recv(const Buffer& buffer, int peer) = 0;
  // wait() returns once every rank has called this.
  virtual std::shared_ptr<Work> barrier() = 0;

  // Every rank gives `bytes` bytes of host memory and gets all ranks' in the order of the ranks:
  // size() * bytes at `gathered`. For agreements, not for data. Waits.
  virtual void exchange(const void* mine, std::size_t bytes, void* gathered) = 0;
  // The same without waiting: the memory belongs to the work until that is done.
  virtual std::shared_ptr<Work> start_exchange(const void* mine, std::size_t bytes,
                                               void* gathered) = 0;
  // Advances collectives under way, without waiting. Between processes they advance while their
  // owner computes, too, but less promptly.
  virtual void progress() = 0;
  // Whether a thread other than the owner's may advance them, one at a time.
  virtual bool takes_any_thread() const { return true; }
  // What errors call the collectives from here on: a name, such as a bucket's, and the step of
  // training. Ranks need not agree on it.
  virtual void label(std::string_view name, std::int64_t step) = 0;

  // Memory of the device that the peers reach directly where the backend can: collectives on it are
  // the fastest when their parts lie one behind the other in it. Else plain memory. Aligned to 256
  // bytes; null for 0 bytes. Thread-safe. Throws ResourceExhaustedError.
  virtual std::shared_ptr<void> allocate(std::size_t bytes) = 0;
  // Whether many small buffers had best be copied into one of allocate() and combined there. If
  // not, they are combined as well where they are.
  virtual bool packs() const { return true; }
  // A group of some of the ranks: the communicator's rank there is its place in `ranks`. Called by
  // those ranks, each with the same list; any other rank may call it too and gets null.
  virtual std::unique_ptr<Communicator> split(std::span<const int> ranks) = 0;
  // Ends the group with this error: calls of this rank throw it from here on, and so do its peers',
  // as far as they can be told.
  virtual void abort(GroupFailure failure, const std::string& text) noexcept = 0;
};

}  // namespace tandem
