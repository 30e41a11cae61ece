#include "graph/graph.h"

#include <algorithm>
#include <cstring>

#include "core/status.h"
#include "device/device_manager.h"
#include "graph/structural_ops.h"
#include "op/record.h"

namespace tandem {

Symbol::Symbol(RefPtr<RefCounted> owner, Node& made_by, int index)
    : graph(std::move(owner)), node(&made_by), output(index) {}
Symbol::~Symbol() = default;

GraphImpl::GraphImpl(GraphImpl* outer)
    : outer_(outer), sizes_(outer ? outer->sizes_ : SizeTable::make()) {
  if (!outer) return;
  for_sessions = outer->for_sessions;
  tallies_ = outer->tallies_;
}
GraphImpl::~GraphImpl() = default;

Node& GraphImpl::append(const OpDef& op, std::string_view name, const NodeOptions& options) {
  auto node = std::make_unique<Node>();
  node->graph = this;
  node->op = &op;
  node->id = static_cast<int>(nodes_.size());
  node->name = unique_name(scoped(name));
  if (options.requested) node->requested = *options.requested;
  node->requested_text = options.requested_text;
  if (context.colocated_with)
    for (Node* other : *context.colocated_with)
      if (other->graph == this) node->colocated_with.push_back(other);
  by_name_.emplace(node->name, node.get());
  return *nodes_.emplace_back(std::move(node));
}

Node& GraphImpl::add(const OpDef& op, AttrsRef attrs, std::span<const Node::Input> inputs,
                     const NodeOptions& options) {
  InferContext inferred(op, attrs);
  for (const Node::Input& input : inputs) {
    TANDEM_ASSERT(input.node->graph == this);
    inferred.inputs.push_back(&input.node->outputs[static_cast<std::size_t>(input.output)]);
  }
  check_sizes(*sizes_, op, attrs);
  inferred.add_outputs();
  Node& node = append(op, options.name.empty() ? op.name : options.name, options);
  node.attrs = attrs.type->copy(attrs.data);
  if (context.attr_update) node.attr_update = *context.attr_update;
  node.inputs.assign(inputs.begin(), inputs.end());
  for (TensorType& output : inferred.outputs) {
    output.shape = with_symbols(*sizes_, output.shape, node.name);
    node.outputs.push_back(output);
  }
  return node;
}

Node& GraphImpl::restore(const OpDef& op, std::shared_ptr<const void> attrs,
                         std::vector<Node::Input> inputs, std::vector<TensorType> outputs,
                         const NodeOptions& options) {
  static const NoAttrs none;
  const AttrsRef attrs_ref(&op.attrs(), attrs ? attrs.get() : &none);
  InferContext context(op, attrs_ref);
  for (const Node::Input& input : inputs)
    context.inputs.push_back(&input.node->outputs[static_cast<std::size_t>(input.output)]);
  check_sizes(*sizes_, op, attrs_ref);
  context.add_outputs();
  // Sizes that are not known here are checked when the graph runs.
  const auto may_be = [](std::int64_t stored, std::int64_t inferred) {
    return !dim::is_size(inferred) || dim::may_equal(stored, inferred);
  };
  const auto agrees = [&](const TensorType& stored, const TensorType& inferred) {
    return stored.dtype == inferred.dtype && stored.shape.known() == inferred.shape.known() &&
           std::equal(stored.shape.words().begin(), stored.shape.words().end(),
                      inferred.shape.words().begin(), inferred.shape.words().end(), may_be);
  };
  if (!std::equal(outputs.begin(), outputs.end(), context.outputs.begin(), context.outputs.end(),
                  agrees))
    fail<InvalidArgumentError>("[{}] the stored outputs do not match those of the operation",
                               op.name);
  Node& node = append(op, options.name, options);
  node.attrs = std::move(attrs);
  node.inputs = std::move(inputs);
  node.outputs = std::move(outputs);
  return node;
}

Node& GraphImpl::constant(const Tensor& value, const NodeOptions& options) {
  TensorImpl& impl = impl_of(value);
  const auto [at, added] = constants_.try_emplace(&impl, nullptr);
  if (added) {
    at->second = &add(kConst, SpecAttrs{impl.dtype, impl.shape}, {}, options);
    at->second->value = value;
  }
  return *at->second;
}

Tensor GraphImpl::elements_of(const Node& node, DeviceImpl& device) const {
  if (node.value.defined()) return copy_to_device(node.value, device);
  const auto [dtype, shape] = node.outputs[0];
  // Smaller ones are not worth a lock.
  constexpr std::size_t kSmall = 4096;
  DeviceImpl& host = DeviceManager::get().host();
  if (&device != &host || node.literal.size() <= kSmall)
    return from_host(device, shape, dtype, node.literal.data());
  const std::lock_guard lock(literals_mutex_);
  Tensor& elements = literals_[&node];
  if (!elements.defined()) elements = from_host(host, shape, dtype, node.literal.data());
  return elements;
}

Node& GraphImpl::handle(RefPtr<Resource> resource) {
  const auto [at, added] = handles_.try_emplace(resource->identity(), nullptr);
  if (added) {
    const TensorType& spec = resource->spec();
    const DeviceImpl& device = resource->device();
    const std::string& name = resource->name();
    at->second = &add(kVarHandle, SpecAttrs{spec.dtype, spec.shape}, {},
                      {.requested = &device.name(),
                       .requested_text = device.full_name(),
                       .name = name.empty() ? std::string_view("Variable") : name});
    at->second->resource = std::move(resource);
  }
  return *at->second;
}

Node& GraphImpl::variable(const TensorType& spec, const NodeOptions& options) {
  return add(kVarHandle, SpecAttrs{spec.dtype, spec.shape}, {}, options);
}

Node& GraphImpl::group(std::span<Node* const> inputs, const NodeOptions& options) {
  Node& node = add(kNoOp, NoAttrs(), {}, options);
  node.control_inputs.assign(inputs.begin(), inputs.end());
  return node;
}

Node& GraphImpl::control(const OpDef& op, std::shared_ptr<const ControlFlow> flow,
                         std::vector<Node::Input> inputs, std::vector<TensorType> outputs,
                         const NodeOptions& options) {
  Node& node = append(op, options.name.empty() ? op.name : options.name, options);
  node.control = std::move(flow);
  node.inputs = std::move(inputs);
  node.outputs = std::move(outputs);
  return node;
}

Node::Input GraphImpl::input_of(const Tensor& tensor) {
  const Tensor here = local(tensor);
  if (!is_symbolic(here)) return {&constant(here), 0};
  const Symbol& symbol = symbol_of(here);
  return {symbol.node, symbol.output};
}

Tensor GraphImpl::local(const Tensor& tensor) {
  const TensorImpl& impl = impl_of(tensor);
  if (impl.symbol ? symbol_of(tensor).node->graph == this : !outer_ || !impl.grad) return tensor;
  if (!outer_) {
    const Symbol& symbol = symbol_of(tensor);
    fail<InvalidArgumentError>("[Graph] tensor '{}:{}' belongs to another graph", symbol.node->name,
                               symbol.output);
  }
  return capture(outer_->local(tensor));
}

Tensor GraphImpl::capture(const Tensor& outside) {
  const Node::Input from = outer_->input_of(outside);
  if (from.node->op == &kVarHandle) {
    for (const auto& node : nodes_)
      if (node->outside == from.node) return tensor(*node);
    Node& handle = variable(from.node->outputs[0], {.name = from.node->name});
    handle.outside = from.node;
    return tensor(handle);
  }
  const GradEdge& edge = impl_of(outside).grad;
  const auto known = std::find_if(captures_.begin(), captures_.end(), [&](const Capture& capture) {
    const GradEdge& other = impl_of(capture.outside).grad;
    return outer_->input_of(capture.outside) == from && other.node == edge.node &&
           other.index == edge.index;
  });
  const Capture capture = known != captures_.end() ? *known : captures_.emplace_back([&] {
    const TensorType& spec = from.node->outputs[static_cast<std::size_t>(from.output)];
    Capture made{.outside = outside};
    made.inside = &add(kPlaceholder, SpecAttrs{spec.dtype, spec.shape}, {}, {.name = "captured"});
    // A leaf ends the backward pass, so the body can use it as it is. Other edges get a new leaf
    // here: the enclosing graph backpropagates further.
    const bool is_leaf = edge && !static_cast<const GradNode&>(*edge.node).op;
    if (is_floating(spec.dtype)) made.edge = is_leaf ? edge : GradEdge{make_ref<Leaf>(nullptr), 0};
    return made;
  }());
  Tensor inside = tensor(*capture.inside);
  impl_of(inside).grad = capture.edge;
  return inside;
}

Tensor GraphImpl::tensor(Node& node, int output) {
  RefPtr<TensorImpl> impl(new TensorImpl);
  static_cast<TensorType&>(*impl) = node.outputs.at(static_cast<std::size_t>(output));
  impl->symbol = make_ref<Symbol>(RefPtr<RefCounted>(this), node, output);
  return Tensor(std::move(impl));
}

Node* GraphImpl::find(std::string_view name) const {
  const auto at = by_name_.find(std::string(name));
  return at == by_name_.end() ? nullptr : at->second;
}

bool GraphImpl::taken(const std::string& name) const {
  return by_name_.count(name) > 0 || scope_names_.count(name) > 0;
}

std::string GraphImpl::scoped(std::string_view name) const {
  return name_scopes_.empty() ? std::string(name) : name_scopes_.back() + std::string(name);
}

std::string GraphImpl::unique_name(std::string name) {
  if (!taken(name)) return name;
  int& suffix = next_suffix_[name];
  std::string numbered;
  do numbered = fmt::format("{}_{}", name, ++suffix);
  while (taken(numbered));
  return numbered;
}

namespace {

// TensorFlow's rules. "name:0" is an output of the operation "name".
void expect_name(std::string_view name, const char* more_first, const char* of) {
  const auto letter = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.';
  };
  const auto other = [](char c, const char* more) { return c != 0 && std::strchr(more, c); };
  const bool valid = !name.empty() && (letter(name[0]) || other(name[0], more_first)) &&
                     std::all_of(name.begin(), name.end(),
                                 [&](char c) { return letter(c) || other(c, "_/>-\\"); });
  if (!valid)
    fail<InvalidArgumentError>(
        "[Graph] '{}' is not a valid name of {}: expected letters, digits and the characters "
        "._/>-\\ that begin with a letter, a digit or '.'",
        name, of);
}

}  // namespace

void expect_operation_name(std::string_view name) { expect_name(name, "", "an operation"); }

void GraphImpl::rename(Node& node, std::string_view wanted) {
  expect_operation_name(wanted);
  by_name_.erase(node.name);
  node.name = unique_name(scoped(wanted));
  by_name_.emplace(node.name, &node);
}

void GraphImpl::rename_under(Node& node, const Node& parent, std::string_view suffix) {
  by_name_.erase(node.name);
  node.name = unique_name(fmt::format("{}/{}", parent.name, suffix));
  by_name_.emplace(node.name, &node);
}

void GraphImpl::open_name_scope(std::string_view name) {
  if (name.empty()) {  // the root
    name_scopes_.emplace_back();
    return;
  }
  expect_name(name, name_scopes_.empty() || name_scopes_.back().empty() ? "" : "_/>-\\", "a scope");
  const std::string unique = unique_name(scoped(name));
  scope_names_.insert(unique);
  name_scopes_.push_back(unique + "/");
}

void GraphImpl::close_name_scope() { name_scopes_.pop_back(); }

}  // namespace tandem
