// Pinned host memory, and buffers that are copied there for the GPU.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "comm/communicator.h"

namespace tandem::nccl_backend {

// A pool, because pinning is slow and unpinning waits for the GPU. Blocks may outlive it.
// Thread-safe.
class PinnedPool {
 public:
  PinnedPool();
  std::shared_ptr<void> take(std::size_t bytes);

 private:
  struct Blocks;
  std::shared_ptr<Blocks> blocks_;
};

// Buffers in memory that a GPU can access.
class GpuBuffers {
 public:
  GpuBuffers(std::span<const Buffer> buffers, PinnedPool& pool);

  // The same buffers, or their pinned copies.
  std::span<const Buffer> placed() const { return placed_; }
  // Copy the contents to the pinned copies, or back; no-ops if there are none.
  void copy_in() const;
  void copy_out() const;

 private:
  std::span<const Buffer> buffers_;
  std::vector<Buffer> placed_;
  std::shared_ptr<void> block_;
};

}  // namespace tandem::nccl_backend
