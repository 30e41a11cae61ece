// Lowering the bodies of control flow (graph/control_flow.h).
#pragma once

#include <memory>
#include <vector>

#include "graph/block.h"

namespace tandem {

// The bodies of one node, each placed once. A value, good for as long as the node's graph: loops
// over elements lower their body when elements of new sizes come, or on other devices.
class BodyLowering {
 public:
  // `around`: as the graph of the node is lowered.
  BodyLowering(std::shared_ptr<const ControlFlow> flow, const LowerOptions& around);

  // `sizes`: those that are known around. Throws what lower() throws.
  BodyBlock lower(std::size_t body, const KnownSizes& sizes, const Frame& frame) const;
  // That the bodies, and the bodies inside them, may use.
  std::vector<Device*> devices() const;

 private:
  std::shared_ptr<const ControlFlow> flow_;
  std::vector<LowerOptions> options_;  // of each body, without what differs between runs
};

}  // namespace tandem
