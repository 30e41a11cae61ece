// Plans the memory of the values of a block.
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "comm/bucket.h"
#include "graph/block.h"

namespace tandem {

struct MemoryPlan {
  struct Allocation {
    std::size_t offset = 0;
    std::size_t bytes = 0;
  };
  // An array in the bucket of a collective whose group packs.
  struct Packed {
    const BlockOperation* collective = nullptr;
    std::size_t array = 0;
  };
  // For every computed value that is neither fetched nor packed: bytes in its device's arena.
  std::unordered_map<const Value*, Allocation> allocations;
  std::unordered_map<const Value*, Packed> packed;
  std::unordered_map<const DeviceImpl*, std::size_t> arena_bytes;
  // The size of the arenas if no values shared memory.
  std::unordered_map<const DeviceImpl*, std::size_t> unshared_bytes;
};

// Whether the operation reduces values that are packed in a bucket (comm/bucket.h).
bool packs(const BlockOperation& operation);
// The bucket of each collective that packs.
using Buckets = std::unordered_map<const BlockOperation*, Bucket>;
Buckets make_buckets(const Block& block);

// Makes outputs views of inputs that are not used afterwards if the operation allows it (kInPlace).
// Allocates every other computed value so that no two values that are live at the same time
// overlap. Fetched values have no allocation, because they leave the program. Packed values have
// none either: they are computed and read in their bucket.
MemoryPlan plan_memory(Block& block);

// Throws the out-of-memory error of a program, whose values have `bytes` on the device: with the
// shapes of the feeds, and the largest of these values. `name`: empty if it has none.
[[noreturn]] void throw_no_room(const std::string& name, const Block& block, const MemoryPlan& plan,
                                DeviceImpl& device, std::size_t bytes);

}  // namespace tandem
