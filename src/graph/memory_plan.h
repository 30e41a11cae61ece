// Which values of a block share which memory.
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "graph/block.h"

namespace tandem {

struct MemoryPlan {
  struct Place {
    std::size_t offset = 0;
    std::size_t bytes = 0;
  };
  // An array of the bucket of a collective whose group packs.
  struct Packed {
    const Operation* collective = nullptr;
    std::size_t array = 0;
  };
  // Of every computed value that is not given away or packed; byte offsets into its device's arena.
  std::unordered_map<const Value*, Place> places;
  std::unordered_map<const Value*, Packed> packed;
  std::unordered_map<const Device*, std::size_t> arena_bytes;
  // What the arenas would take if nothing shared memory.
  std::unordered_map<const Device*, std::size_t> unshared_bytes;
};

// Whether what the operation combines is to lie in a bucket (comm/bucket.h).
bool packs(const Operation& operation);

// Makes outputs share the memory of inputs that die where the operation allows it (kInPlace), as
// views of them, and gives every other computed value a place such that no two that live at the
// same time overlap. Fetched values get no place: they leave the program. Nor does what is packed:
// it is computed in its bucket, and read there, where it is not fetched.
MemoryPlan plan_memory(Block& block);

// For an out-of-memory error: the shapes of what the block is fed with, and its largest values
// among those that have a place on the device.
std::string describe_values(const Block& block, const MemoryPlan& plan, const Device& device);

}  // namespace tandem
