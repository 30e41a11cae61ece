// The operations of control flow. They are in autodiff because the gradient of control flow runs a
// backward pass over its bodies.
#pragma once

#include <memory>
#include <span>

#include "function/body_trace.h"

namespace tandem {

extern const OpDef kIf, kWhile, kForEach;
extern const OpDef kIfGradient, kWhileGradient;

// The gradients of kIf and kWhile. They add nodes of kIfGradient and kWhileGradient.
void if_gradient(GradContext& c);
void while_gradient(GradContext& c);

// Adds a loop over `source` to the graph that the thread builds. The body is traced for elements of
// these specs. Sizes of -1 may differ between elements.
void trace_for_each(ElementSource source, std::span<const TensorType> element, const BodyFn& body);

}  // namespace tandem
