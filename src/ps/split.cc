#include "ps/split.h"

#include <algorithm>
#include <map>
#include <unordered_map>
#include <utility>

#include "core/status.h"
#include "graph/selection.h"
#include "graph/structural_ops.h"
#include "runtime/serialize.h"

namespace tandem::ps {
namespace {

bool writes(const Node& node) {
  for (std::size_t i = 0; i < node.inputs.size(); ++i)
    if (node.mutates(i)) return true;
  return false;
}

bool has_run_attributes(const Node& node) { return node.attr_update && !node.op->exchange_key; }

// Whether the tensor is an element-wise function of the variable of `handle`, and perhaps of
// others.
bool combines(const Node& node, const Node& handle) {
  if (node.op == &kReadVariable) return node.inputs[0].node == &handle;
  return node.op->chain.op != ChainOp::kNone && !has_run_attributes(node) &&
         std::any_of(node.inputs.begin(), node.inputs.end(),
                     [&](const Node::Input& input) { return combines(*input.node, handle); });
}

// The graph of one update.
class UpdateGraph {
 public:
  // `id_of`: of the variable of a handle. `fetch`: adds a fetch to the worker's part.
  UpdateGraph(const TracedFunction& function, const Node& node, proto::Update& message,
              std::function<VariableId(const Node&)> id_of,
              std::function<std::uint32_t(const Node::Input&)> fetch)
      : function_(function),
        node_(node),
        message_(message),
        id_of_(std::move(id_of)),
        fetch_(std::move(fetch)),
        graph_(make_ref<GraphImpl>()) {}

  void write() {
    proto::Part& part = *message_.mutable_part();
    part.set_name(node_.name);
    part.set_updates(true);
    const Node& made = copy(node_);
    if (has_run_attributes(node_)) part.add_attributes(static_cast<std::uint32_t>(made.id));
    part.set_graph(serialize_nodes(*graph_));
  }

 private:
  Node& copy(const Node& node) {
    std::vector<Node::Input> inputs;
    for (const Node::Input& input : node.inputs) inputs.push_back({&source(input), 0});
    return graph_->restore(*node.op, node.attrs, std::move(inputs), node.outputs,
                           {.name = node.name});
  }

  // The node in this graph that has the value of `input`.
  Node& source(const Node::Input& input) {
    const auto found = made_.find({input.node, input.output});
    if (found != made_.end()) return *found->second;
    Node& made = input.node->op == &kVarHandle ? handle(*input.node)
                 : belongs_here(*input.node)   ? copy(*input.node)
                                               : placeholder(input);
    made_.emplace(std::pair{input.node, input.output}, &made);
    return made;
  }

  // An assigned value that is computed from the variable's present one, such as that of
  // assign_add(), is computed where the variable is. Else concurrent updates would be lost.
  bool belongs_here(const Node& value) const {
    return node_.op == &kAssignVariable && combines(value, *node_.inputs[0].node);
  }

  Node& handle(const Node& of) {
    Node& made = graph_->variable(of.outputs[0], {.name = of.name});
    proto::Part::Variable& variable = *message_.mutable_part()->add_variables();
    variable.set_node(static_cast<std::uint32_t>(made.id));
    variable.set_id(id_of_(of));
    return made;
  }

  Node& placeholder(const Node::Input& input) {
    const TensorSpec& spec = input.node->outputs[static_cast<std::size_t>(input.output)];
    if (!spec.shape.fully_defined())
      fail<UnimplementedError>(
          "[{}] operation '{}' ({}) writes a variable with a value of shape {}, which has to be "
          "known",
          function_.name, node_.name, node_.op->name, spec.shape.to_string());
    Node& made =
        graph_->add(kPlaceholder, SpecAttrs{spec.dtype, spec.shape}, {}, {.name = "value"});
    message_.mutable_part()->add_feeds(static_cast<std::uint32_t>(made.id));
    message_.add_inputs(fetch_(input));
    return made;
  }

  const TracedFunction& function_;
  const Node& node_;
  proto::Update& message_;
  std::function<VariableId(const Node&)> id_of_;
  std::function<std::uint32_t(const Node::Input&)> fetch_;
  RefPtr<GraphImpl> graph_;
  std::map<std::pair<const Node*, int>, Node*> made_;
};

class Splitter {
 public:
  Splitter(const TracedFunction& function, const std::function<VariableId(const Resource&)>& id_of)
      : function_(function), id_of_(id_of) {}

  SplitFunction run() {
    result_.message.set_results(static_cast<std::uint32_t>(function_.fetches.size()));
    read_elements();
    for (const Node::Input& fetch : function_.fetches) fetch_from_worker(fetch);
    for (const auto& node : function_.graph->nodes())
      if (writes(*node)) add_update(*node);
    write_worker();
    return std::move(result_);
  }

 private:
  template <class... Args>
  [[noreturn]] void refuse(fmt::format_string<Args...> format, Args&&... args) const {
    fail<UnimplementedError>("[{}] {}", function_.name,
                             fmt::format(format, std::forward<Args>(args)...));
  }

  void read_elements() {
    std::size_t tensors = 0;
    for (const TracedElement& element : function_.elements) {
      if (element.captured)
        refuse(
            "an iterator was captured, which the workers do not have: pass the result of "
            "create_per_worker_dataset() as an argument");
      proto::Element& made = *result_.message.add_elements();
      made.set_iterator(static_cast<std::uint32_t>(element.argument));
      made.set_tensors(static_cast<std::uint32_t>(element.tensors.size()));
      tensors += element.tensors.size();
    }
    result_.message.set_arguments(static_cast<std::uint32_t>(function_.feeds.size() - tensors));
  }

  // Returns the index of the fetch.
  std::uint32_t fetch_from_worker(const Node::Input& tensor) {
    fetches_.push_back(tensor);
    return static_cast<std::uint32_t>(fetches_.size() - 1);
  }

  void add_update(const Node& node) {
    if (node.control)
      refuse("operation '{}' ({}) writes variables in a branch or loop: do it outside of them",
             node.name, node.op->name);
    result_.update_attributes.push_back(has_run_attributes(node) ? &node : nullptr);
    UpdateGraph(
        function_, node, *result_.message.add_updates(),
        [this](const Node& handle) { return id_of(handle); },
        [this](const Node::Input& tensor) { return fetch_from_worker(tensor); })
        .write();
  }

  VariableId id_of(const Node& handle) const {
    if (!handle.resource) refuse("variable '{}' belongs to the graph of a session", handle.name);
    return id_of_(*handle.resource);
  }

  void write_worker() {
    std::vector<const Node*> outputs;
    for (const Node::Input& fetch : fetches_) outputs.push_back(fetch.node);
    for (const Node::Input& feed : function_.feeds) outputs.push_back(feed.node);
    Selection selection;
    if (!outputs.empty()) selection = select_nodes(*function_.graph, outputs, false);
    selection.sends_attributes = true;
    std::unordered_map<const Node*, std::uint32_t> ids;
    for (const Node* node : selection.nodes)
      ids.emplace(node, static_cast<std::uint32_t>(ids.size()));
    proto::Part& part = *result_.message.mutable_worker();
    part.set_name(function_.name);
    for (const Node* node : selection.nodes) {
      check(*node);
      if (node->op == &kVarHandle) {
        proto::Part::Variable& variable = *part.add_variables();
        variable.set_node(ids.at(node));
        variable.set_id(id_of(*node));
      }
      if (!has_run_attributes(*node)) continue;
      part.add_attributes(ids.at(node));
      result_.worker_attributes.push_back(node);
    }
    for (const Node::Input& feed : function_.feeds) part.add_feeds(ids.at(feed.node));
    for (const Node::Input& fetch : fetches_) {
      proto::Part::Fetch& made = *part.add_fetches();
      made.set_node(ids.at(fetch.node));
      made.set_output(static_cast<std::uint32_t>(fetch.output));
    }
    part.set_graph(serialize_nodes(*function_.graph, selection));
  }

  // Refuses a node of the worker's part that depends on an update.
  void check(const Node& node) const {
    if (writes(node))
      refuse("the result of operation '{}' ({}), which writes a variable, is used by others",
             node.name, node.op->name);
    if (node.op != &kReadVariable) return;
    const Node* handle = node.inputs[0].node;
    for (const auto& other : function_.graph->nodes()) {
      if (other->id >= node.id) return;
      for (std::size_t i = 0; i < other->inputs.size(); ++i)
        if (other->inputs[i].node == handle && other->mutates(i))
          refuse(
              "variable '{}' is read after operation '{}' ({}) updates it: read it in the next "
              "step",
              handle->name, other->name, other->op->name);
    }
  }

  const TracedFunction& function_;
  const std::function<VariableId(const Resource&)>& id_of_;
  std::vector<Node::Input> fetches_;
  SplitFunction result_;
};

}  // namespace

SplitFunction split(const TracedFunction& function,
                    const std::function<VariableId(const Resource&)>& id_of) {
  return Splitter(function, id_of).run();
}

proto::RunAttributes attributes_of_run(const Node& node) {
  const AttrsType& type = node.op->attrs();
  const std::shared_ptr<const void> attrs = type.copy(node.attrs.get());
  (*node.attr_update)(const_cast<void*>(attrs.get()));
  proto::RunAttributes result;
  for (const AttrField& field : type.save(attrs.get())) {
    proto::RunAttributes::Field& made = *result.add_fields();
    made.set_name(field.name);
    made.mutable_integers()->Add(field.integers.begin(), field.integers.end());
    made.mutable_reals()->Add(field.reals.begin(), field.reals.end());
    made.set_known_shape(field.known_shape);
  }
  return result;
}

}  // namespace tandem::ps
