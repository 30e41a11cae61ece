// Reads a graph. Bytes are untrusted, so everything is checked.
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <tuple>

#include "core/status.h"
#include "device/device_manager.h"
#include "function/body_random.h"
#include "function/serialize.h"
#include "function/serialize_sizes.h"
#include "graph/control_flow.h"
#include "graph/structural_ops.h"
#include "runtime/trace.h"

namespace tandem {
namespace {

// A graph whose constants' elements are where they were serialised.
struct SerializedGraph {
  proto::Graph message;
  std::vector<std::string_view> elements;  // of each node

  // Returns false if the bytes are malformed.
  bool parse(std::string_view bytes) {
    const auto graph = split_message(bytes, proto::Graph::kNodesFieldNumber);
    if (!graph || !message.ParseFromString(graph->rest)) return false;
    for (const std::string_view node : graph->contents) {
      const auto split = split_message(node, proto::Node::kElementsFieldNumber);
      if (!split || !message.add_nodes()->ParseFromString(split->rest)) return false;
      elements.push_back(split->contents.empty() ? std::string_view() : split->contents.back());
    }
    return true;
  }
};

class GraphReader {
 public:
  GraphReader(const SerializedGraph& serialized, LargeConstants large)
      : message_(serialized.message),
        elements_(&serialized.elements),
        large_(large),
        graph_(make_ref<GraphImpl>()),
        sizes_(std::make_shared<StoredSizes>(message_.sizes(), *graph_->sizes())) {}
  // The reader of a body.
  GraphReader(const proto::Graph& message, const GraphReader& outer)
      : message_(message), graph_(make_ref<GraphImpl>(outer.graph_.get())), sizes_(outer.sizes_) {}

  RefPtr<GraphImpl> run() {
    graph_->for_sessions = true;
    read_nodes();
    return std::move(graph_);
  }

  RefPtr<GraphImpl> run_as_body() {
    read_nodes();
    graph_->close();
    return std::move(graph_);
  }

 private:
  void read_nodes() {
    if (message_.nodes_size() > std::numeric_limits<int>::max() / 2)
      fail<InvalidArgumentError>("[Graph] too many nodes");
    for (const proto::Node& node : message_.nodes()) {
      name_ = node.name();
      read(node);
    }
    for (int i = 0; i < message_.nodes_size(); ++i) link(*graph_->nodes()[i], message_.nodes(i));
    graph_->random_count = message_.random_count();
    if (message_.has_last_random())
      graph_->last_random = random_of(earlier(message_.last_random()));
  }

  template <class... Args>
  [[noreturn]] void refuse(fmt::format_string<Args...> format, Args&&... args) const {
    fail<InvalidArgumentError>("[Graph] node '{}': {}", name_,
                               fmt::format(format, std::forward<Args>(args)...));
  }

  // The kind of a control flow node, which its operation determines.
  std::optional<ControlFlow::Kind> kind_of(const proto::Node& node) const {
    using Kind = ControlFlow::Kind;
    for (Kind kind : {Kind::kCond, Kind::kWhile, Kind::kCondGradient, Kind::kWhileGradient})
      if (control_flow_op(kind).name == node.op()) return kind;
    return std::nullopt;
  }

  const OpDef& op_of(const proto::Node& node) const {
    for (const OpDef* op : structural_ops())
      if (op->name == node.op()) return *op;
    if (const OpDef* op = find_op(node.op())) return *op;
    refuse(
        "unknown operation '{}': register an operation of your own by custom_operation() before "
        "its graphs are loaded",
        node.op());
  }

  Node& earlier(std::uint32_t id) const {
    if (id >= graph_->nodes().size()) refuse("refers to node {}, which is not before it", id);
    return *graph_->nodes()[id];
  }

  std::vector<Node::Input> inputs_of(const proto::Node& node) const {
    std::vector<Node::Input> inputs;
    for (const proto::Output& input : node.inputs()) {
      Node& from = earlier(input.node());
      if (input.output() >= from.outputs.size())
        refuse("uses output {} of '{}', which has {} outputs", input.output(), from.name,
               from.outputs.size());
      inputs.push_back({&from, static_cast<int>(input.output())});
    }
    return inputs;
  }

  std::shared_ptr<const void> attrs_of(const OpDef& op, const proto::Node& node) const {
    const auto stored = op.attrs().load(read_attributes(node.attributes()));
    return with_sizes(op.attrs(), stored.get(), *sizes_);
  }

  TensorType spec_of(const proto::TensorSpec& spec) const {
    if (spec.dtype() > static_cast<std::uint32_t>(last_value(DType())))
      refuse("unknown dtype {}", spec.dtype());
    if (spec.sizes_size() > kMaxRank) refuse("has an output of {} axes", spec.sizes_size());
    TensorType made{static_cast<DType>(spec.dtype()), Shape()};
    if (!spec.known()) return made;
    Dims sizes;
    for (const std::int64_t stored : spec.sizes()) {
      sizes.push_back((*sizes_)(stored));
      if (!dim::is_size(sizes[sizes.size() - 1])) refuse("has an output of size {}", stored);
    }
    made.shape = Shape(sizes);
    if (made.shape.too_large()) refuse("has an output that is too large");
    return made;
  }

  static DeviceName device_of(const proto::Device& device) {
    DeviceName name;
    if (device.has_job()) name.job = device.job();
    if (device.has_replica()) name.replica = device.replica();
    if (device.has_task()) name.task = device.task();
    if (device.has_type()) name.type = device.type();
    if (device.has_id()) name.id = device.id();
    return name;
  }

  void read(const proto::Node& node) {
    if (node.name().empty() || graph_->find(node.name()))
      refuse("the name is empty or already used");
    std::vector<TensorType> outputs;
    for (const proto::TensorSpec& spec : node.outputs()) outputs.push_back(spec_of(spec));
    const DeviceName requested = device_of(node.requested());
    const NodeOptions options{
        .requested = &requested, .requested_text = node.requested_text(), .name = node.name()};
    if (const auto kind = kind_of(node)) {
      finish(read_control(*kind, node, std::move(outputs), options), node);
      return;
    }
    const OpDef& op = op_of(node);
    Node* made = nullptr;
    try {
      made = &graph_->restore(op, attrs_of(op, node), inputs_of(node), std::move(outputs), options);
    } catch (const InvalidArgumentError& error) {
      refuse("{}", error.what());
    }
    finish(*made, node);
  }

  void finish(Node& made, const proto::Node& node) {
    check_structure(made);
    for (std::uint32_t control : node.control_inputs())
      made.control_inputs.push_back(&operation_before(control, made));
    for (std::uint32_t other : node.colocated_with())
      made.colocated_with.push_back(&operation_before(other, made));
    if (made.op == &kConst) read_elements(node, made);
    if (made.op == &kVarHandle && graph_->outer()) read_outside(node, made);
    if (node.has_random_before())
      made.random_before = random_of(operation_before(node.random_before(), made));
    if (!made.op->exchange_key) return;
    const auto attrs = made.op->attrs().copy(made.attrs.get());
    const RandomKey traced = made.op->exchange_key(const_cast<void*>(attrs.get()), {});
    made.attr_update = key_update(*made.op, traced, made.random_before);
  }

  // A variable of a body is a variable of the enclosing graph.
  void read_outside(const proto::Node& node, Node& made) const {
    const auto& around = graph_->outer()->nodes();
    if (!node.has_outside() || node.outside() >= around.size() ||
        around[node.outside()]->op != &kVarHandle || !same(*around[node.outside()], made))
      refuse("is not a variable of the enclosing graph");
    made.outside = around[node.outside()].get();
  }
  static bool same(const Node& a, const Node& b) {
    return a.outputs[0].dtype == b.outputs[0].dtype && a.outputs[0].shape == b.outputs[0].shape;
  }

  std::shared_ptr<RandomSequence> random_of(const Node& node) const {
    if (!node.control || !node.control->random || node.control->forward)
      refuse("'{}' is not control flow that uses random numbers", node.name);
    return node.control->random;
  }

  Node& operation_before(std::uint32_t id, const Node& node) const {
    if (id >= static_cast<std::uint32_t>(node.id)) refuse("refers to node {}, not before it", id);
    return earlier(id);
  }

  // The memory of variables may only be an input of reads and updates, and updates may only write
  // such memory.
  void check_structure(const Node& node) const {
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      const bool memory = node.inputs[i].node->op == &kVarHandle;
      const bool reads = node.op == &kReadVariable;
      if (memory != (node.mutates(i) || reads))
        refuse("input {} {} the memory of a variable", i, memory ? "cannot be" : "has to be");
    }
    if (node.op == &kVarHandle && !node.outputs[0].shape.fully_defined())
      refuse("a variable of shape {}", node.outputs[0].shape.to_string());
  }

  void read_elements(const proto::Node& node, Node& made) const {
    constexpr std::size_t kLarge = 4096;
    const std::string_view elements =
        elements_ ? (*elements_)[static_cast<std::size_t>(made.id)] : node.elements();
    const TensorType& spec = made.outputs[0];
    if (!spec.shape.fully_defined() ||
        elements.size() !=
            static_cast<std::size_t>(spec.shape.num_elements()) * size_of(spec.dtype))
      refuse("{} bytes of elements for shape {} and dtype {}", elements.size(),
             spec.shape.to_string(), name_of(spec.dtype));
    if (large_ == LargeConstants::kTensors && elements.size() > kLarge) {
      DeviceImpl& host = DeviceManager::get().host();
      made.value = from_host(host, spec.shape, spec.dtype, elements.data());
      return;
    }
    const auto* bytes = reinterpret_cast<const std::byte*>(elements.data());
    made.literal.assign(bytes, bytes + elements.size());
  }

  // Links that may refer to any node of the graph.
  void link(Node& made, const proto::Node& node) {
    name_ = node.name();
    if (node.has_initializer()) {
      Node& initializer = earlier(node.initializer());
      if (initializer.op != &kAssignVariable || initializer.inputs[0].node != &made)
        refuse("'{}' does not assign to it", initializer.name);
      made.initializer = &initializer;
    }
    if (!node.has_counter()) return;
    // Updates of one optimizer step share the update of attributes, as in the original graph.
    auto& known =
        counted_[{made.op, node.counter(), node.has_rate(), node.rate().SerializeAsString()}];
    if (known) {
      made.counted = known;
      return;
    }
    auto counted = std::make_shared<CountedAttrUpdate>();
    counted->counter = &earlier(node.counter());
    const Node& counter = *counted->counter;
    if (counter.op != &kVarHandle || counter.outputs[0].dtype != int64 ||
        counter.outputs[0].shape.rank() != 0 || !made.attrs)
      refuse("'{}' is not a step counter", counter.name);
    std::optional<RateFormula> formula;
    if (node.has_rate()) formula = formula_of(node.rate());
    counted->formula = [formula] { return formula; };
    counted->update = [type = &made.op->attrs(), formula, step = AttrField{.name = "step"},
                       rate = AttrField{.name = "learning_rate"}](void* attrs,
                                                                  std::int64_t count) mutable {
      step.integers = {count + 1};
      type->set(attrs, step);
      if (!formula) return;
      rate.reals = {(*formula)(count)};
      type->set(attrs, rate);
    };
    made.counted = known = std::move(counted);
  }

  RateFormula formula_of(const proto::Formula& stored) const {
    RateFormula formula{.kind = find_rate_formula(stored.kind()),
                        .integers = {stored.integers().begin(), stored.integers().end()},
                        .reals = {stored.reals().begin(), stored.reals().end()}};
    if (!formula.kind) refuse("unknown kind of learning rate '{}'", stored.kind());
    formula.kind->check(formula);
    return formula;
  }

  // --- control flow ---

  Node& read_control(ControlFlow::Kind kind, const proto::Node& node,
                     std::vector<TensorType> outputs, const NodeOptions& options) {
    using Kind = ControlFlow::Kind;
    const bool is_gradient = kind == Kind::kCondGradient || kind == Kind::kWhileGradient;
    const proto::ControlFlow& stored = node.control();
    std::vector<Node::Input> inputs = inputs_of(node);
    auto flow = std::make_shared<ControlFlow>();
    flow->kind = kind;
    flow->maximum_iterations = stored.maximum_iterations();
    flow->offset_before = stored.offset_before();
    if (flow->loops()) flow->carried = outputs.size();
    if (is_gradient) flow->forward = &forward_of(kind, stored);
    if (kind == Kind::kWhileGradient) flow->elements = flow->forward->control->carried;
    for (const Node::Input& input : inputs) flow->writes.push_back(input.node->op == &kVarHandle);

    read_bodies(stored, *flow);
    if (is_gradient)
      flow->random = flow->forward->control->random;
    else if (stored.uses_random())
      flow->random = random_of_bodies(node, *flow);
    if (!is_gradient) {
      for (Body& body : flow->bodies) find_variables(body, inputs);
      flow->effects = find_effects(*flow);
    }
    check_control(*flow, inputs, outputs);
    return graph_->control(control_flow_op(kind), std::move(flow), std::move(inputs),
                           std::move(outputs), options);
  }

  Node& forward_of(ControlFlow::Kind kind, const proto::ControlFlow& stored) const {
    const auto expected = kind == ControlFlow::Kind::kCondGradient ? ControlFlow::Kind::kCond
                                                                   : ControlFlow::Kind::kWhile;
    if (!stored.has_forward()) refuse("is a gradient without a forward node");
    Node& forward = earlier(stored.forward());
    if (!forward.control || forward.control->kind != expected)
      refuse("cannot be the gradient of '{}'", forward.name);
    return forward;
  }

  void read_bodies(const proto::ControlFlow& stored, ControlFlow& flow) {
    const bool is_gradient = flow.forward != nullptr;
    if (stored.bodies_size() != (flow.kind == ControlFlow::Kind::kWhileGradient ? 1 : 2))
      refuse("has {} bodies", stored.bodies_size());
    for (int i = 0; i < stored.bodies_size(); ++i) {
      const proto::Body& from = stored.bodies(i);
      Body& body = flow.bodies.emplace_back();
      body.updates = !is_gradient;
      if (is_gradient) {
        const auto& forward = flow.forward->control->bodies;
        body.graph = forward[flow.loops() ? 1 : static_cast<std::size_t>(i)].graph;
      } else {
        body.graph = GraphReader(from.graph(), *this).run_as_body();
      }
      const auto& nodes = body.graph->nodes();
      for (const proto::Body::Feed& feed : from.feeds()) {
        if (feed.node() >= nodes.size() || nodes[feed.node()]->op != &kPlaceholder)
          refuse("feeds node {} of body {}, which is not a placeholder", feed.node(), i);
        body.feeds.push_back({{nodes[feed.node()].get(), 0}, feed.from()});
      }
      for (const proto::Output& fetch : from.fetches()) {
        if (fetch.node() >= nodes.size() || fetch.output() >= nodes[fetch.node()]->outputs.size() ||
            nodes[fetch.node()]->op == &kVarHandle)
          refuse("fetches a tensor that body {} does not compute", i);
        body.fetches.push_back({nodes[fetch.node()].get(), static_cast<int>(fetch.output())});
      }
    }
  }

  std::shared_ptr<RandomSequence> random_of_bodies(const proto::Node& node,
                                                   const ControlFlow& flow) const {
    std::vector<RandomSequence::BodyCount> counts;
    for (const Body& body : flow.bodies)
      counts.push_back({body.graph->random_count, body.graph->last_random});
    return std::make_shared<BodyRandomSequence>(
        node.has_random_before() ? random_of(earlier(node.random_before())) : nullptr,
        std::move(counts));
  }

  // Finds the inputs that a body writes. Variables that it uses directly must be inputs of the
  // node.
  void find_variables(Body& body, const std::vector<Node::Input>& inputs) const {
    const auto place = [&](const Node& handle) {
      const auto at = std::find_if(inputs.begin(), inputs.end(), [&](const Node::Input& input) {
        return input.node == handle.outside;
      });
      if (at == inputs.end()) refuse("has no input for the variable '{}'", handle.name);
      return static_cast<std::size_t>(at - inputs.begin());
    };
    for (const Node* handle : written_handles(*body.graph)) body.written.push_back(place(*handle));
    for (const auto& node : body.graph->nodes())
      if (node->op == &kReadVariable) place(*node->inputs[0].node);
  }

  static bool is_flag(const TensorType& spec) {
    return spec.dtype == DType::kBool && spec.shape.known() && spec.shape.rank() == 0;
  }
  static const TensorType& spec_of(const Node::Input& tensor) {
    return tensor.node->outputs[static_cast<std::size_t>(tensor.output)];
  }

  // Shapes are compared when they are known: when a program is made.
  void check_control(const ControlFlow& flow, const std::vector<Node::Input>& inputs,
                     const std::vector<TensorType>& outputs) const {
    using Kind = ControlFlow::Kind;
    if (flow.loops() ? inputs.size() < flow.carried
                     : inputs.empty() || !is_flag(spec_of(inputs[0])))
      refuse("cannot choose a body from its {} inputs", inputs.size());
    for (const Body& body : flow.bodies) {
      for (const Body::FrameFeed& feed : body.feeds)
        if (feed.from >= flow.elements + inputs.size() ||
            (feed.from >= flow.elements && flow.writes[feed.from - flow.elements]))
          refuse("feeds a body with tensor {}, which is not in its frame", feed.from);
      if (flow.kind == Kind::kWhile && &body == &flow.bodies.front()) {
        if (body.fetches.size() != 1 || !is_flag(spec_of(body.fetches[0])))
          refuse("the condition is not a bool scalar");
        continue;
      }
      if (body.fetches.size() != outputs.size())
        refuse("a body returns {} tensors for {} outputs", body.fetches.size(), outputs.size());
      for (std::size_t i = 0; i < outputs.size(); ++i)
        if (spec_of(body.fetches[i]).dtype != outputs[i].dtype ||
            (flow.loops() && (flow.writes[i] || spec_of(inputs[i]).dtype != outputs[i].dtype)))
          refuse("output {} changes its dtype", i);
    }
    const bool writes =
        std::find(flow.writes.begin(), flow.writes.end(), true) != flow.writes.end();
    if (flow.forward && writes) refuse("is a gradient that writes variables");
  }

  const proto::Graph& message_;
  const std::vector<std::string_view>* elements_ = nullptr;  // of a body: in the message
  LargeConstants large_ = LargeConstants::kBytes;
  RefPtr<GraphImpl> graph_;
  std::shared_ptr<const StoredSizes> sizes_;
  std::string name_;  // of the current node
  // By operation, counter and rate.
  std::map<std::tuple<const OpDef*, std::uint32_t, bool, std::string>,
           std::shared_ptr<const CountedAttrUpdate>>
      counted_;
};

}  // namespace

AttrFields read_attributes(const AttributeMessages& from) {
  AttrFields fields;
  for (const proto::Attribute& attribute : from)
    fields.push_back({.name = attribute.name(),
                      .integers = {attribute.integers().begin(), attribute.integers().end()},
                      .reals = {attribute.reals().begin(), attribute.reals().end()},
                      .known_shape = attribute.known_shape()});
  return fields;
}

std::optional<SplitMessage> split_message(std::string_view message, int field) {
  using google::protobuf::internal::WireFormatLite;
  if (message.size() > std::numeric_limits<int>::max()) return std::nullopt;
  SplitMessage split;
  google::protobuf::io::CodedInputStream in(reinterpret_cast<const std::uint8_t*>(message.data()),
                                            static_cast<int>(message.size()));
  const auto at = [&] { return static_cast<std::size_t>(in.CurrentPosition()); };
  for (std::size_t begin = 0; const std::uint32_t tag = in.ReadTag(); begin = at()) {
    const std::size_t value = at();
    if (!WireFormatLite::SkipField(&in, tag)) return std::nullopt;
    if (WireFormatLite::GetTagFieldNumber(tag) != field) {
      split.rest += message.substr(begin, at() - begin);
      continue;
    }
    std::uint32_t length = 0;
    google::protobuf::io::CodedInputStream contents(
        reinterpret_cast<const std::uint8_t*>(message.data() + value),
        static_cast<int>(at() - value));
    if (WireFormatLite::GetTagWireType(tag) != WireFormatLite::WIRETYPE_LENGTH_DELIMITED ||
        !contents.ReadVarint32(&length))
      return std::nullopt;
    split.contents.push_back(message.substr(at() - length, length));
  }
  if (!in.ConsumedEntireMessage()) return std::nullopt;
  return split;
}

RefPtr<GraphImpl> deserialize_nodes(std::string_view bytes, LargeConstants large) {
  SerializedGraph serialized;
  if (!serialized.parse(bytes))
    fail<DataLossError>("[Graph] the graph of {} bytes is truncated or corrupt", bytes.size());
  return GraphReader(serialized, large).run();
}

}  // namespace tandem
