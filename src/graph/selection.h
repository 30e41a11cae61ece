// Selects the part of a graph that is serialised.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "graph/graph.h"

namespace tandem {

struct Selection {
  std::vector<const Node*> nodes;  // in the order of the graph
  // The values of variables that are written as constants, by handle.
  std::unordered_map<const Node*, Tensor> values;
  // Nodes of one output that are written as placeholders, without what they depend on.
  std::unordered_set<const Node*> fed;
  bool freezes = false;  // whether all variables are written as constants
  // Whether attributes that this program computes for every run are sent with each run. Otherwise
  // nodes that have such attributes are refused.
  bool sends_attributes = false;

  // The index of each node.
  std::unordered_map<const Node*, std::uint32_t> numbers() const;
  // The handles among the nodes.
  std::vector<const Node*> variables() const;
};

// Selects `outputs` and the nodes that they depend on, or all nodes if `outputs` is empty.
// `freezes`: leaves out initializers of variables and nodes that only these use. `fed`: see
// Selection; if there are `outputs`. Throws InvalidArgumentError if a node writes a variable that
// becomes a constant.
Selection select_nodes(const GraphImpl& graph, std::span<const Node* const> outputs, bool freezes,
                       std::unordered_set<const Node*> fed = {});

}  // namespace tandem
