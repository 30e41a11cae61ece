// Lists every operation of this build.
#include <algorithm>
#include <vector>

#include "ops/op_list.h"

namespace tandem {
namespace {

std::span<const OpDef* const> list_ops() {
  static const auto& ops = *new const std::vector<const OpDef*>([] {
    std::vector<const OpDef*> all;
    for (OpList (*family)() :
         {creation_ops,   random_ops, binary_ops, unary_ops,      compare_ops, cast_ops,
          reduce_ops,     matmul_ops, shape_ops,  join_ops,       index_ops,   dense_ops,
          activation_ops, conv_ops,   pool_ops,   norm_ops,       softmax_ops, dropout_ops,
          attention_ops,  lstm_ops,   update_ops, all_finite_ops, scatter_ops, linalg_ops}) {
      const OpList list = family();
      all.insert(all.end(), list.begin(), list.end());
    }
    std::sort(all.begin(), all.end(),
              [](const OpDef* a, const OpDef* b) { return a->name < b->name; });
    return all;
  }());
  return ops;
}

[[maybe_unused]] const bool ops_registered = all_ops.set(list_ops);

}  // namespace
}  // namespace tandem
