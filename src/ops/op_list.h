// The families of operations: each file of a family defines a list; all_ops.cc joins them.
#pragma once

#include <span>

#include "op/op.h"

namespace tandem {

using OpList = std::span<const OpDef* const>;

template <const OpDef&... kOps>
OpList list_of() {
  static constexpr const OpDef* ops[] = {&kOps...};
  return ops;
}

OpList creation_ops();
OpList random_ops();
OpList binary_ops();
OpList unary_ops();
OpList compare_ops();
OpList cast_ops();
OpList reduce_ops();
OpList matmul_ops();
OpList linalg_ops();
OpList shape_ops();
OpList join_ops();
OpList index_ops();
OpList scatter_ops();
OpList dense_ops();
OpList activation_ops();
OpList conv_ops();
OpList pool_ops();
OpList norm_ops();
OpList softmax_ops();
OpList dropout_ops();
OpList attention_ops();
OpList lstm_ops();
OpList update_ops();
OpList all_finite_ops();

}  // namespace tandem
