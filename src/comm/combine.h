// The arithmetic of reductions.
#pragma once

#include <span>

#include "comm/communicator.h"

namespace tandem {

// How the elements of several ranks are added up. kInOrder: ((0 + 1) + 2) + ...; kHalves: the first
// half and the second half of the ranks in order, then the two, as in a two-level hierarchy.
enum class CombineOrder { kInOrder, kHalves };

// Combines `count` elements of each of `buffers` (plain memory that this thread can reach) and
// writes the result over all of them. float16 and bfloat16 are combined in float32.
void combine_everywhere(std::span<void* const> buffers, std::int64_t count, DType dtype,
                        ReduceOp op, CombineOrder order);

}  // namespace tandem
