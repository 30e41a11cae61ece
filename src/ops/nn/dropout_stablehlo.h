// Which elements dropout keeps, in StableHLO.
#pragma once

#include <cstdint>

#include "graph/stablehlo/lowering.h"

namespace tandem::stablehlo {

// Booleans [count]: whether the element at each position of the replica's tensor is kept. The
// operation's key and its attribute "offset" tell the position in the global tensor. `threshold`:
// of DropoutAttrs.
Value kept_elements(Context& c, std::uint32_t threshold, std::int64_t count);

}  // namespace tandem::stablehlo
