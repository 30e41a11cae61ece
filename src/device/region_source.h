// The source of the regions of memory that an allocator divides.
#pragma once

#include <cstddef>

namespace tandem {

// Called under the allocator's lock.
class RegionSource {
 public:
  virtual ~RegionSource() = default;
  // Memory aligned to at least 256 bytes, or null if refused.
  virtual void* take(std::size_t bytes) = 0;
  // Previously enqueued work may still use the region.
  virtual void give_back(void* region, std::size_t bytes) noexcept = 0;
};

}  // namespace tandem
