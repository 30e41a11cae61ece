// The part of a graph that its lowered block runs.
#pragma once

#include <limits>
#include <vector>

#include "graph/block.h"
#include "graph/graph.h"

namespace tandem {

class NeededNodes {
 public:
  // Follows the fetches, targets and updates of `options` back to their inputs.
  NeededNodes(const GraphImpl& graph, const LowerOptions& options);

  const GraphImpl& graph() const { return graph_; }
  bool contains(const Node& node) const { return needed_[static_cast<std::size_t>(node.id)]; }
  // The id of the last needed node that uses a tensor: -1 if none does, kFetched if it is fetched.
  static constexpr int kFetched = std::numeric_limits<int>::max();
  int last_use(const Node::Input& tensor) const;

 private:
  void need(const Node& node) { needed_[static_cast<std::size_t>(node.id)] = true; }
  void use(const Node::Input& tensor, int node);

  const GraphImpl& graph_;
  std::vector<bool> needed_;                // by id
  std::vector<std::vector<int>> last_use_;  // by id and output; shorter where outputs are unused
};

}  // namespace tandem
