#include "ps/part_program.h"

#include <algorithm>
#include <utility>

#include "core/status.h"
#include "function/serialize.h"
#include "graph/structural_ops.h"

namespace tandem::ps {

PartProgram::PartProgram(const proto::Part& part, const ResourceOf& resource_of)
    : graph_(deserialize_nodes(part.function().graph())),
      programs_(graph_, part.function(), {.name = part.name(), .updates = part.updates()}) {
  bind_variables(part, resource_of);
  take_attributes(part);
}

void PartProgram::bind_variables(const proto::Part& part, const ResourceOf& resource_of) {
  for (const proto::Part::Variable& variable : part.variables()) {
    Node& node = programs_.node_at(variable.node());
    if (node.op != &kVarHandle)
      fail<InvalidArgumentError>("[{}] node '{}' is not a variable", name(), node.name);
    const std::vector<Shard> shards =
        read_shards(variable.shards(), rows_of(node.outputs[0].shape), name());
    node.resource = resource_of(shards, node.outputs[0]);
    const DeviceImpl& device = node.resource->device();
    node.requested = device.name();
    node.requested_text = device.full_name();
  }
  for (const auto& node : graph_->nodes())
    if (node->op == &kVarHandle && !node->resource)
      fail<InvalidArgumentError>("[{}] variable '{}' has no id", name(), node->name);
}

void PartProgram::take_attributes(const proto::Part& part) {
  for (const std::uint32_t index : part.attributes()) {
    Node& node = programs_.node_at(index);
    if (!node.attrs || node.op->exchange_key)
      fail<InvalidArgumentError>("[{}] node '{}' has no attributes that change per run", name(),
                                 node.name);
    const auto& fields = attributes_.emplace_back(
        std::make_shared<AttrFields>(node.op->attrs().save(node.attrs.get())));
    node.attr_update = std::make_shared<const AttrUpdate>(
        [type = &node.op->attrs(), fields](void* attrs, std::int64_t) {
          for (const AttrField& field : *fields) type->set(attrs, field);
        });
  }
}

void PartProgram::run(std::span<const Tensor> inputs,
                      std::span<const proto::RunAttributes> attributes,
                      std::vector<Tensor>& outputs) {
  set_attributes(attributes);
  programs_.run(inputs, outputs);
}

std::shared_ptr<const void> PartProgram::attributes_of(
    const Node& node, std::span<const proto::RunAttributes> attributes) {
  set_attributes(attributes);
  std::shared_ptr<const void> attrs = node.op->attrs().copy(node.attrs.get());
  if (node.attr_update) (*node.attr_update)(const_cast<void*>(attrs.get()));
  return attrs;
}

// The shape rule has checked the attributes of the part, so others may only be numbers that no size
// or address depends on.
void PartProgram::set_attributes(std::span<const proto::RunAttributes> attributes) {
  if (attributes.size() != attributes_.size())
    fail<InvalidArgumentError>("[{}] expected the attributes of {} nodes, got {}", name(),
                               attributes_.size(), attributes.size());
  const auto suits = [](const AttrField& a, const AttrField& b) {
    return a == b || (a.name == b.name && a.reals.size() == b.reals.size() &&
                      (a.integers == b.integers || (a.name == "step" && a.integers.size() == 1)));
  };
  std::vector<AttrFields> given;
  for (std::size_t i = 0; i < attributes.size(); ++i) {
    given.push_back(read_attributes(attributes[i].fields()));
    if (!std::equal(given[i].begin(), given[i].end(), attributes_[i]->begin(),
                    attributes_[i]->end(), suits))
      fail<InvalidArgumentError>(
          "[{}] the attributes of node {} differ from the function's in more than real numbers and "
          "the step",
          name(), i);
  }
  for (std::size_t i = 0; i < given.size(); ++i) *attributes_[i] = std::move(given[i]);
}

}  // namespace tandem::ps
