// The part of a key that describes the context of a call.
#pragma once

#include "op/context.h"
#include "tandem/function.h"

namespace tandem {

// Adds to the key all that a trace depends on besides the arguments and the settings of objects:
// the part of `context` that operations read, and what the process has set.
void add_to_key(const Context& context, detail::FunctionCall& call);

}  // namespace tandem
