#include "graph/passes/passes.h"

namespace tandem {

void optimize(Block& block) {
  fold_constants(block);
  merge_common_subexpressions(block);
  drop_dead_operations(block);
  fold_batch_norms(block);
  fuse_elementwise(block);
  fuse_tiled(block);
  group_updates(block);
}

}  // namespace tandem
