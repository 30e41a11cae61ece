// Anonymous memory of the operating system. Reserves address space; pages are allocated when
// touched.
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/region_source.h"

namespace tandem {

// Null if the system refuses. From 4 MiB on, aligned to 2 MiB, and on huge pages if possible.
void* map_memory(std::size_t bytes);
void unmap_memory(void* memory, std::size_t bytes) noexcept;

class MmapRegionSource final : public RegionSource {
 public:
  void* take(std::size_t bytes) override { return map_memory(bytes); }
  void give_back(void* region, std::size_t bytes) noexcept override { unmap_memory(region, bytes); }
};

// The physical memory of this host in bytes.
std::int64_t physical_memory();

}  // namespace tandem
