// Finds the compiled regions of a graph (graph/compiled_region.h).
#pragma once

#include <memory>
#include <vector>

#include "graph/compiled_region.h"
#include "graph/needed_nodes.h"

namespace tandem {

// Nodes in an order in which they can be lowered: a single one, a region, or a collective that the
// host runs.
struct RegionItem {
  const Node* node = nullptr;
  std::shared_ptr<const RegionNodes> region{};
  std::vector<const Node*> collective{};  // the node of each rank
};

// Orders the needed nodes of a graph. If replicas with collectives differ, as they do for a last
// batch that does not divide evenly, the host runs the collectives between their regions.
std::vector<RegionItem> find_regions(const NeededNodes& needed, const LowerOptions& options);

}  // namespace tandem
