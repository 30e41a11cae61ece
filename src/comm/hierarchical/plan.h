// What each collective of the whole is made of.
#pragma once

#include <memory>

#include "comm/checked_communicator.h"
#include "comm/hierarchical/pipeline.h"

namespace tandem::hierarchical {

// Not submitted yet. Throws FailedPreconditionError for what needs a communicator of all ranks,
// when there is none.
std::shared_ptr<HierarchicalWork> plan(const std::shared_ptr<Pipeline>& pipeline,
                                       const CheckedCall& call);

}  // namespace tandem::hierarchical
