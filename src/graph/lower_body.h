// Lowers the bodies of control flow (graph/control_flow.h).
#pragma once

#include <memory>
#include <vector>

#include "graph/block.h"

namespace tandem {

// Lowers the bodies of one node, whose operations are placed once. Copyable, and valid as long as
// the node's graph. Loops over elements lower their body again for elements of other sizes or on
// other devices.
class BodyLowering {
 public:
  // `around`: the options for the graph of the node.
  BodyLowering(std::shared_ptr<const ControlFlow> flow, const LowerOptions& around);

  // `sizes`: the known sizes of the node's graph. Throws what lower() throws.
  BodyBlock lower(std::size_t body, const KnownSizes& sizes, const Frame& frame) const;
  // The devices that the bodies and their nested bodies use.
  std::vector<Device*> devices() const;

 private:
  std::shared_ptr<const ControlFlow> flow_;
  std::vector<LowerOptions> options_;  // of each body, without those that differ between runs
};

}  // namespace tandem
