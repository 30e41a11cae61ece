// Which device each node of a graph runs on.
#pragma once

#include <vector>

#include "graph/graph.h"

namespace tandem {

// The device of each node, by its id. Throws InvalidArgumentError "Cannot assign a device for
// operation NAME: ...".
std::vector<Device*> place_graph(const GraphImpl& graph);

}  // namespace tandem
