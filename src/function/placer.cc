#include "function/placer.h"

#include <algorithm>

#include "core/joined.h"
#include "core/log.h"
#include "core/status.h"
#include "device/device_manager.h"
#include "function/placer_groups.h"
#include "graph/structural_ops.h"
#include "runtime/placement.h"
#include "runtime/placement_errors.h"
#include "tandem/config.h"

namespace tandem {
namespace {

// Removes the type and the index from `name` unless `fixed` has them.
void relax(DeviceName& name, const DeviceName& fixed) {
  if (!fixed.type) name.type.reset();
  if (!fixed.type || !fixed.id) name.id.reset();
}

class Placer {
 public:
  Placer(const GraphImpl& graph, const PlacerOptions& options)
      : graph_(graph),
        options_(options),
        soft_(options.allow_soft_placement.value_or(config::get_soft_device_placement())),
        devices_(known_devices()),
        groups_(graph, devices_, options.assigned),
        placed_(options.assigned) {
    placed_.resize(graph.nodes().size(), nullptr);
  }

  std::vector<DeviceImpl*> run() {
    groups_.tie_variables(options_.log_device_placement);
    groups_.tie_colocated(soft_, options_.log_device_placement);
    find_consumers();
    std::vector<const Node*> generators;
    for (const auto& node : graph_.nodes()) {
      if (device_of(*node)) continue;
      if (node->inputs.empty() && node->outputs.size() == 1 && node->op != &kVarHandle)
        generators.push_back(node.get());
      else
        place(*node);
    }
    for (const Node* node : generators) place_with_consumers(*node);
    if (options_.log_device_placement) log();
    return std::move(placed_);
  }

 private:
  static KnownDevices known_devices() {
    KnownDevices known;
    for (DeviceType type : {DeviceType::kGpu, DeviceType::kCpu, DeviceType::kTpu})
      for (DeviceImpl* device : DeviceManager::get().devices(type, "Session"))
        known.devices.push_back(device);
    if (known.devices.empty()) throw FailedPreconditionError("No devices are registered");
    return known;
  }

  DeviceImpl*& device_of(const Node& node) { return placed_[static_cast<std::size_t>(node.id)]; }

  void find_consumers() {
    consumers_.resize(graph_.nodes().size());
    for (const auto& node : graph_.nodes())
      for (const Node::Input& input : node->inputs)
        consumers_[static_cast<std::size_t>(input.node->id)].push_back(node.get());
  }

  void assign(const Node& node, DeviceImpl& device) {
    device_of(node) = &device;
    groups_.of(node).chosen = &device;
  }

  void place(const Node& node) {
    const std::vector<DeviceImpl*> devices = candidates(node);
    const bool follows = (node.op->traits & (kView | kMetadata)) != 0 && !node.inputs.empty();
    DeviceImpl* at_input = follows ? device_of(*node.inputs[0].node) : nullptr;
    assign(node, at_input && contains(devices, *at_input) ? *at_input : *devices.front());
  }

  void place_with_consumers(const Node& node) {
    const std::vector<DeviceImpl*> devices = candidates(node);
    DeviceImpl* common = nullptr;
    for (const Node* consumer : consumers_[static_cast<std::size_t>(node.id)]) {
      DeviceImpl* device = device_of(*consumer);
      if (common && device != common) device = nullptr;
      common = device;
      if (!common) break;
    }
    assign(node, common && contains(devices, *common) ? *common : *devices.front());
  }

  static bool contains(const std::vector<DeviceImpl*>& devices, const DeviceImpl& device) {
    return std::find(devices.begin(), devices.end(), &device) != devices.end();
  }

  std::vector<DeviceImpl*> supported(const DeviceName& name, DeviceTypes types) const {
    std::vector<DeviceImpl*> found = devices_.matching(name);
    std::erase_if(found,
                  [&](const DeviceImpl* device) { return (types & bit_of(device->type())) == 0; });
    return found;
  }

  // The devices that the node can be placed on, in the order of preference; at least one.
  std::vector<DeviceImpl*> candidates(const Node& node) {
    PlacementGroup& group = groups_.of(node);
    if (group.chosen) return {group.chosen};
    std::vector<DeviceImpl*> found = supported(group.requested, group.types);
    if (found.empty() && soft_ && group.requested != DeviceName()) found = soft_candidates(node);
    if (found.empty()) refuse(node);
    DeviceImpl* preferred = options_.default_device;
    if (preferred && contains(found, *preferred))
      std::rotate(found.begin(), std::find(found.begin(), found.end(), preferred),
                  std::find(found.begin(), found.end(), preferred) + 1);
    return found;
  }

  std::vector<DeviceImpl*> soft_candidates(const Node& node) {
    const PlacementGroup& group = groups_.of(node);
    DeviceName fixed = group.resource;
    merge_override(fixed, group.assigned);
    DeviceName wanted = group.requested;
    relax(wanted, fixed);
    std::vector<DeviceImpl*> found = supported(wanted, group.types);
    if (!found.empty()) {
      if (options_.log_device_placement)
        logging::info("Soft placement: '{}' asked for {} and may run on other devices", node.name,
                      group.requested.to_string());
      return found;
    }
    relax(wanted, group.assigned);
    found = supported(wanted, group.types);
    if (!found.empty() && group.resource != DeviceName())
      logging::warn(
          "Failed to place the graph without changing the devices of some resources: the variables "
          "asked for {}, and go to {}.",
          group.resource.to_string(), found.front()->full_name());
    return found;
  }

  [[noreturn]] void refuse(const Node& node) {
    fail<InvalidArgumentError>("Cannot assign a device for operation {}: {}", node.name,
                               reason(node));
  }

  std::string reason(const Node& node) {
    const PlacementGroup& group = groups_.of(node);
    if (group.types == 0 || group.requested == DeviceName()) {
      std::vector<std::string_view> inputs;
      for (const Node::Input& input : node.inputs)
        inputs.push_back(
            name_of(input.node->outputs[static_cast<std::size_t>(input.output)].dtype));
      return fmt::format(
          "Node had no OpKernel registered to support this operation: Operation was {} and inputs "
          "were [{}].{}",
          node.op->name, joined(inputs, ", "), groups_.describe(node));
    }
    // The member whose request cannot be met: this node, or one that it is colocated with.
    const Node* asking = &node;
    if (node.requested == DeviceName())
      for (const Node* member : group.members)
        if (member->requested != DeviceName() && member->id < asking->id) asking = member;
    const std::string asked =
        asking->requested_text.empty() ? group.requested.to_string() : asking->requested_text;
    const bool own = asking->requested != DeviceName();
    const DeviceName& wanted = own ? asking->requested : group.requested;
    if (devices_.matching(wanted).empty()) return missing_device(asking->name, wanted, asked);
    if (!supported(wanted, devices_.types_of(*node.op)).empty())
      return fmt::format(
          "Could not satisfy explicit device specification '{}' because the node {} was colocated "
          "with a group of nodes that required incompatible device '{}'. All available devices "
          "{}.{}",
          asked, node.name,
          group.requested == wanted ? names_of(group.types) : group.requested.to_string(),
          DeviceManager::get().describe_devices(), groups_.describe(node));
    return fmt::format(
        "Could not satisfy explicit device specification '{}' because no supported kernel for {} "
        "devices is available.{}\nRegistered kernels of {}: {}\nAll available devices {}. Soft "
        "placement (SessionOptions{{.allow_soft_placement = true}}) would run it on another "
        "device.",
        asked, wanted.type.value_or("such"), groups_.describe(node), node.op->name,
        names_of(devices_.types_of(*node.op)), DeviceManager::get().describe_devices());
  }

  void log() {
    for (std::size_t i = options_.assigned.size(); i < placed_.size(); ++i) {
      const Node& node = *graph_.nodes()[i];
      const std::string line =
          fmt::format("{}: ({}): {}", node.name, node.op->name, placed_[i]->full_name());
      fmt::print("{}\n", line);
      logging::info("{}", line);
    }
  }

  const GraphImpl& graph_;
  const PlacerOptions& options_;
  const bool soft_;
  const KnownDevices devices_;
  PlacementGroups groups_;
  std::vector<DeviceImpl*> placed_;
  std::vector<std::vector<const Node*>> consumers_;
};

}  // namespace

std::vector<DeviceImpl*> place_graph(const GraphImpl& graph, const PlacerOptions& options) {
  return Placer(graph, options).run();
}

}  // namespace tandem
