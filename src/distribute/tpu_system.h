// The TPU system of this process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "tandem/tpu_system.h"

namespace tandem::distribute {

// The most cores of a mesh, with those that are missing.
inline constexpr std::size_t kMaxTpuCores = std::size_t{1} << 20;

// A core as its plug-in describes it.
struct TpuCore {
  std::vector<std::int64_t> coordinates;  // of the chip; empty if unknown
  std::int64_t core_on_chip = 0;
};

// The topology of one task whose devices are the cores, in their order. The mesh begins at the
// smallest coordinates. It is a line if coordinates are unknown, have more than three axes or do
// not tell the cores apart. Throws InvalidArgumentError for no cores, and for a mesh that is too
// large.
Topology topology_of(std::span<const TpuCore> cores);

// The attached TPUs, in the order of TPU:0, TPU:1 and so on. Initializes the devices.
std::vector<TpuCore> attached_cores(const char* who);

// Throws UnimplementedError for a system that is not attached to this host.
void require_local(const TPUClusterResolver& resolver, const char* who);

}  // namespace tandem::distribute
