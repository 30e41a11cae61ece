#include "function/serialize.h"

#include <zlib.h>

#include <limits>
#include <unordered_map>

#include "core/status.h"
#include "function/serialize_sizes.h"
#include "graph/control_flow.h"
#include "graph/structural_ops.h"

namespace tandem {
namespace {

constexpr const char* kFormat = "tandem.graph";
constexpr std::uint32_t kVersion = 2;

std::uint32_t checksum(std::string_view bytes) {
  return static_cast<std::uint32_t>(
      crc32_z(0, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

void write_device(const DeviceName& name, proto::Device& to) {
  if (name.job) to.set_job(*name.job);
  if (name.replica) to.set_replica(*name.replica);
  if (name.task) to.set_task(*name.task);
  if (name.type) to.set_type(*name.type);
  if (name.id) to.set_id(*name.id);
}

// The handle of a variable in the graph of `node`.
const Node& handle_beside(const Node& node, const Node& handle) {
  for (const auto& other : node.graph->nodes())
    if (other->op == &kVarHandle && &outermost(*other) == &outermost(handle)) return *other;
  return handle;
}

class GraphWriter {
 public:
  GraphWriter(const GraphImpl& graph, const Selection& selection)
      : graph_(graph), selection_(selection), ids_(selection.numbers()) {}

  void write(proto::Graph& to) const {
    for (const Node* node : selection_.nodes) write_node(*node, *to.add_nodes());
    write_random(graph_, graph_.last_random.get(), to);
  }

 private:
  // Nodes of bodies are all written.
  bool writes(const Node& node) const { return node.graph != &graph_ || ids_.count(&node) > 0; }
  std::uint32_t id(const Node* node) const {
    const auto at = ids_.find(node);
    return at == ids_.end() ? static_cast<std::uint32_t>(node->id) : at->second;
  }

  // Whether the node is a variable that is written as a constant.
  bool frozen(const Node& node) const { return selection_.freezes && node.op == &kVarHandle; }

  // A read of a constant becomes an identity, so that its name still exists. In a body the variable
  // is unused, because reads have become inputs.
  std::string written_op(const Node& node) const {
    const OpDef* op = node.op;
    if (frozen(node)) op = selection_.values.count(&node) ? &kConst : &kPlaceholder;
    if (selection_.freezes && op == &kReadVariable) return "Identity";
    return std::string(op->name);
  }

  // The last control flow that is written, of `random` and those before it.
  const Node* last_written(const GraphImpl& graph, const RandomSequence* random) const {
    while (random) {
      const Node* owner = owner_of(graph, random);
      if (writes(*owner)) return owner;
      random = owner->random_before.get();
    }
    return nullptr;
  }

  void write_random(const GraphImpl& graph, const RandomSequence* random, proto::Graph& to) const {
    if (const Node* last = last_written(graph, random)) to.set_last_random(id(last));
  }

  void write_body(const GraphImpl& graph, const RandomSequence* random, proto::Graph& to) const {
    for (const auto& node : graph.nodes()) write_node(*node, *to.add_nodes());
    write_random(graph, random, to);
  }

  void write_attributes(const Node& node, proto::Node& to) const {
    const AttrsType& type = node.op->attrs();
    std::shared_ptr<const void> attrs = node.attrs;
    if (!attrs) return;
    if (node.counted) {
      if (const auto formula = node.counted->formula()) {
        proto::Formula& rate = *to.mutable_rate();
        rate.set_kind(std::string(formula->kind->name));
        rate.mutable_integers()->Add(formula->integers.begin(), formula->integers.end());
        rate.mutable_reals()->Add(formula->reals.begin(), formula->reals.end());
      }
      attrs = type.copy(attrs.get());
      node.counted->update(const_cast<void*>(attrs.get()), 0);
      to.set_counter(id(&handle_beside(node, *node.counted->counter)));
    }
    write_fields(type, attrs.get(), to);
  }

  void write_fields(const AttrsType& type, const void* attrs, proto::Node& to) const {
    const auto stored = with_sizes(
        type, attrs, [this](std::int64_t size) { return stored_size(*graph_.sizes(), size); });
    tandem::write_attributes(type.save(stored.get()), *to.mutable_attributes());
  }

  void write_output(TensorType spec, proto::Node& to) const {
    for (int axis = 0; axis < spec.shape.rank(); ++axis)
      spec.shape.set(axis, stored_size(*graph_.sizes(), spec.shape.word(axis)));
    write_spec(spec, *to.add_outputs());
  }

  void write_input(const Node::Input& input, proto::Output& to) const {
    to.set_node(id(input.node));
    to.set_output(static_cast<std::uint32_t>(input.output));
  }

  void write_control(const Node& node, proto::ControlFlow& to) const {
    const ControlFlow& flow = *node.control;
    if (flow.source)
      fail<UnimplementedError>(
          "[Graph] node '{}' ({}) goes over a dataset of this program, which cannot be serialised",
          node.name, node.op->name);
    to.set_maximum_iterations(flow.maximum_iterations);
    if (flow.forward) to.set_forward(id(flow.forward));
    to.set_uses_random(flow.random != nullptr);
    to.set_offset_before(flow.offset_before);
    for (std::size_t i = 0; i < flow.bodies.size(); ++i) {
      const Body& body = flow.bodies[i];
      proto::Body& written = *to.add_bodies();
      if (!flow.forward) {
        const RandomSequence::BodyCount counted =
            flow.random ? flow.random->bodies()[i] : RandomSequence::BodyCount();
        proto::Graph& graph = *written.mutable_graph();
        write_body(*body.graph, counted.last.get(), graph);
        graph.set_random_count(counted.count);
      }
      for (const Body::FrameFeed& feed : body.feeds) {
        proto::Body::Feed& made = *written.add_feeds();
        made.set_node(id(feed.tensor.node));
        made.set_from(static_cast<std::uint32_t>(feed.from));
      }
      for (const Node::Input& fetch : body.fetches) write_input(fetch, *written.add_fetches());
    }
  }

  // A placeholder for the node.
  void write_fed(const Node& node, proto::Node& to) const {
    const TensorType& spec = node.outputs.at(0);
    to.set_name(node.name);
    to.set_op(std::string(kPlaceholder.name));
    const SpecAttrs attrs{spec.dtype, spec.shape};
    write_fields(attrs_type<SpecAttrs>(), &attrs, to);
    write_output(spec, to);
    write_device(node.requested, *to.mutable_requested());
    to.set_requested_text(node.requested_text);
  }

  void write_node(const Node& node, proto::Node& to) const {
    if (selection_.fed.count(&node) > 0) return write_fed(node, to);
    if (node.control) write_control(node, *to.mutable_control());
    if (node.outside && !frozen(node)) to.set_outside(id(node.outside));
    if (const Node* before = last_written(*node.graph, node.random_before.get()))
      to.set_random_before(id(before));
    if (node.attr_update && !node.op->exchange_key && !selection_.sends_attributes)
      fail<UnimplementedError>(
          "[Graph] node '{}' has attributes that this program computes for every run, which cannot "
          "be serialised",
          node.name);
    to.set_name(node.name);
    to.set_op(written_op(node));
    write_attributes(node, to);
    for (const Node::Input& input : node.inputs) write_input(input, *to.add_inputs());
    for (const Node* control : node.control_inputs)
      if (writes(*control)) to.add_control_inputs(id(control));
    for (const Node* other : node.colocated_with)
      if (writes(*other)) to.add_colocated_with(id(other));
    for (const TensorType& spec : node.outputs) write_output(spec, to);
    // A captured variable was on a device of this program. The constant is placed with its users.
    const bool anywhere = frozen(node) && node.resource;
    write_device(anywhere ? DeviceName() : node.requested, *to.mutable_requested());
    if (!anywhere) to.set_requested_text(node.requested_text);
    if (node.initializer && !frozen(node)) to.set_initializer(id(node.initializer));
    const auto of_variable = selection_.values.find(&node);
    const Tensor& value = of_variable == selection_.values.end() ? node.value : of_variable->second;
    if (value.defined()) {
      std::string& elements = *to.mutable_elements();
      elements.resize(impl_of(value).bytes());
      to_host(value, elements.data());
    } else {
      to.set_elements(node.literal.data(), node.literal.size());
    }
  }

  const GraphImpl& graph_;
  const Selection& selection_;
  const std::unordered_map<const Node*, std::uint32_t> ids_;
};

}  // namespace

void write_spec(const TensorType& spec, proto::TensorSpec& to) {
  to.set_dtype(static_cast<std::uint32_t>(spec.dtype));
  to.set_known(spec.shape.known());
  for (std::int64_t size : spec.shape.words()) to.add_sizes(size);
}

void write_attributes(const AttrFields& fields, AttributeMessages& to) {
  for (const AttrField& field : fields) {
    proto::Attribute& attribute = *to.Add();
    attribute.set_name(field.name);
    attribute.mutable_integers()->Add(field.integers.begin(), field.integers.end());
    attribute.mutable_reals()->Add(field.reals.begin(), field.reals.end());
    attribute.set_known_shape(field.known_shape);
  }
}

proto::Function serialize_function(const GraphImpl& graph, const Selection& selection,
                                   std::span<const Node::Input> feeds,
                                   std::span<const Node::Input> fetches) {
  const auto numbers = selection.numbers();
  proto::Function message;
  message.set_graph(serialize_nodes(graph, selection));
  for (const Node::Input& feed : feeds) message.add_feeds(numbers.at(feed.node));
  for (const Node::Input& fetch : fetches) {
    proto::Output& output = *message.add_fetches();
    output.set_node(numbers.at(fetch.node));
    output.set_output(static_cast<std::uint32_t>(fetch.output));
  }
  return message;
}

std::string serialize_nodes(const GraphImpl& graph, const Selection& selection) {
  proto::Graph message;
  GraphWriter(graph, selection).write(message);
  write_sizes(*graph.sizes(), *message.mutable_sizes());
  message.set_random_count(graph.random_count);
  // The frame adds a few bytes.
  constexpr std::size_t kMaxBytes = std::numeric_limits<int>::max() - 1024;
  if (message.ByteSizeLong() > kMaxBytes)
    fail<UnimplementedError>("[Graph] the graph takes {} bytes; at most {} can be serialised",
                             message.ByteSizeLong(), kMaxBytes);
  return message.SerializeAsString();
}

std::string serialize_nodes(const GraphImpl& graph) {
  return serialize_nodes(graph, select_nodes(graph, {}, false));
}

std::string serialize_graph(const GraphImpl& graph, const Selection& selection) {
  proto::Frame frame;
  frame.set_format(kFormat);
  frame.set_version(kVersion);
  frame.set_graph(serialize_nodes(graph, selection));
  frame.set_checksum(checksum(frame.graph()));
  return frame.SerializeAsString();
}

RefPtr<GraphImpl> deserialize_graph(std::string_view bytes, LargeConstants large) {
  proto::Frame frame;
  const auto split = split_message(bytes, proto::Frame::kGraphFieldNumber);
  const bool parsed = split && frame.ParseFromString(split->rest);
  if (parsed && !bytes.empty() && frame.format() != kFormat)
    fail<DataLossError>("[Graph] the {} bytes are not a serialised graph", bytes.size());
  if (!parsed || !frame.has_version() || !frame.has_checksum())
    fail<DataLossError>(
        "[Graph] the {} bytes are not a whole serialised graph: truncated or corrupt",
        bytes.size());
  if (frame.version() != kVersion)
    fail<InvalidArgumentError>("[Graph] expected a graph of format version {}, got {}", kVersion,
                               frame.version());
  const std::string_view graph = split->contents.empty() ? "" : split->contents.back();
  if (checksum(graph) != frame.checksum())
    fail<DataLossError>("[Graph] the checksum does not match: the bytes are corrupt");
  return deserialize_nodes(graph, large);
}

}  // namespace tandem
