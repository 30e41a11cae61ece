// Lists every operation of this build. Self-registering objects would be dropped by some linkers.
#include <algorithm>
#include <vector>

#include "ops/op_list.h"

namespace tandem {

std::span<const OpDef* const> all_ops() {
  static const std::vector<const OpDef*> ops = [] {
    std::vector<const OpDef*> all;
    for (OpList (*family)() :
         {creation_ops, random_ops,  binary_ops,     unary_ops,     compare_ops,
          cast_ops,     reduce_ops,  matmul_ops,     shape_ops,     join_ops,
          index_ops,    dense_ops,   activation_ops, conv_ops,      pool_ops,
          norm_ops,     softmax_ops, dropout_ops,    attention_ops, update_ops}) {
      const OpList list = family();
      all.insert(all.end(), list.begin(), list.end());
    }
    std::sort(all.begin(), all.end(),
              [](const OpDef* a, const OpDef* b) { return a->name < b->name; });
    return all;
  }();
  return ops;
}

}  // namespace tandem
