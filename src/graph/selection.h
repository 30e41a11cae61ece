// The part of a graph that is serialised.
#pragma once

#include <span>
#include <unordered_map>
#include <vector>

#include "graph/graph.h"

namespace tandem {

struct Selection {
  std::vector<const Node*> nodes;  // in the order of the graph
  // The values of variables that are written as constants, by handle.
  std::unordered_map<const Node*, Tensor> values;
  bool freezes = false;  // whether all variables are written as constants

  // The handles among the nodes.
  std::vector<const Node*> variables() const;
};

// `outputs` and the nodes that they depend on; every node where there are none. `freezes`: without
// the initializers of variables and without the nodes that only these use. Throws
// InvalidArgumentError where a node writes a variable that is to become a constant.
Selection select_nodes(const GraphImpl& graph, std::span<const Node* const> outputs, bool freezes);

}  // namespace tandem
