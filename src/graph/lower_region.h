// Lowers compiled regions (graph/compiled_region.h).
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "graph/compiled_region.h"
#include "graph/needed_nodes.h"

namespace tandem {

// A region with the values of the block that it uses.
struct LoweredRegion {
  struct Output {
    Node::Input tensor;
    TensorType spec;
    DeviceImpl* device = nullptr;
  };
  std::shared_ptr<CompiledRegion> region;
  std::vector<Value*> inputs;
  std::vector<Output> outputs;
};

// The values of a block that a region uses.
struct RegionValues {
  std::function<Value&(const Node::Input& tensor)> of;
  // On the device, for a node.
  std::function<Value&(const Node::Input& tensor, DeviceImpl& device, const Node& user)> on;
};
// Lowers a region. Adds the sizes that it infers. Throws what stablehlo::lower_module() throws.
LoweredRegion lower_region(const NeededNodes& needed, const LowerOptions& options,
                           std::shared_ptr<const RegionNodes> region, KnownSizes& sizes,
                           const RegionValues& values);

}  // namespace tandem
