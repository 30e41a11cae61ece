// The lowerings of collectives (graph/collective.h).
#pragma once

#include <span>

#include "graph/stablehlo/lowering.h"

namespace tandem::stablehlo {

std::span<const Lowering> collective_lowerings();

}  // namespace tandem::stablehlo
