#include "function/placer_groups.h"

#include <algorithm>
#include <map>

#include "core/log.h"
#include "core/status.h"
#include "graph/structural_ops.h"
#include "op/find_kernel.h"

namespace tandem {

std::string names_of(DeviceTypes types) {
  std::string names;
  if ((types & bit_of(DeviceType::kGpu)) != 0) names += "GPU";
  if ((types & bit_of(DeviceType::kCpu)) != 0) names += names.empty() ? "CPU" : " CPU";
  if ((types & bit_of(DeviceType::kTpu)) != 0) names += names.empty() ? "TPU" : " TPU";
  return names;
}

std::vector<DeviceImpl*> KnownDevices::matching(const DeviceName& name) const {
  std::vector<DeviceImpl*> found;
  for (DeviceImpl* device : devices)
    if (is_specification(name, device->name())) found.push_back(device);
  return found;
}

DeviceTypes KnownDevices::types_of(const OpDef& op) const {
  constexpr DeviceTypes kCpu = bit_of(DeviceType::kCpu), kGpu = bit_of(DeviceType::kGpu);
  // An operation that cannot be compiled is an error when the program is made: moving it to a CPU
  // would split the program.
  const bool any_tpu = std::ranges::any_of(
      devices, [](const DeviceImpl* device) { return device->type() == DeviceType::kTpu; });
  const DeviceTypes tpu = any_tpu ? bit_of(DeviceType::kTpu) : 0;
  if (is_source(op) || (op.traits & kView) != 0) return kCpu | kGpu | tpu;
  DeviceTypes types = (find_kernel(op, DeviceBackend::kCpu) ? kCpu : 0) | tpu;
  bool any_gpu = false;
  for (const DeviceImpl* device : devices) {
    if (device->type() != DeviceType::kGpu) continue;
    any_gpu = true;
    if (find_kernel(op, device->backend())) types |= kGpu;
  }
  if (!any_gpu && op.gpu) types |= kGpu;
  return types;
}

PlacementGroups::PlacementGroups(const GraphImpl& graph, const KnownDevices& devices,
                                 const std::vector<DeviceImpl*>& assigned)
    : graph_(graph), devices_(devices) {
  for (const auto& node : graph.nodes()) {
    parents_.push_back(node->id);
    PlacementGroup& group = groups_.emplace_back();
    // Control flow has no kernel. Its bodies are placed separately.
    group.types = node->control ? bit_of(DeviceType::kCpu) | bit_of(DeviceType::kGpu) |
                                      bit_of(DeviceType::kTpu)
                                : devices.types_of(*node->op);
    group.members.push_back(node.get());
    DeviceImpl* device = static_cast<std::size_t>(node->id) < assigned.size()
                             ? assigned[static_cast<std::size_t>(node->id)]
                             : nullptr;
    if (node->resource) device = &node->resource->device();
    if (device) {
      group.assigned = group.requested = device->name();
      continue;
    }
    group.requested = node->requested;
    if (node->op == &kVarHandle) group.resource = node->requested;
  }
}

int PlacementGroups::root(int id) {
  int& parent = parents_[static_cast<std::size_t>(id)];
  if (parent != id) parent = root(parent);
  return parent;
}

void PlacementGroups::merge(const Node& a, const Node& b, bool soft) {
  PlacementGroup& into = of(a);
  PlacementGroup& from = of(b);
  if (&into == &from) return;
  DeviceName assigned = into.assigned, resource = into.resource, requested = into.requested;
  try {
    tandem::merge(assigned, from.assigned, /*soft=*/false);
    tandem::merge(resource, from.resource, /*soft=*/false);
    tandem::merge(requested, from.requested, soft);
    // A relaxed request must keep what `assigned` and `resource` fix.
    merge_override(requested, resource);
    merge_override(requested, assigned);
  } catch (const InvalidArgumentError& error) {
    fail<InvalidArgumentError>("Cannot colocate nodes {} and {}: {}{}", a.name, b.name,
                               error.what(), describe(a));
  }
  if ((into.types & from.types) == 0)
    fail<InvalidArgumentError>(
        "Cannot colocate nodes {} and {} because no device type supports both of those nodes and "
        "the other nodes colocated with them.{}{}",
        a.name, b.name, describe(a), describe(b));
  into.assigned = std::move(assigned);
  into.resource = std::move(resource);
  into.requested = std::move(requested);
  into.types &= from.types;
  into.members.insert(into.members.end(), from.members.begin(), from.members.end());
  from.members.clear();
  parents_[static_cast<std::size_t>(root(b.id))] = root(a.id);
}

void PlacementGroups::tie(const Node& variable, const Node& consumer, bool log) {
  const PlacementGroup& source = of(variable);
  PlacementGroup& destination = of(consumer);
  if (&source == &destination) return;
  const auto refuse = [&](const char* what, const DeviceName& a, const DeviceName& b) {
    fail<InvalidArgumentError>(
        "Cannot place the graph because a reference or resource edge connects colocation groups "
        "with incompatible {} devices: {} vs {}. The edge src node is {} , and the dst node is {}",
        what, a.to_string(), b.to_string(), variable.name, consumer.name);
  };
  if (!are_compatible(source.assigned, destination.assigned))
    refuse("assigned", source.assigned, destination.assigned);
  if (!are_compatible(source.resource, destination.resource))
    refuse("resource", source.resource, destination.resource);
  if (!are_compatible(source.requested, destination.requested)) {
    if (log)
      logging::info(
          "Ignoring device specification {} for node '{}' because the input edge from '{}' is a "
          "reference connection and already has a device field set to {}",
          destination.requested.to_string(), consumer.name, variable.name,
          source.requested.to_string());
    destination.requested = source.requested;
  }
  merge(variable, consumer, /*soft=*/false);
}

void PlacementGroups::tie_variables(bool log) {
  for (const auto& node : graph_.nodes())
    for (const Node::Input& input : node->inputs)
      if (input.node->op == &kVarHandle && !node->control) tie(*input.node, *node, log);
}

void PlacementGroups::tie_colocated(bool soft, bool log) {
  for (const auto& node : graph_.nodes())
    for (const Node* other : node->colocated_with) try {
        merge(*other, *node, soft);
      } catch (const InvalidArgumentError& error) {
        if (!soft) throw;
        if (log)
          logging::info(
              "Ignoring request to colocate node '{}' with '{}' because of the following error: {}",
              node->name, other->name, error.what());
      }
}

std::string PlacementGroups::describe(const Node& node) {
  const PlacementGroup& group = of(node);
  std::map<std::string_view, DeviceTypes> types;
  std::string members;
  std::vector<const Node*> sorted = group.members;
  std::sort(sorted.begin(), sorted.end(),
            [](const Node* a, const Node* b) { return a->id < b->id; });
  for (const Node* member : sorted) {
    types[member->op->name] = devices_.types_of(*member->op);
    members +=
        fmt::format("\n  {} ({}) {}", member->name, member->op->name, member->requested_text);
  }
  if (group.assigned != DeviceName())
    members += fmt::format("\n  (some of them are on {})", group.assigned.to_string());
  std::string text =
      "\nColocation Debug Info:\n"
      "Colocation group had the following types and supported devices:";
  for (const auto& [op, supported] : types)
    text += fmt::format("\n  {}: {}", op, names_of(supported));
  return text +
         "\nColocation members, user-requested devices, and framework assigned devices, if any:" +
         members;
}

}  // namespace tandem
