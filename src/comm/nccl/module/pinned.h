// Host memory that GPUs reach, and buffers in memory that they do not.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "comm/communicator.h"

namespace tandem::nccl_backend {

// Pinning takes long, and unpinning waits for the GPU: blocks are kept. Blocks may outlive it.
// Thread-safe.
class PinnedPool {
 public:
  PinnedPool();
  std::shared_ptr<void> take(std::size_t bytes);

 private:
  struct Blocks;
  std::shared_ptr<Blocks> blocks_;
};

// Buffers where a GPU reaches them.
class Reachable {
 public:
  Reachable(std::span<const Buffer> buffers, PinnedPool& pool);

  // The same buffers, there.
  std::span<const Buffer> placed() const { return placed_; }
  // What the buffers hold goes to where the GPU reaches it, or comes back, where they differ.
  void bring() const;
  void take_back() const;

 private:
  std::span<const Buffer> buffers_;
  std::vector<Buffer> placed_;
  std::shared_ptr<void> block_;
};

}  // namespace tandem::nccl_backend
