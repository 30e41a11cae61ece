#include "runtime/placer.h"

#include "core/status.h"
#include "device/device_manager.h"
#include "graph/structural_ops.h"
#include "runtime/placement.h"

namespace tandem {
namespace {

bool runs_on(const OpDef& op, const Device& device) {
  return is_source(op) || (op.traits & kView) != 0 || find_kernel(op, device.backend()) != nullptr;
}

Device& device_of(const Node& node, const std::vector<Device*>& placed) {
  const bool follows = (node.op->traits & (kView | kMetadata)) != 0 || node.op->mutated_inputs != 0;
  if (node.resource) return node.resource->device();
  if (follows && !node.inputs.empty())
    return *placed[static_cast<std::size_t>(node.inputs[0].node->id)];
  for (DeviceType type : {DeviceType::kGpu, DeviceType::kCpu})
    for (Device* device : DeviceManager::get().devices(type, "function"))
      if (is_specification(node.requested, device->name()) && runs_on(*node.op, *device))
        return *device;
  fail<InvalidArgumentError>("Cannot assign a device for operation {}: available devices are {}",
                             node.name, DeviceManager::get().describe_devices());
}

}  // namespace

std::vector<Device*> place_graph(const GraphImpl& graph) {
  std::vector<Device*> placed;
  placed.reserve(graph.nodes().size());
  for (const auto& node : graph.nodes()) placed.push_back(&device_of(*node, placed));
  return placed;
}

}  // namespace tandem
