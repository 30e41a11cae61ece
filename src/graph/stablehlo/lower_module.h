// Lowers a graph to a StableHLO module.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "graph/stablehlo/module.h"

namespace tandem::stablehlo {

struct ModuleOptions {
  std::string name = "module";         // in messages
  int num_replicas = 1;                // that run the module, with collectives between them
  std::vector<const Node*> nodes;      // in program order; needed_nodes() finds them
  std::vector<Node::Input> feeds;      // the other tensors that the nodes use
  std::vector<TensorType> feed_specs;  // fully defined
  std::vector<Node::Input> fetches;
  std::vector<const Node*> differing;  // constants that differ between the replicas
  KnownSizes* sizes = nullptr;         // adds those that it infers; may be null
};

// The nodes that the fetches depend on, and with `updates` all that have effects, without those
// before the feeds.
std::vector<const Node*> needed_nodes(const GraphImpl& graph, std::span<const Node::Input> feeds,
                                      std::span<const Node::Input> fetches, bool updates);

// Throws UnimplementedError, which names the operation and its node, for an operation without a
// lowering.
Module lower_module(const GraphImpl& graph, const ModuleOptions& options);

}  // namespace tandem::stablehlo
