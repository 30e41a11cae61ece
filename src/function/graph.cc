// The API of graphs, and scopes that affect the nodes that are added.
#include "tandem/graph.h"

#include <charconv>

#include "core/atomic_file.h"
#include "core/mapped_file.h"
#include "core/nearest.h"
#include "core/status.h"
#include "function/fetch.h"
#include "function/serialize.h"
#include "graph/control_flow.h"
#include "graph/structural_ops.h"
#include "runtime/generator.h"
#include "runtime/placement.h"
#include "runtime/variable_impl.h"

namespace tandem {

Tensor tensor_of(const Graph& graph, const Fetch& fetch) {
  if (const auto* name = std::get_if<std::string>(&fetch.what())) return graph.tensor(*name);
  if (const auto* variable = std::get_if<Variable>(&fetch.what()))
    return variable->impl().storage().value(0);
  return std::get<Tensor>(fetch.what());
}

namespace {

Graph::Operation handle_of(Node& node) { return {RefPtr<RefCounted>(node.graph), node}; }

// A hint with the most similar name.
std::string did_you_mean(const GraphImpl& graph, std::string_view name) {
  std::vector<std::string_view> names;
  for (const auto& node : graph.nodes()) names.push_back(node->name);
  const std::string_view found = nearest(name, names);
  return found.empty() ? std::string() : fmt::format(" Did you mean '{}'?", found);
}

const Node& kept_node(const Graph& graph, const Fetch& output) {
  const Node* node = nullptr;
  if (const auto* operation = std::get_if<Graph::Operation>(&output.what())) {
    node = &operation->node();
  } else {
    const Tensor tensor = tensor_of(graph, output);
    if (is_symbolic(tensor)) node = symbol_of(tensor).node;
  }
  if (!node || node->graph != &graph.impl())
    fail<InvalidArgumentError>("[Graph] an output to be serialised is not of this graph{}",
                               node ? fmt::format(": '{}'", node->name) : std::string());
  return *node;
}

// Reads the values of the variables that `selection` freezes.
void read_variables(GraphImpl& graph, Session* session, Selection& selection) {
  std::vector<const Node*> of_session;
  std::vector<Fetch> fetches;
  for (const Node* handle : selection.variables()) {
    if (handle->resource) {
      selection.values.emplace(handle, handle->resource->value());
      continue;
    }
    if (!session)
      fail<InvalidArgumentError>(
          "[Graph] the values of variable '{}' belong to a session: give it as "
          "SerializeOptions::session",
          handle->name);
    of_session.push_back(handle);
    fetches.emplace_back(graph.tensor(*graph.find(handle->name)));
  }
  if (of_session.empty()) return;
  const std::vector<Tensor> values = session->run(fetches);
  for (std::size_t i = 0; i < values.size(); ++i)
    selection.values.emplace(of_session[i], values[i]);
}

}  // namespace

// --- operations ---

Node& Graph::Operation::node() const {
  if (!node_) throw FailedPreconditionError("[Graph] an undefined operation was used");
  return *node_;
}

const std::string& Graph::Operation::name() const { return node().name; }
std::string_view Graph::Operation::type() const { return node().op->name; }
const std::string& Graph::Operation::requested_device() const { return node().requested_text; }

std::vector<Tensor> Graph::Operation::inputs() const {
  std::vector<Tensor> tensors;
  for (const Node::Input& input : node().inputs)
    tensors.push_back(node().graph->tensor(*input.node, input.output));
  return tensors;
}

std::vector<Graph::Operation> Graph::Operation::control_inputs() const {
  std::vector<Operation> operations;
  for (Node* control : node().control_inputs) operations.push_back(handle_of(*control));
  return operations;
}

std::vector<Tensor> Graph::Operation::outputs() const {
  std::vector<Tensor> tensors;
  for (std::size_t i = 0; i < node().outputs.size(); ++i)
    tensors.push_back(node().graph->tensor(node(), static_cast<int>(i)));
  return tensors;
}

// --- graphs ---

Graph::Graph() {
  RefPtr<GraphImpl> impl = make_ref<GraphImpl>();
  impl->for_sessions = true;
  impl_ = impl;
}
Graph::Graph(RefPtr<GraphImpl> impl) : impl_(impl) {}

GraphImpl& Graph::impl() const { return static_cast<GraphImpl&>(*impl_); }

std::vector<Graph::Operation> Graph::operations() const {
  std::vector<Operation> operations;
  for (const auto& node : impl().nodes()) operations.push_back(handle_of(*node));
  return operations;
}

Graph::Operation Graph::operation(std::string_view name) const {
  if (Node* node = impl().find(name)) return handle_of(*node);
  fail<NotFoundError>("The name '{}' refers to an Operation not in the graph.{}", name,
                      did_you_mean(impl(), name));
}

Tensor Graph::tensor(std::string_view name) const {
  constexpr const char* kForm = "Tensor names must be of the form \"<op_name>:<output_index>\".";
  const std::size_t colon = name.rfind(':');
  if (colon == std::string_view::npos) {
    if (impl().find(name))
      fail<InvalidArgumentError>(
          "The name '{0}' refers to an Operation, not a Tensor. {1} Its first output is '{0}:0'; "
          "graph.operation(\"{0}\") is the operation, to be run for what it does.",
          name, kForm);
    fail<InvalidArgumentError>(
        "The name '{}' looks like an (invalid) Operation name, not a Tensor. {}{}", name, kForm,
        did_you_mean(impl(), name));
  }
  const std::string_view operation = name.substr(0, colon), digits = name.substr(colon + 1);
  int output = -1;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), output);
  if (error != std::errc() || end != digits.data() + digits.size() || output < 0)
    fail<InvalidArgumentError>(
        "The name '{}' looks a like a Tensor name, but is not a valid one. {}", name, kForm);
  Node* node = impl().find(operation);
  if (!node)
    fail<NotFoundError>(
        "The name '{}' refers to a Tensor which does not exist. The operation, '{}', does not "
        "exist in the graph.{}",
        name, operation, did_you_mean(impl(), operation));
  if (static_cast<std::size_t>(output) >= node->outputs.size())
    fail<NotFoundError>(
        "The name '{}' refers to a Tensor which does not exist. The operation, '{}', exists but "
        "only has {} outputs.",
        name, operation, node->outputs.size());
  return impl().tensor(*node, output);
}

Graph::Operation Graph::updates(std::string_view name, const std::function<void()>& body) {
  GraphImpl& graph = impl();
  const std::size_t before = graph.nodes().size();
  {
    std::optional<GraphScope> scope;
    if (context.graph != &graph) scope.emplace(*this);
    body();
  }
  std::vector<Node*> writers;
  for (std::size_t i = before; i < graph.nodes().size(); ++i) {
    Node& node = *graph.nodes()[i];
    if (has_effects(node) && (node.control || node.inputs[0].node->initializer != &node))
      writers.push_back(&node);
  }
  if (writers.empty())
    fail<InvalidArgumentError>("[Graph] '{}' was given no operation that writes a variable", name);
  return handle_of(graph.group(writers, {.name = name}));
}

Graph::Operation Graph::initializer(std::string_view name) {
  std::vector<Node*> initializers;
  for (const auto& node : impl().nodes())
    if (node->initializer) initializers.push_back(node->initializer);
  return handle_of(impl().group(initializers, {.name = name}));
}

std::string Graph::serialize() const { return serialize(SerializeOptions()); }

std::string Graph::serialize(const SerializeOptions& options) const {
  std::vector<const Node*> outputs;
  for (const Fetch& output : options.outputs) outputs.push_back(&kept_node(*this, output));
  Selection selection = select_nodes(impl(), outputs, options.freeze_variables);
  if (options.freeze_variables) read_variables(impl(), options.session, selection);
  return serialize_graph(impl(), selection);
}

Graph Graph::deserialize(std::string_view bytes) { return Graph(deserialize_graph(bytes)); }

void Graph::save(const std::string& path, const SerializeOptions& options) const {
  const std::string bytes = serialize(options);
  AtomicFile file(path, "Graph");
  file.write(bytes.data(), bytes.size());
  file.commit();
}

Graph Graph::load(const std::string& path) {
  const MappedFile file("Graph", path, "a serialised graph");
  const std::string_view bytes(reinterpret_cast<const char*>(file.data()), file.size());
  try {
    return Graph(deserialize_graph(bytes, LargeConstants::kTensors));
  } catch (const DataLossError& error) {
    throw DataLossError(fmt::format("[Graph] {}: {}", path, error.what()));
  } catch (const InvalidArgumentError& error) {
    throw InvalidArgumentError(fmt::format("[Graph] {}: {}", path, error.what()));
  }
}

// --- scopes ---

struct GraphScope::Saved {
  explicit Saved(GraphImpl& building_graph)
      : graph(&building_graph),
        scope(context.graph, graph.get()),
        generator({.seed = 0, .offset = graph->random_count}),
        generator_scope(context.generator, &generator) {
    generator.set_last_random(graph->last_random);
  }
  ~Saved() {
    graph->random_count = generator.state().offset;
    graph->last_random = generator.last_random();
  }

  RefPtr<GraphImpl> graph;
  Scoped<GraphImpl*> scope;
  Generator generator;
  Scoped<Generator*> generator_scope;
};

GraphScope::GraphScope(const Graph& graph) : saved_(std::make_unique<Saved>(graph.impl())) {}
GraphScope::~GraphScope() = default;

NameScope::NameScope(std::string_view name) {
  if (!context.graph) return;
  context.graph->open_name_scope(name);
  graph_ = RefPtr<RefCounted>(context.graph);
}

NameScope::~NameScope() {
  if (graph_) static_cast<GraphImpl&>(*graph_).close_name_scope();
}

struct ColocateWith::Saved {
  explicit Saved(const Tensor& tensor) : on(tensor) {
    if (!is_symbolic(tensor)) return;
    if (context.colocated_with) others = *context.colocated_with;
    others.push_back(symbol_of(tensor).node);
    context.colocated_with = &others;
  }

  Scoped<const PlacementFrame*> outer{context.placement, nullptr};
  OnDeviceOf on;
  std::vector<Node*> others;
  Scoped<const std::vector<Node*>*> previous{context.colocated_with, context.colocated_with};
};

ColocateWith::ColocateWith(const Tensor& tensor) : saved_(std::make_unique<Saved>(tensor)) {}
ColocateWith::~ColocateWith() = default;

Graph get_default_graph() {
  if (!context.graph)
    throw FailedPreconditionError("[get_default_graph] expected a GraphScope, got none");
  return Graph(RefPtr<GraphImpl>(context.graph));
}

Tensor placeholder(DType dtype, const Shape& shape, std::string_view name) {
  if (!context.graph)
    throw FailedPreconditionError("[placeholder] placeholders exist in a GraphScope only");
  if (!name.empty()) expect_operation_name(name);
  const Shape known = shape.known() ? shape : Shape::scalar();
  Node& node = context.graph->add(kPlaceholder, SpecAttrs{dtype, known}, {}, node_options(name));
  return context.graph->tensor(node);
}

}  // namespace tandem
