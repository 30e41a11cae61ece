// Reads the results that a caller asks of a graph.
#pragma once

#include "tandem/graph.h"

namespace tandem {

// The tensor of `fetch`, which may be eager. REQUIRES: it is no operation.
Tensor tensor_of(const Graph& graph, const Fetch& fetch);

}  // namespace tandem
