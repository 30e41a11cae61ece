// Nodes that have to be on one device: groups, and what is known of where each may go.
#pragma once

#include <string>
#include <vector>

#include "graph/graph.h"

namespace tandem {

// Types of devices, as bits.
using DeviceTypes = unsigned;
constexpr DeviceTypes bit_of(DeviceType type) { return 1u << static_cast<unsigned>(type); }

// Which devices there are, GPUs before CPUs, by index: the order in which they are preferred.
struct KnownDevices {
  std::vector<Device*> devices;

  // All that `name` describes.
  std::vector<Device*> matching(const DeviceName& name) const;
  // Where `op` has kernels. Where there is no GPU: whether it has one for GPUs at all.
  DeviceTypes types_of(const OpDef& op) const;
};

// What holds for all members of a group.
struct PlacementGroup {
  DeviceName assigned;   // where members are already
  DeviceName resource;   // what was asked for variables; gives way last
  DeviceName requested;  // what was asked for; always more specific than the two above
  DeviceTypes types = 0;
  std::vector<const Node*> members;  // in no order
  Device* chosen = nullptr;
};

class PlacementGroups {
 public:
  // Each node alone. `assigned`: the devices of the first nodes.
  PlacementGroups(const GraphImpl& graph, const KnownDevices& devices,
                  const std::vector<Device*>& assigned);

  // Variables with what refers to their memory. A consumer that asked for another device than the
  // variable's is overruled.
  void tie_variables(bool log);
  // What ColocateWith asked for. Where that cannot be: an error, or (soft) it is passed over.
  void tie_colocated(bool soft, bool log);

  PlacementGroup& of(const Node& node) { return groups_[static_cast<std::size_t>(root(node.id))]; }
  // The members of the node's group, what they asked for and where they have kernels, for errors.
  std::string describe(const Node& node);

 private:
  int root(int id);
  void merge(const Node& a, const Node& b, bool soft);
  void tie(const Node& variable, const Node& consumer, bool log);

  const GraphImpl& graph_;
  const KnownDevices& devices_;
  std::vector<int> parents_;
  std::vector<PlacementGroup> groups_;  // of the roots
};

// "GPU CPU"
std::string names_of(DeviceTypes types);

}  // namespace tandem
