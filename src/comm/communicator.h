// Collectives over raw buffers, the same for threads of a process and for processes. Knows no
// tensors.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <span>

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
};

// One rank of a group. Every rank must call the same collectives in the same order. Belongs to one
// thread at a time.
class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual Device& device() const = 0;

  // Combines the ranks' elements, in place, the parts taken as one vector. The order of the sum
  // does not depend on timing: the same bits every run. kMean divides the sum by size(). The
  // buffers belong to the collective until wait() returns.
  virtual std::shared_ptr<Work> all_reduce(std::span<const Buffer> parts, ReduceOp op) = 0;
  // Overwrites the parts of every rank by the root's.
  virtual std::shared_ptr<Work> broadcast(std::span<const Buffer> parts, int root) = 0;
  // Every rank gives `bytes` bytes of host memory and gets all ranks' in the order of the ranks:
  // size() * bytes at `gathered`. For agreements, not for data.
  virtual void exchange(const void* mine, std::size_t bytes, void* gathered) = 0;
  // Advances collectives under way, without waiting.
  virtual void progress() = 0;
};

}  // namespace tandem
