// The parts of a graph that devices run as one compiled program each, instead of operation by
// operation: those on the devices of a PJRT plug-in.
//
// The nodes of several devices become one module if they are the same on each, which is how the
// replicas of a strategy are traced. Collectives between them are operations of the module. Other
// nodes of a device become a module of their own.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "graph/node.h"
#include "graph/stablehlo/module.h"

namespace tandem {

// The nodes of a region, by replica. Node i of a replica corresponds to node i of the others.
struct RegionNodes {
  std::vector<DeviceImpl*> devices;             // one per replica
  std::vector<std::vector<const Node*>> nodes;  // in program order
  // For each replica: its node for a node of the first replica, also for nodes outside of the
  // region whose tensors it uses.
  std::vector<std::unordered_map<const Node*, const Node*>> counterparts;
  // For each replica: its counter (GraphImpl::count) for the identity of one of the first replica.
  std::vector<std::unordered_map<const void*, Resource*>> counters;
  std::vector<const Node*> differing;  // constants of the first replica that differ in others
};

// Whether a device runs compiled regions.
bool runs_compiled(const DeviceImpl& device);

// A region in a block. The operation's inputs and outputs are those of all replicas.
struct CompiledRegion {
  std::shared_ptr<const RegionNodes> nodes;
  stablehlo::Module module;
  struct Replica {
    // By parameter of the module that is a feed or a variable: the operation's input.
    std::vector<std::size_t> input_of;
    // By result of the module: the operation's output, or for a written variable its input.
    std::vector<std::size_t> output_of;
    // By parameter: for a written variable of another device, the input that is its memory. The
    // program gets a copy of the elements, and the host copies the new ones there after each run.
    std::map<std::size_t, std::size_t> home_of;
  };
  std::vector<Replica> replicas;
  std::vector<bool> writes;  // by input: whether it is memory of a variable that is written

  const Node& node_of(std::size_t replica, const Node& node) const {
    return *nodes->counterparts[replica].at(&node);
  }
  Resource& counter_of(std::size_t replica, const Resource& counter) const {
    return *nodes->counters[replica].at(counter.identity());
  }
};

// The operation of a region in a block.
extern const OpDef kCompiledRegion;

}  // namespace tandem
