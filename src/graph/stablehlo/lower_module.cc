#include "graph/stablehlo/lower_module.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/status.h"
#include "graph/check_numerics.h"
#include "graph/control_flow.h"
#include "graph/stablehlo/graph_lowering.h"
#include "graph/structural_ops.h"

namespace tandem::stablehlo {
namespace {

// A constant with more bytes becomes a parameter, so that the module stays small.
constexpr std::size_t kMostLiteralBytes = 4096;
// The limit for a number that depends on a counter (RunNumber).
constexpr std::int64_t kMostRows = std::int64_t{1} << 20;

}  // namespace

const void* key_of(const Node& handle) {
  return handle.resource ? handle.resource->identity()
                         : static_cast<const void*>(&outermost(handle));
}

GraphLowering::GraphLowering(const GraphImpl& graph, const ModuleOptions& options)
    : options_(options), sizes_(options.sizes ? *options.sizes : KnownSizes()), numbers_(module_) {
  sizes_.use(graph.sizes());
  module_.name = options.name;
  module_.num_replicas = options.num_replicas;
  for (const TensorType& spec : options.feed_specs)
    any_sizes_ = any_sizes_ || !spec.shape.fully_defined();
}

Module GraphLowering::run() {
  for (std::size_t i = 0; i < options_.feeds.size(); ++i) bind_feed(i);
  note_gradients(options_.nodes);
  for (const Node* node : options_.nodes) lower_node(*node);
  std::vector<Value> results;
  for (const Node::Input& fetch : options_.fetches) {
    results.push_back(value_of(fetch));
    const DType dtype = fetch.node->outputs[static_cast<std::size_t>(fetch.output)].dtype;
    module_.fetches.push_back({dtype, results.back().shape()});
  }
  for (const Node* handle : written_) {
    module_.written.push_back(parameter_of_.at(key_of(*handle)));
    results.push_back(variables_.at(key_of(*handle)));
  }
  for (const Value& count : counts_) results.push_back(build_.bitcast(count, Element::kI64));
  for (const Resource* counter : module_.counters) results.push_back(advance_of(*counter));
  write_body(results);
  if (options_.sizes) *options_.sizes = sizes_;
  return std::move(module_);
}

// --- parameters ---

// How far control flow of the module advances a counter that `node` depends on, at most.
std::int64_t GraphLowering::most_advances(const Node& node, const Resource& counter) const {
  std::int64_t most = 0;
  for (const Node* other : options_.nodes) {
    if (!other->control) continue;
    const auto advances = most_counts(*other->control, counter, kMostRows);
    if (!advances || (most += *advances) > kMostRows)
      refuse(node,
             fmt::format("it depends on how often a loop runs: expected a limit of iterations "
                         "(WhileOptions::maximum_iterations) for at most {} steps in all",
                         kMostRows));
  }
  return most;
}

Value GraphLowering::number(RunNumber number, Element element) {
  const Node& node = *number.node;
  const Resource* const counter = node.attr_update->counter.get();
  const auto advance = counter ? scope_.advances.find(counter->identity()) : scope_.advances.end();
  if (advance == scope_.advances.end())
    return build_.reshape(numbers_.number(std::move(number), element), Shape::scalar());
  const Value row = advance->second;
  number.rows = 1 + most_advances(node, *counter);
  return build_.row(numbers_.number(std::move(number), element), row);
}

RunParameters::Key GraphLowering::key(RunKey key) {
  const Node& node = *key.node;
  Key made = numbers_.key(std::move(key));
  made.number = shifted(node, made.number);
  return made;
}

// The number of a random operation, or of the first one in control flow, from that which the host
// computes.
Value GraphLowering::shifted(const Node& node, const Value& number) {
  Value sum = scope_.shift ? build_.add(number, *scope_.shift) : number;
  if (!node.random_before) return sum;
  const auto before = scope_.totals.find(node.random_before.get());
  if (before != scope_.totals.end()) return build_.add(sum, before->second);
  if (scope_.shift)
    refuse(node,
           "it is computed again for a gradient, and its random numbers depend on control flow "
           "that is not");
  return sum;  // the host has counted those of other programs
}

Value GraphLowering::add_parameter(Parameter parameter) {
  Value value{fmt::format("%arg{}", module_.parameters.size()), parameter.spec};
  module_.parameters.push_back(std::move(parameter));
  return value;
}

void GraphLowering::bind_feed(std::size_t index) {
  const Node::Input& feed = options_.feeds[index];
  const TensorType& given = options_.feed_specs[index];
  const TensorType& expected = feed.node->outputs[static_cast<std::size_t>(feed.output)];
  if (given.dtype != expected.dtype || !expected.shape.matches(given.shape))
    fail<InvalidArgumentError>("[{}] expected shape {} and dtype {} for '{}', got {} and {}",
                               options_.name, expected.shape.to_string(), name_of(expected.dtype),
                               feed.node->name, given.shape.to_string(), name_of(given.dtype));
  if (!any_sizes_) sizes_.bind(expected.shape, given.shape, feed.node->name);
  const Value value =
      add_parameter({.kind = Parameter::Kind::kFeed, .spec = given, .index = index});
  for (int axis = 0; axis < given.shape.rank(); ++axis)
    if (dim::is_unknown(given.shape.word(axis)))
      build_.add_symbol(given.shape.word(axis), value, axis);
  values_.insert_or_assign({feed.node, feed.output}, value);
}

// The current elements of a variable.
Value& GraphLowering::variable(const Node& handle) {
  const void* key = key_of(handle);
  const auto found = variables_.find(key);
  if (found != variables_.end()) return found->second;
  parameter_of_[key] = module_.parameters.size();
  const Node& outside = handle.resource ? handle : outermost(handle);
  Value elements = add_parameter(
      {.kind = Parameter::Kind::kVariable, .spec = handle.outputs[0], .node = &outside});
  return variables_.emplace(key, std::move(elements)).first->second;
}

void GraphLowering::write_variable(const Node& handle, Value value) {
  variable(handle) = std::move(value);
  const auto same = [&](const Node* other) { return key_of(*other) == key_of(handle); };
  if (std::none_of(written_.begin(), written_.end(), same)) written_.push_back(&handle);
}

Value GraphLowering::constant(const Node& node) {
  const TensorType& spec = node.outputs[0];
  const bool differs = std::find(options_.differing.begin(), options_.differing.end(), &node) !=
                       options_.differing.end();
  if (!differs && !node.value.defined() && node.literal.size() <= kMostLiteralBytes)
    return build_.literal(spec, node.literal.data());
  return add_parameter({.kind = Parameter::Kind::kConstant, .spec = spec, .node = &node});
}

// --- nodes ---

const Value& GraphLowering::value_of(const Node::Input& tensor) const {
  const auto found = values_.find({tensor.node, tensor.output});
  if (found == values_.end())
    fail<InvalidArgumentError>(
        "You must feed a value for placeholder tensor '{}' with dtype {} and shape {}",
        tensor.node->name, name_of(tensor.node->outputs[0].dtype),
        tensor.node->outputs[0].shape.to_string());
  return found->second;
}

void GraphLowering::lower_node(const Node& node) {
  if (node.op == &kPlaceholder || node.op == &kVarHandle || node.op == &kNoOp) return;
  if (node.op == &kConst)
    values_.insert_or_assign({&node, 0}, constant(node));
  else if (node.op == &kReadVariable)
    values_.insert_or_assign({&node, 0}, variable(*node.inputs[0].node));
  else if (node.op == &kAssignVariable)
    write_variable(*node.inputs[0].node, value_of(node.inputs[1]));
  else if (node.control && any_sizes_)
    refuse(node, "control flow has no form for unknown sizes; give tensors of known sizes");
  else if (node.control)
    lower_control(node);
  else
    lower_operation(node);
}

void GraphLowering::lower_operation(const Node& node) {
  if (node.counted) refuse(node, "a session counts its steps; use a function instead");
  const std::shared_ptr<const void> attrs =
      any_sizes_ ? node.attrs : sizes_.fill_in(*node.op, node.attrs);
  InferContext infer(*node.op, AttrsRef(&node.op->attrs(), attrs.get()));
  std::vector<Value> inputs;
  std::vector<TensorType> specs;
  for (const Node::Input& input : node.inputs) {
    const bool is_memory = input.node->op == &kVarHandle;
    inputs.push_back(is_memory ? variable(*input.node) : value_of(input));
    specs.push_back(
        {input.node->outputs[static_cast<std::size_t>(input.output)].dtype, inputs.back().shape()});
  }
  for (const TensorType& spec : specs) infer.inputs.push_back(&spec);
  node.op->infer(infer);
  for (std::size_t i = 0; !any_sizes_ && i < node.outputs.size(); ++i)
    sizes_.bind(node.outputs[i].shape, infer.outputs[static_cast<int>(i)].shape, node.name);
  const LowerFn lower = lowering_of(*node.op);
  if (!lower)
    fail<UnimplementedError>(
        "[{}] '{}' in '{}' has no lowering to StableHLO; docs/operations.md lists the operations "
        "that have one",
        node.op->name, node.name, options_.name);
  Context context(build_, *this, node, attrs, inputs, {infer.outputs.begin(), infer.outputs.end()});
  try {
    lower(context);
  } catch (const InvalidArgumentError& error) {
    if (!any_sizes_) throw;
    refuse(node, fmt::format("{}; give tensors of known sizes", error.what()));
  }
  std::vector<Value> results = context.take_results();
  for (std::size_t i = 0; i < results.size(); ++i)
    values_.insert_or_assign({&node, static_cast<int>(i)}, std::move(results[i]));
  for (const auto& [input, value] : context.writes())
    write_variable(*node.inputs[input].node, value);
}

void GraphLowering::write_body(const std::vector<Value>& results) {
  const std::string definitions = numbers_.define();
  build_.add("func.return", results, {}, "", {});
  module_.body = definitions + build_.take();
}

std::vector<const Node*> needed_nodes(const GraphImpl& graph, std::span<const Node::Input> feeds,
                                      std::span<const Node::Input> fetches, bool updates) {
  std::vector<bool> needed(graph.nodes().size(), false);
  const auto need = [&](const Node& node) { needed[static_cast<std::size_t>(node.id)] = true; };
  const auto need_tensor = [&](const Node::Input& tensor) {
    if (std::find(feeds.begin(), feeds.end(), tensor) == feeds.end()) need(*tensor.node);
  };
  for (const Node::Input& fetch : fetches) need_tensor(fetch);
  for (auto node = graph.nodes().rbegin(); node != graph.nodes().rend(); ++node) {
    if (updates && has_effects(**node)) need(**node);
    if (!needed[static_cast<std::size_t>((*node)->id)]) continue;
    for (const Node::Input& input : (*node)->inputs) need_tensor(input);
    for (const Node* control : (*node)->control_inputs) need(*control);
    if ((*node)->control && (*node)->control->needs_record()) need(*(*node)->control->forward);
  }
  std::vector<const Node*> nodes;
  for (const auto& node : graph.nodes())
    if (needed[static_cast<std::size_t>(node->id)]) nodes.push_back(node.get());
  return nodes;
}

Module lower_module(const GraphImpl& graph, const ModuleOptions& options) {
  return GraphLowering(graph, options).run();
}

}  // namespace tandem::stablehlo
