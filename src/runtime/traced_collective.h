// Adds collectives to a graph.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "graph/collective.h"
#include "tandem/tensor.h"

namespace tandem {

// Adds the collective `op` (graph/collective.h) for the rank `member`, whose tensors are on
// `device`, to the graph that the thread builds. Returns all its outputs, symbolic. REQUIRES:
// context.graph.
std::vector<Tensor> trace_collective(const OpDef& op, AttrsRef attrs,
                                     std::span<const Tensor> tensors,
                                     const std::shared_ptr<const CollectiveMember>& member,
                                     DeviceImpl& device);

}  // namespace tandem
