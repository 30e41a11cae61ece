#include "ps/part_program.h"

#include <algorithm>

#include "core/status.h"
#include "graph/structural_ops.h"
#include "runtime/placer.h"
#include "runtime/serialize.h"

namespace tandem::ps {
namespace {

void add_number(std::string& key, std::uint64_t number) {
  key.append(reinterpret_cast<const char*>(&number), sizeof(number));
}

AttrFields fields_of(const proto::RunAttributes& attributes) {
  AttrFields fields;
  for (const proto::RunAttributes::Field& field : attributes.fields())
    fields.push_back({.name = field.name(),
                      .integers = {field.integers().begin(), field.integers().end()},
                      .reals = {field.reals().begin(), field.reals().end()},
                      .known_shape = field.known_shape()});
  return fields;
}

}  // namespace

PartProgram::PartProgram(const proto::Part& part, const ResourceOf& resource_of)
    : name_(part.name()),
      updates_(part.updates()),
      graph_(deserialize_nodes(part.graph())),
      memory_(ProgramMemory::make()) {
  bind_variables(part, resource_of);
  take_attributes(part);
  for (const std::uint32_t index : part.feeds()) {
    Node& node = node_at(index);
    if (node.op != &kPlaceholder)
      fail<InvalidArgumentError>("[{}] node '{}' is fed, but is not a placeholder", name_,
                                 node.name);
    feeds_.push_back({&node, 0});
  }
  for (const proto::Part::Fetch& fetch : part.fetches()) {
    Node& node = node_at(fetch.node());
    if (fetch.output() >= node.outputs.size() || node.op == &kVarHandle)
      fail<InvalidArgumentError>("[{}] output {} of node '{}' cannot be fetched", name_,
                                 fetch.output(), node.name);
    fetches_.push_back({&node, static_cast<int>(fetch.output())});
  }
}

Node& PartProgram::node_at(std::uint32_t index) const {
  if (index >= graph_->nodes().size())
    fail<InvalidArgumentError>("[{}] expected a node below {}, got {}", name_,
                               graph_->nodes().size(), index);
  return *graph_->nodes()[index];
}

void PartProgram::bind_variables(const proto::Part& part, const ResourceOf& resource_of) {
  for (const proto::Part::Variable& variable : part.variables()) {
    Node& node = node_at(variable.node());
    if (node.op != &kVarHandle)
      fail<InvalidArgumentError>("[{}] node '{}' is not a variable", name_, node.name);
    const std::vector<Shard> shards =
        read_shards(variable.shards(), rows_of(node.outputs[0].shape), name_);
    node.resource = resource_of(shards, node.outputs[0]);
    const Device& device = node.resource->device();
    node.requested = device.name();
    node.requested_text = device.full_name();
  }
  for (const auto& node : graph_->nodes())
    if (node->op == &kVarHandle && !node->resource)
      fail<InvalidArgumentError>("[{}] variable '{}' has no id", name_, node->name);
}

void PartProgram::take_attributes(const proto::Part& part) {
  for (const std::uint32_t index : part.attributes()) {
    Node& node = node_at(index);
    if (!node.attrs || node.op->exchange_key)
      fail<InvalidArgumentError>("[{}] node '{}' has no attributes that change per run", name_,
                                 node.name);
    const auto& fields = attributes_.emplace_back(
        std::make_shared<AttrFields>(node.op->attrs().save(node.attrs.get())));
    node.attr_update =
        std::make_shared<const AttrUpdate>([type = &node.op->attrs(), fields](void* attrs) {
          for (const AttrField& field : *fields) type->set(attrs, field);
        });
  }
}

void PartProgram::check_inputs(std::span<const Tensor> inputs) const {
  if (inputs.size() != feeds_.size())
    fail<InvalidArgumentError>("[{}] expected {} inputs, got {}", name_, feeds_.size(),
                               inputs.size());
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const TensorSpec& spec = feeds_[i].node->outputs[0];
    if (inputs[i].dtype() != spec.dtype || !spec.shape.matches(inputs[i].shape()))
      fail<InvalidArgumentError>("[{}] expected input {} of shape {} and dtype {}, got {} and {}",
                                 name_, i, spec.shape.to_string(), name_of(spec.dtype),
                                 inputs[i].shape().to_string(), name_of(inputs[i].dtype()));
  }
}

Program& PartProgram::program_for(std::span<const Tensor> inputs) {
  std::string key;
  for (const Tensor& input : inputs) {
    for (const std::int64_t size : input.shape()) add_number(key, static_cast<std::uint64_t>(size));
    add_number(key, reinterpret_cast<std::uintptr_t>(&impl_of(input).device()));
  }
  const auto found = programs_.find(key);
  if (found != programs_.end()) return *found->second;
  KnownSizes sizes;
  LowerOptions options{
      .feeds = feeds_, .fetches = fetches_, .all_updates = updates_, .sizes = &sizes};
  for (const Tensor& input : inputs) {
    options.feed_specs.push_back(impl_of(input));
    options.feed_devices.push_back(&impl_of(input).device());
  }
  options.devices = place_graph(*graph_);
  options.devices_of = [](const GraphImpl& body) { return place_graph(body); };
  auto program = std::make_unique<Program>(
      lower(*graph_, options),
      ProgramOptions{.name = fmt::format("'{}'", name_), .memory = memory_});
  if (programs_.size() == kMaxPrograms) programs_.erase(programs_.begin());
  return *programs_.emplace(std::move(key), std::move(program)).first->second;
}

void PartProgram::run(std::span<const Tensor> inputs,
                      std::span<const proto::RunAttributes> attributes,
                      std::vector<Tensor>& outputs) {
  check_inputs(inputs);
  set_attributes(attributes);
  program_for(inputs).run(inputs, outputs);
}

// The shape rule has checked the attributes of the part, so others may only be numbers that no size
// or address depends on.
void PartProgram::set_attributes(std::span<const proto::RunAttributes> attributes) {
  if (attributes.size() != attributes_.size())
    fail<InvalidArgumentError>("[{}] expected the attributes of {} nodes, got {}", name_,
                               attributes_.size(), attributes.size());
  const auto suits = [](const AttrField& a, const AttrField& b) {
    return a == b || (a.name == b.name && a.reals.size() == b.reals.size() &&
                      (a.integers == b.integers || (a.name == "step" && a.integers.size() == 1)));
  };
  std::vector<AttrFields> given;
  for (std::size_t i = 0; i < attributes.size(); ++i) {
    given.push_back(fields_of(attributes[i]));
    if (!std::equal(given[i].begin(), given[i].end(), attributes_[i]->begin(),
                    attributes_[i]->end(), suits))
      fail<InvalidArgumentError>(
          "[{}] the attributes of node {} differ from the function's in more than real numbers and "
          "the step",
          name_, i);
  }
  for (std::size_t i = 0; i < given.size(); ++i) *attributes_[i] = std::move(given[i]);
}

}  // namespace tandem::ps
