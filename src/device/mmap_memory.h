// Anonymous memory of the operating system: address space now, pages when they are touched.
#pragma once

#include "device/bfc_allocator.h"

namespace tandem {

// Null when the system refuses. From 4 MiB on: aligned to 2 MiB, on huge pages where it can be.
void* map_memory(std::size_t bytes);
void unmap_memory(void* memory, std::size_t bytes) noexcept;

class MmapRegionSource final : public RegionSource {
 public:
  void* take(std::size_t bytes) override { return map_memory(bytes); }
  void give_back(void* region, std::size_t bytes) noexcept override { unmap_memory(region, bytes); }
};

// Bytes of memory of this machine.
std::int64_t physical_memory();

}  // namespace tandem
