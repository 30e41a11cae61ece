// Which values of a block share which memory.
#pragma once

#include <unordered_map>
#include <vector>

#include "graph/block.h"

namespace tandem {

struct MemoryPlan {
  struct Place {
    std::size_t offset = 0;
    std::size_t bytes = 0;
  };
  // Of every other computed value that is not given away; byte offsets into its device's arena.
  std::unordered_map<const Value*, Place> places;
  // What a collective combines in a bucket (comm/bucket.h), and is computed there: which of its
  // outputs.
  struct InBucket {
    const Operation* collective = nullptr;
    std::size_t output = 0;
  };
  std::unordered_map<const Value*, InBucket> in_buckets;
  std::unordered_map<const Device*, std::size_t> arena_bytes;
  // What the arenas would take if nothing shared memory.
  std::unordered_map<const Device*, std::size_t> unshared_bytes;
};

// Whether the collective that `operation` starts goes through a bucket.
bool has_bucket(const Operation& operation);

// Makes outputs share the memory of inputs that die where the operation allows it (kInPlace), as
// views of them, and gives every other computed value a place such that no two that live at the
// same time overlap. Fetched values get no place: they leave the program.
MemoryPlan plan_memory(Block& block);

}  // namespace tandem
