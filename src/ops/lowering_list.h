// The families of lowerings to StableHLO: each file of a family defines a list; all_lowerings.cc
// joins them.
#pragma once

#include <span>

#include "graph/stablehlo/lowering.h"

namespace tandem::stablehlo {

using LoweringList = std::span<const Lowering>;

LoweringList elementwise_lowerings();
LoweringList reduce_lowerings();
LoweringList matmul_lowerings();
LoweringList array_lowerings();
LoweringList activation_lowerings();
LoweringList dense_lowerings();
LoweringList softmax_lowerings();
LoweringList conv_lowerings();
LoweringList pool_lowerings();
LoweringList norm_lowerings();
LoweringList update_lowerings();
LoweringList random_lowerings();
LoweringList dropout_lowerings();
LoweringList attention_lowerings();
LoweringList scan_lowerings();

}  // namespace tandem::stablehlo
