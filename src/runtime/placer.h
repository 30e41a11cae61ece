// Which device each node of a graph runs on. The rules, and the beginnings of the error texts, are
// those of TensorFlow's placer.
#pragma once

#include <optional>
#include <vector>

#include "graph/graph.h"

namespace tandem {

struct PlacerOptions {
  // Whether what the program asked for may give way where it cannot be had: type and index of the
  // device, never job, replica or task. Not given: tandem::config::get_soft_device_placement().
  std::optional<bool> allow_soft_placement;
  // Writes "NAME: (OPTYPE): DEVICE" to stdout and to the log, and what was given up to the log.
  bool log_device_placement = false;
  // The devices of the first nodes, which stay where they are.
  std::vector<Device*> assigned;
  // Preferred where a node may run on it and asked for nothing else.
  Device* default_device = nullptr;
};

// The device of each node, by its id.
//
// Nodes are placed in groups: a variable with what reads and writes it, and what ColocateWith puts
// together. A group goes to the first device that suits what its members asked for and has kernels
// for all of them, GPUs before CPUs, by index. Beyond that, what has no inputs goes where all of
// its consumers are, and views and operations on shapes go where their input is.
//
// Throws InvalidArgumentError "Cannot assign a device for operation NAME: ...", "Cannot colocate
// nodes A and B: ...", "Cannot place the graph because a reference or resource edge connects
// colocation groups with incompatible assigned (or resource) devices: A vs B. ..."; and
// FailedPreconditionError "No devices are registered".
std::vector<Device*> place_graph(const GraphImpl& graph, const PlacerOptions& options = {});

}  // namespace tandem
