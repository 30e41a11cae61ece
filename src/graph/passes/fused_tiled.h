// Operations with tiled kernels, fused with element-wise chains.
#pragma once

#include "graph/passes/element_chain.h"
#include "op/fields.h"

namespace tandem {

// A tiled kernel, a chain that computes its first input and a chain that uses its first output. The
// inputs of the fused operation are those of the chain before, its own, and those of the chain
// after.
struct TiledAttrs {
  MemberAttrs inner;
  // Writes the inner operation's input 0 to the memory of its output 0. That input is not an input
  // of the fused operation if this chain is not empty.
  ElementChain before;
  ElementChain after;  // external 0: the inner operation's output 0
  int before_inputs = 0;
  int after_inputs = 0;  // without external 0

  TANDEM_FIELDS()
};

extern const OpDef kFusedTiled;
// The same for an inner operation that may work in place.
extern const OpDef kFusedTiledInPlace;

}  // namespace tandem
