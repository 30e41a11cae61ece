// The steps that each collective of a hierarchy consists of.
#pragma once

#include <memory>

#include "comm/checked_communicator.h"
#include "comm/hierarchical/pipeline.h"

namespace tandem::hierarchical {

// Returns a work that has not been submitted. Throws FailedPreconditionError when the collective
// needs a communicator of all ranks and there is none.
std::shared_ptr<HierarchicalWork> build_work(const std::shared_ptr<Pipeline>& pipeline,
                                             const CheckedCall& call);

}  // namespace tandem::hierarchical
