// Infers shapes with unknown sizes by calling shape rules with trial sizes.
//
// A shape rule is a function of numbers. Its result for unknown sizes is found by trials: first
// with distinct sizes and, if the rule throws for these, with sizes that equal each other or known
// sizes. The first accepted sizes are then varied, one by one or together with those that must
// agree.
#pragma once

#include <span>

#include "graph/symbolic_shape.h"

namespace tandem {

// Infers the outputs of `op` for inputs and attributes with unknown sizes. An output size that is
// the same in all trials is known. One that always equals an unknown size of the inputs or
// attributes is that size. Any other is a fresh one of `sizes`, with a SizeRule. Throws what the
// rule throws if it accepts no trial, and InvalidArgumentError if the number, ranks or dtypes of
// the results depend on sizes.
void infer_outputs(InferContext& context, SymbolicSizes& sizes, const OpDef& op, AttrsRef attrs,
                   std::span<const TensorType* const> inputs);

}  // namespace tandem
