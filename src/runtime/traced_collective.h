// Collectives of a thread that builds a graph.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "graph/collective.h"
#include "tandem/tensor.h"

namespace tandem {

// Adds a node for the rank `member`, whose tensors are on `device`: a collective `op` of `tensors`
// (graph/collective.h). All of its outputs, symbolic. REQUIRES: building.
std::vector<Tensor> trace_collective(const OpDef& op, AttrsRef attrs,
                                     std::span<const Tensor> tensors,
                                     const std::shared_ptr<const CollectiveMember>& member,
                                     Device& device);

}  // namespace tandem
