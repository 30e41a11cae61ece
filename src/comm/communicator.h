// Collectives on raw buffers, with one interface for threads of a process and for processes.
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

// Elements in device memory.
struct Buffer {
  void* data = nullptr;
  std::int64_t count = 0;  // elements
  DType dtype = float32;

  std::size_t bytes() const { return static_cast<std::size_t>(count) * size_of(dtype); }
};

// A collective that has been launched.
class CollectiveWork {
 public:
  virtual ~CollectiveWork() = default;
  // Returns once work that is enqueued on the rank's device from now on sees the result. Throws
  // DeadlineExceededError at the communicator's time limit, AbortedError when a peer has failed,
  // InvalidArgumentError when the ranks called different collectives.
  virtual void wait() = 0;
  // Makes progress without blocking. Returns whether wait() would return at once; throws as wait()
  // does.
  virtual bool test() = 0;

  // Checks that the peers this work needs are alive, as wait() does while it waits. Call it a few
  // times per second while polling works with test(). A work that needs no peers does nothing.
  // Throws AbortedError when a peer has died.
  virtual void check_peers() {}
  // The ranks that have not reached this collective, as far as this rank knows. For error messages:
  // the group may be unusable afterwards.
  virtual std::vector<int> missing() const { return {}; }
  // If another thread advances the work, sleeps until the work has ended or `limit` has passed, and
  // returns true. If test() advances it, returns false at once.
  virtual bool sleep(std::chrono::microseconds limit) const {
    static_cast<void>(limit);
    return false;
  }
};

// One rank of a group. Every rank must call the same collectives in the same order. One thread at a
// time.
//
// A collective owns its buffers until wait() returns. Arguments with one buffer per rank are in the
// order of the ranks; their buffers have one dtype, may be empty and need not be contiguous. A
// rank's message to itself may be in place (`mine` and gathered[rank()]). Other buffers must not
// overlap; this is not checked.
class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual DeviceImpl& device() const = 0;

  // Reduces the ranks' elements in place; the parts are treated as one vector. The order of the
  // summation does not depend on timing, so results are reproducible bit for bit. kMean divides the
  // sum by size(). Dtypes and NaN: see combine(). Throws InvalidArgumentError for bool.
  virtual std::shared_ptr<CollectiveWork> all_reduce(std::span<const Buffer> parts,
                                                     ReduceOp op) = 0;
  // The same, but only the root receives the result; the parts of other ranks do not change.
  virtual std::shared_ptr<CollectiveWork> reduce(std::span<const Buffer> parts, ReduceOp op,
                                                 int root) = 0;
  // Copies the root's parts to every rank.
  virtual std::shared_ptr<CollectiveWork> broadcast(std::span<const Buffer> parts, int root) = 0;
  // gathered[r] receives rank r's `mine`. Counts may differ between ranks, but all ranks must pass
  // the same list of counts.
  virtual std::shared_ptr<CollectiveWork> all_gather(const Buffer& mine,
                                                     std::span<const Buffer> gathered) = 0;
  // `mine` receives the reduction of all ranks' parts[rank()]. The parts do not change, except one
  // that is `mine`. Counts: see all_gather. Dtypes and order: see all_reduce.
  virtual std::shared_ptr<CollectiveWork> reduce_scatter(std::span<const Buffer> parts,
                                                         const Buffer& mine, ReduceOp op) = 0;
  // received[r] receives rank r's sent[rank()]. Their counts must be equal.
  virtual std::shared_ptr<CollectiveWork> all_to_all(std::span<const Buffer> sent,
                                                     std::span<const Buffer> received) = 0;
  // Point-to-point messages, independent of the group's collectives. Messages from one rank to
  // another arrive in the order in which they were sent. REQUIRES: peer != rank().
  virtual std::shared_ptr<CollectiveWork> send(const Buffer& buffer, int peer) = 0;
  virtual std::shared_ptr<CollectiveWork> recv(const Buffer& buffer, int peer) = 0;
  // wait() returns once every rank has called barrier().
  virtual std::shared_ptr<CollectiveWork> barrier() = 0;

  // Blocking all-gather of host memory: every rank passes `bytes` bytes, and `gathered` receives
  // size() * bytes in the order of the ranks. For small control data.
  virtual void exchange(const void* mine, std::size_t bytes, void* gathered) = 0;
  // The same without blocking. The work owns the memory until it is done.
  virtual std::shared_ptr<CollectiveWork> start_exchange(const void* mine, std::size_t bytes,
                                                         void* gathered) = 0;
  // Advances the launched collectives without blocking. Between processes a background thread also
  // advances them while the owner computes, but less promptly.
  virtual void progress() = 0;
  // Whether threads other than the owner's may advance them, one at a time.
  virtual bool allows_any_thread() const { return true; }
  // Labels the next collectives in error messages: a name, such as a bucket's, and the training
  // step. May differ between ranks.
  virtual void label(std::string_view name, std::int64_t step) = 0;

  // Device memory that peers access directly, if the backend can; otherwise plain memory.
  // Collectives are fastest when their parts are contiguous in such memory. Aligned to 256 bytes;
  // null for 0 bytes. Thread-safe. Throws ResourceExhaustedError.
  virtual std::shared_ptr<void> allocate(std::size_t bytes) = 0;
  // Whether packing many small buffers into one of allocate() is faster than reducing them in
  // place.
  virtual bool packs() const { return true; }
  // A group of some of the ranks; a rank's number in it is its position in `ranks`. All of those
  // ranks must call this with the same list. Other ranks may call it too, and receive null.
  virtual std::unique_ptr<Communicator> split(std::span<const int> ranks) = 0;
  // Aborts the group with this error: this rank's calls throw it from now on. Peers' calls throw it
  // too, as far as they can be reached.
  virtual void abort(GroupFailure failure, const std::string& text) noexcept = 0;
};

}  // namespace tandem
