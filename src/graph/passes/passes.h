// Optimization passes over blocks. Each keeps the results of fetches and the updates of variables.
#pragma once

#include "graph/block.h"

namespace tandem {

// Lets casts of float32 variables to a 16-bit dtype read copies that updates write together with
// the variables, so that no run casts them (Resource::with_cast). The updates also read gradients
// in that dtype instead of casts that nothing else uses. Variables that other operations than such
// updates (kWritesCast) write are left alone. Rewrites the bodies of control flow, too: call it
// once, for the block of a whole program. Returns the copies.
std::vector<RefPtr<Resource>> keep_casts(Block& block);

// Runs all passes below, in a suitable order.
void optimize(Block& block);

// Runs operations with constant inputs once, at compile time.
void fold_constants(Block& block);
// Merges operations of the same kind with equal inputs and attributes.
void merge_common_subexpressions(Block& block);
// Removes operations whose results are unused.
void drop_dead_operations(Block& block);
// Folds batch normalisations with constant parameters and moments into the constant kernel and bias
// of the convolution or dense product before them, in float32. Results change by rounding
// errors of float32. A product whose result has another user stays as it is.
void fold_batch_norms(Block& block);
// Fuses chains of element-wise operations on one device into operations that run tile by tile, so
// that intermediate results stay in the cache.
void fuse_elementwise(Block& block);
// Fuses element-wise operations into operations with a tiled kernel (OpDef::tiled_kernel: batch
// normalisation and its gradient). Fused are those that compute the first input and those that are
// the only users of the first output (residual, activation).
void fuse_tiled(Block& block);
// Groups updates of many variables by one rule into one operation, which distributes their elements
// over the threads as if they were one buffer. Updates with gradients of different collectives are
// not grouped, so that the first ones run before the last collective is complete.
void group_updates(Block& block);

}  // namespace tandem
