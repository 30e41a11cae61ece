// Orders the collectives of a block and their waits.
#pragma once

#include "graph/block.h"

namespace tandem {

// Adds a wait for each collective of `block` and reorders the operations. A collective is launched
// as soon as its inputs are ready; its wait comes just before the first use of a result. Updates of
// variables come last, in the order in which their gradients become ready. Each lane runs as far as
// it can before it waits, and all ranks launch their collectives in matching order. Throws
// InvalidArgumentError on a mismatch between the collectives of ranks, or if they wait for each
// other.
void schedule_collectives(Block& block);

}  // namespace tandem
