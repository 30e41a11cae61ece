// What is done to a block before it becomes a program. Each pass leaves a block that computes the
// same fetches and makes the same changes to variables.
#pragma once

#include "graph/block.h"

namespace tandem {

// All of the passes below, in the order in which they help each other.
void optimize(Block& block);

// Operations whose inputs are constants run now, once.
void fold_constants(Block& block);
// Of operations that compute the same of the same, one stays.
void merge_common_subexpressions(Block& block);
// Operations that nothing depends on go.
void drop_dead_operations(Block& block);
// Runs of element-wise operations on one device become one operation that takes its operands
// through the cache tile by tile, so that what they hand to each other never reaches memory.
void fuse_elementwise(Block& block);
// Operations whose kernels go range by range (OpDef::tiled_kernel: batch normalisation and its
// gradient) take in the element-wise operations that make their first input, or that alone use
// their first output (residual, activation), while the range is in the cache.
void fuse_tiled(Block& block);
// Updates of many variables by one rule become one operation that shares their elements out among
// the threads as if they were one buffer. Those whose gradients are of different collectives stay
// apart: the first go on while the last are waited for.
void group_updates(Block& block);

}  // namespace tandem
