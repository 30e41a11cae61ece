// The steps that each collective of a hierarchy consists of.
#pragma once

#include <memory>

#include "comm/hierarchical/hierarchy.h"

namespace tandem::hierarchical {

// Returns steps that have not been started. `hierarchy` must outlive them. REQUIRES: a direct
// communicator, if the call needs one.
std::unique_ptr<HierarchySteps> build_steps(const Hierarchy& hierarchy,
                                            const Collective& collective);

}  // namespace tandem::hierarchical
