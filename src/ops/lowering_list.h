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

}  // namespace tandem::stablehlo
