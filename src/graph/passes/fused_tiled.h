// Operations whose kernels go range by range, with the chains that became part of them.
#pragma once

#include "graph/passes/element_chain.h"
#include "op/fields.h"

namespace tandem {

// A kernel that goes range by range, with what is done to its first input before it and to its
// first output behind it. The inputs of the whole are those of the chain before it, its own, and
// those of the chain behind it.
struct TiledAttrs {
  MemberAttrs inner;
  // Writes the inner operation's input 0 where its output 0 will be: that input is then not among
  // the inputs of the whole.
  ElementChain before;
  ElementChain after;  // external 0: the inner operation's output 0
  int before_inputs = 0;
  int after_inputs = 0;  // without that output

  TANDEM_FIELDS()
};

extern const OpDef kFusedTiled;
// Where the inner operation may work in place.
extern const OpDef kFusedTiledInPlace;

}  // namespace tandem
