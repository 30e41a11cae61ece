// The operations that graphs consist of beside computations: where values come from.
#pragma once

#include <span>

#include "op/op.h"

namespace tandem {

// The attributes of an operation that has no inputs to infer its output from.
struct SpecAttrs {
  DType dtype = float32;
  Shape shape;
  TANDEM_FIELDS(dtype, shape)
};

// Fed at each run.
extern const OpDef kPlaceholder;
// Node::value.
extern const OpDef kConst;
// The memory of a variable (Node::resource): only reads and updates take it.
extern const OpDef kVarHandle;
// The elements of the variable at this place of the program.
extern const OpDef kReadVariable;
// Overwrites input 0, the memory of a variable, by input 1.
extern const OpDef kAssignVariable;
// Runs its control inputs.
extern const OpDef kNoOp;

std::span<const OpDef* const> structural_ops();

// Whether a node's work is done before the run, or nothing at all.
bool is_source(const OpDef& op);

}  // namespace tandem
