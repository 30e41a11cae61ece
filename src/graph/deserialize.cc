// Reading a graph: everything is checked as if it came from a stranger.
#include <limits>

#include "core/status.h"
#include "graph/proto/graph.pb.h"
#include "graph/serialize.h"
#include "graph/structural_ops.h"

namespace tandem {
namespace {

// More elements than any device holds: sizes computed from these do not overflow.
constexpr std::int64_t kMaxElements = std::int64_t{1} << 44;

class Reader {
 public:
  explicit Reader(const proto::Graph& message) : message_(message) {}

  RefPtr<GraphImpl> run() {
    if (message_.nodes_size() > std::numeric_limits<int>::max() / 2 ||
        message_.unknown_sizes() > kMaxUnknownSizes)
      fail<InvalidArgumentError>("[Graph] too many nodes or unknown sizes");
    graph_->for_sessions = true;
    graph_->draws = message_.draws();
    const int unknown_sizes = static_cast<int>(message_.unknown_sizes());
    graph_->sizes().set_count(unknown_sizes);
    for (const proto::Node& node : message_.nodes()) {
      name_ = node.name();
      read(node);
    }
    // What the shape rules were asked for on the way stays out.
    graph_->sizes().set_count(unknown_sizes);
    for (int i = 0; i < message_.nodes_size(); ++i) link(*graph_->nodes()[i], message_.nodes(i));
    return std::move(graph_);
  }

 private:
  static constexpr std::uint32_t kMaxUnknownSizes = 1u << 20;

  template <class... Args>
  [[noreturn]] void refuse(fmt::format_string<Args...> format, Args&&... args) const {
    fail<InvalidArgumentError>("[Graph] node '{}': {}", name_,
                               fmt::format(format, std::forward<Args>(args)...));
  }

  const OpDef& op_of(const proto::Node& node) const {
    for (const OpDef* op : structural_ops())
      if (op->name == node.op()) return *op;
    if (const OpDef* op = find_op(node.op())) return *op;
    refuse("there is no operation '{}'", node.op());
  }

  Node& earlier(std::uint32_t id) const {
    if (id >= graph_->nodes().size()) refuse("refers to node {}, which is not before it", id);
    return *graph_->nodes()[id];
  }

  std::vector<Node::Input> inputs_of(const proto::Node& node) const {
    std::vector<Node::Input> inputs;
    for (const proto::Node::Input& input : node.inputs()) {
      Node& from = earlier(input.node());
      if (input.output() >= from.outputs.size())
        refuse("takes output {} of '{}', which has {}", input.output(), from.name,
               from.outputs.size());
      inputs.push_back({&from, static_cast<int>(input.output())});
    }
    return inputs;
  }

  std::shared_ptr<const void> attrs_of(const OpDef& op, const proto::Node& node) const {
    AttrFields fields;
    for (const proto::Attribute& attribute : node.attributes())
      fields.push_back({.name = attribute.name(),
                        .integers = {attribute.integers().begin(), attribute.integers().end()},
                        .reals = {attribute.reals().begin(), attribute.reals().end()},
                        .known_shape = attribute.known_shape()});
    return op.attrs().load(fields);
  }

  TensorSpec spec_of(const proto::Spec& spec) const {
    if (spec.dtype() > static_cast<std::uint32_t>(last_value(DType())))
      refuse("there is no dtype {}", spec.dtype());
    if (spec.sizes_size() > kMaxRank) refuse("has an output of {} axes", spec.sizes_size());
    TensorSpec made{static_cast<DType>(spec.dtype()), Shape()};
    if (!spec.known()) return made;
    std::int64_t elements = 1;
    for (std::int64_t size : spec.sizes()) {
      if (!graph_->sizes().has(size)) refuse("has an output of size {}", size);
      if (size > kMaxElements / elements) refuse("has an output that is too large");
      elements *= std::max<std::int64_t>(size, 1);
    }
    made.shape = Shape(std::span<const std::int64_t>(spec.sizes().data(),
                                                     static_cast<std::size_t>(spec.sizes_size())));
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
    if (node.name().empty() || graph_->find(node.name())) refuse("the name is taken, or empty");
    const OpDef& op = op_of(node);
    std::vector<TensorSpec> outputs;
    for (const proto::Spec& spec : node.outputs()) outputs.push_back(spec_of(spec));
    const DeviceName requested = device_of(node.requested());
    Node* made = nullptr;
    try {
      made = &graph_->restore(
          op, attrs_of(op, node), inputs_of(node), std::move(outputs),
          {.requested = &requested, .requested_text = node.requested_text(), .name = node.name()});
    } catch (const InvalidArgumentError& error) {
      refuse("{}", error.what());
    }
    check_structure(*made);
    for (std::uint32_t control : node.control_inputs())
      made->control_inputs.push_back(&operation_before(control, *made));
    for (std::uint32_t other : node.colocated_with())
      made->colocated_with.push_back(&operation_before(other, *made));
    if (&op == &kConst) read_elements(node, *made);
  }

  Node& operation_before(std::uint32_t id, const Node& node) const {
    if (id >= static_cast<std::uint32_t>(node.id)) refuse("refers to node {}, not before it", id);
    return earlier(id);
  }

  // The memory of variables goes to what reads or writes it and to nothing else; what is written
  // is such memory.
  void check_structure(const Node& node) const {
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      const bool memory = node.inputs[i].node->op == &kVarHandle;
      const bool writes = i < 32 && (node.op->mutated_inputs >> i & 1u) != 0;
      const bool reads = node.op == &kReadVariable;
      if (memory != (writes || reads))
        refuse("input {} {} the memory of a variable", i, memory ? "cannot be" : "has to be");
    }
    if (node.op == &kVarHandle && !node.outputs[0].shape.fully_defined())
      refuse("a variable of shape {}", node.outputs[0].shape.to_string());
  }

  void read_elements(const proto::Node& node, Node& made) const {
    const TensorSpec& spec = made.outputs[0];
    if (!spec.shape.fully_defined() ||
        node.elements().size() !=
            static_cast<std::size_t>(spec.shape.num_elements()) * size_of(spec.dtype))
      refuse("{} bytes of elements for shape {} and dtype {}", node.elements().size(),
             spec.shape.to_string(), name_of(spec.dtype));
    const auto* bytes = reinterpret_cast<const std::byte*>(node.elements().data());
    made.literal.assign(bytes, bytes + node.elements().size());
  }

  // What refers to nodes wherever they stand.
  void link(Node& made, const proto::Node& node) {
    name_ = node.name();
    if (node.has_initializer()) {
      Node& initializer = earlier(node.initializer());
      if (initializer.op != &kAssignVariable || initializer.inputs[0].node != &made)
        refuse("'{}' does not assign to it", initializer.name);
      made.initializer = &initializer;
    }
    if (!node.has_counter()) return;
    auto counted = std::make_shared<CountedRenewal>();
    counted->counter = &earlier(node.counter());
    const Node& counter = *counted->counter;
    if (counter.op != &kVarHandle || counter.outputs[0].dtype != int64 ||
        counter.outputs[0].shape.rank() != 0 || !made.attrs)
      refuse("'{}' is no count of steps", counter.name);
    std::optional<RateFormula> formula;
    if (node.has_rate()) formula = formula_of(node.rate());
    counted->formula = [formula] { return formula; };
    counted->renew = [type = &made.op->attrs(), formula, step = AttrField{.name = "step"},
                      rate = AttrField{.name = "learning_rate"}](void* attrs,
                                                                 std::int64_t count) mutable {
      step.integers = {count + 1};
      type->set(attrs, step);
      if (!formula) return;
      rate.reals = {(*formula)(count)};
      type->set(attrs, rate);
    };
    made.counted = std::move(counted);
  }

  RateFormula formula_of(const proto::Formula& stored) const {
    RateFormula formula{.kind = find_rate_formula(stored.kind()),
                        .integers = {stored.integers().begin(), stored.integers().end()},
                        .reals = {stored.reals().begin(), stored.reals().end()}};
    if (!formula.kind) refuse("there is no learning rate of the kind '{}'", stored.kind());
    formula.kind->check(formula);
    return formula;
  }

  const proto::Graph& message_;
  RefPtr<GraphImpl> graph_ = make_ref<GraphImpl>();
  std::string name_;  // of the node that is read
};

}  // namespace

RefPtr<GraphImpl> deserialize_nodes(std::string_view bytes) {
  proto::Graph message;
  if (!message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())))
    fail<DataLossError>("[Graph] the {} bytes are not a whole graph: truncated or corrupt",
                        bytes.size());
  return Reader(message).run();
}

}  // namespace tandem
