// Groups of nodes that must be on one device, and their constraints.
#pragma once

#include <string>
#include <vector>

#include "graph/graph.h"

namespace tandem {

// A set of device types, as bits.
using DeviceTypes = unsigned;
constexpr DeviceTypes bit_of(DeviceType type) { return 1u << static_cast<unsigned>(type); }

// The available devices in the order of preference: GPUs before CPUs, by index.
struct KnownDevices {
  std::vector<DeviceImpl*> devices;

  // All devices that match `name`.
  std::vector<DeviceImpl*> matching(const DeviceName& name) const;
  // The device types that `op` has kernels for, including GPUs if there are none.
  DeviceTypes types_of(const OpDef& op) const;
};

// The constraints of a group.
struct PlacementGroup {
  DeviceName assigned;   // of members that are placed already
  DeviceName resource;   // requested for variables; relaxed last
  DeviceName requested;  // requested for any member; at least as specific as the two above
  DeviceTypes types = 0;
  std::vector<const Node*> members;  // in no order
  DeviceImpl* chosen = nullptr;
};

class PlacementGroups {
 public:
  // Creates a group per node. `assigned`: the devices of the first nodes.
  PlacementGroups(const GraphImpl& graph, const KnownDevices& devices,
                  const std::vector<DeviceImpl*>& assigned);

  // Merges variables with the nodes that use their memory. The device of the variable overrides the
  // requests of these nodes.
  void tie_variables(bool log);
  // Merges nodes as ColocateWith requests. If that is impossible, throws, or ignores it if `soft`.
  void tie_colocated(bool soft, bool log);

  PlacementGroup& of(const Node& node) { return groups_[static_cast<std::size_t>(root(node.id))]; }
  // For errors: the members of the node's group, their requests and the devices of their kernels.
  std::string describe(const Node& node);

 private:
  int root(int id);
  void merge(const Node& a, const Node& b, bool soft);
  void tie(const Node& variable, const Node& consumer, bool log);

  const GraphImpl& graph_;
  const KnownDevices& devices_;
  std::vector<int> parents_;
  std::vector<PlacementGroup> groups_;  // valid at root ids
};

// "GPU CPU"
std::string names_of(DeviceTypes types);

}  // namespace tandem
