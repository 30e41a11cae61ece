// Places the nodes of a graph on devices. The rules, and the beginnings of the error messages, are
// those of TensorFlow's placer.
#pragma once

#include <optional>
#include <vector>

#include "graph/graph.h"

namespace tandem {

struct PlacerOptions {
  // Whether a request that cannot be met is relaxed: in the type and index of the device, never in
  // the job, replica or task. Defaults to tandem::config::get_soft_device_placement().
  std::optional<bool> allow_soft_placement;
  // Writes "NAME: (OPTYPE): DEVICE" to stdout and the log, and relaxed requests to the log.
  bool log_device_placement = false;
  // The devices of the first nodes, which are placed already.
  std::vector<DeviceImpl*> assigned;
  // Preferred for nodes that can run on it and have no request.
  DeviceImpl* default_device = nullptr;
};

// Returns the device of each node, indexed by id.
//
// Nodes are placed in groups: a variable with its reads and updates, and nodes that are colocated
// (ColocateWith). A group is placed on the first device, GPUs before CPUs and by index, that
// matches the requests of its members and has kernels for all of them. Then nodes without inputs
// are placed with their consumers, and views and operations on shapes are placed with their input.
//
// Throws InvalidArgumentError "Cannot assign a device for operation NAME: ...", "Cannot colocate
// nodes A and B: ...", "Cannot place the graph because a reference or resource edge connects
// colocation groups with incompatible assigned (or resource) devices: A vs B. ..."; and
// FailedPreconditionError "No devices are registered".
std::vector<DeviceImpl*> place_graph(const GraphImpl& graph, const PlacerOptions& options = {});

}  // namespace tandem
