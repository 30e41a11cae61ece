// The operations of graphs that compute nothing: placeholders, constants and variables.
#pragma once

#include <span>

#include "op/op.h"

namespace tandem {

// The attributes of an operation without inputs: the spec of its output.
struct SpecAttrs {
  DType dtype = float32;
  Shape shape;
  TANDEM_FIELDS(dtype, shape)
};

// An input of each run.
extern const OpDef kPlaceholder;
// Its elements are in Node::literal or Node::value.
extern const OpDef kConst;
// The memory of a variable (Node::resource): only reads and updates take it.
extern const OpDef kVarHandle;
// Reads the variable, in program order with its updates.
extern const OpDef kReadVariable;
// Overwrites input 0, the memory of a variable, with input 1.
extern const OpDef kAssignVariable;
// Runs its control inputs.
extern const OpDef kNoOp;

std::span<const OpDef* const> structural_ops();

// Whether nodes of this operation do nothing during a run.
bool is_source(const OpDef& op);

}  // namespace tandem
