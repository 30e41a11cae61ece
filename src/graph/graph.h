// Graph: operations that are described instead of run.
#pragma once

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "core/mutex.h"
#include "graph/node.h"
#include "graph/symbolic_shape.h"
#include "op/context.h"

namespace tandem {

// Options of a node that is added.
struct NodeOptions {
  const DeviceName* requested = nullptr;
  std::string_view requested_text;
  std::string_view name;  // the operation's name if empty
};

// The nodes of a graph in the order of their creation, which is a topological order. Not
// thread-safe.
class GraphImpl final : public RefCounted {
 public:
  // `outer`: the graph that this one is a body of. It may capture tensors of it while it is built.
  explicit GraphImpl(GraphImpl* outer = nullptr);
  ~GraphImpl() override;

  // Adds a node and infers its outputs. Throws InvalidArgumentError, as the operation would.
  Node& add(const OpDef& op, AttrsRef attrs, std::span<const Node::Input> inputs,
            const NodeOptions& options = {});
  // Adds a node with known outputs, under exactly the name in the options. Throws
  // InvalidArgumentError if the shape rule infers other outputs.
  Node& restore(const OpDef& op, std::shared_ptr<const void> attrs, std::vector<Node::Input> inputs,
                std::vector<TensorType> outputs, const NodeOptions& options);
  // The node for a tensor's elements: one per tensor.
  Node& constant(const Tensor& value, const NodeOptions& options = {});
  // The elements of a Const node of this graph on `device`. Programs on the host share them.
  // Thread-safe.
  Tensor elements_of(const Node& node, DeviceImpl& device) const;
  // The node for the memory of a variable: one per variable.
  Node& handle(RefPtr<Resource> resource);
  // Adds a variable whose memory belongs to sessions.
  Node& variable(const TensorType& spec, const NodeOptions& options);
  // Adds a no-op with `inputs` as control inputs.
  Node& group(std::span<Node* const> inputs, const NodeOptions& options);
  // Adds a node that runs other graphs.
  Node& control(const OpDef& op, std::shared_ptr<const ControlFlow> flow,
                std::vector<Node::Input> inputs, std::vector<TensorType> outputs,
                const NodeOptions& options);

  // The node output of a symbolic tensor of this graph, or of a constant for a concrete tensor.
  // Throws InvalidArgumentError for a symbolic tensor of another graph.
  Node::Input input_of(const Tensor& tensor);
  // `tensor` as a tensor of this graph. A symbolic tensor of an enclosing graph, and a concrete
  // tensor that is tracked, is captured: it becomes an input of the body, with its own gradient
  // edge. Others are returned as they are. Throws InvalidArgumentError for a tensor of another
  // graph.
  Tensor local(const Tensor& tensor);
  // The node's output as a symbolic tensor.
  Tensor tensor(Node& node, int output = 0);

  // Names are unique: `wanted`, or wanted_1, wanted_2 and so on, after the open name scopes.
  void rename(Node& node, std::string_view wanted);
  // Renames the node to "NAME/suffix", where NAME is that of `parent`.
  void rename_under(Node& node, const Node& parent, std::string_view suffix);
  void open_name_scope(std::string_view name);
  void close_name_scope();

  const std::vector<std::unique_ptr<Node>>& nodes() const { return nodes_; }
  // Returns null for an unknown name.
  Node* find(std::string_view name) const;
  // A body shares the sizes of the enclosing graph.
  const std::shared_ptr<SizeTable>& sizes() const { return sizes_; }
  // A tensor of an enclosing graph that the body uses. Variables are not among them.
  struct Capture {
    Tensor outside;
    Node* inside = nullptr;
    GradEdge edge;  // of the tensor inside
  };
  const std::vector<Capture>& captures() const { return captures_; }
  GraphImpl* outer() const { return outer_; }
  // Ends the tracing of a body: it captures nothing more.
  void close() {
    outer_ = nullptr;
    captures_.clear();
  }
  // Whether sessions run the graph. Variables that are created while it is built are then part of
  // it.
  bool for_sessions = false;
  std::uint64_t random_count = 0;  // of its random operations, without those in control flow
  std::shared_ptr<RandomSequence> last_random;  // its last control flow that uses random numbers
  Mutex random_mutex{"graph"};  // sessions of one graph share the counts of last_random
  // The control flow before each random key, by its number, stream and replica. Gradients generate
  // the numbers of the forward pass again, so they need the same one.
  std::map<std::array<std::uint64_t, 3>, std::shared_ptr<const RandomSequence>> random_before;

  // Counts each successful run, after it. `counter`: the memory of an int64 scalar on the host.
  void count(RefPtr<Resource> counter) { counters_.push_back(std::move(counter)); }
  const std::vector<RefPtr<Resource>>& counters() const { return counters_; }
  // Adds an action that the host does after each successful run. Compiled control flow refuses it.
  void after_run(std::function<void()> action) { after_run_.push_back(std::move(action)); }
  bool has_actions() const { return !after_run_.empty(); }
  // Counts a run, and does the actions.
  void end_run() const;
  // Returns 0, 1, 2 and so on in successive calls for `what`. For example, counts the updates of a
  // variable in one run. A body continues the counts of the enclosing graph.
  int next_of(const void* what) { return tallies_[what]++; }

 private:
  bool taken(const std::string& name) const;
  std::string scoped(std::string_view name) const;
  std::string unique_name(std::string name);
  Node& append(const OpDef& op, std::string_view name, const NodeOptions& options);
  Tensor capture(const Tensor& outside);

  GraphImpl* outer_;
  std::vector<std::unique_ptr<Node>> nodes_;
  std::unordered_map<std::string, Node*> by_name_;
  std::unordered_set<std::string> scope_names_;
  std::unordered_map<std::string, int> next_suffix_;
  std::vector<std::string> name_scopes_;  // whole prefixes, "a/b/"
  std::unordered_map<const TensorImpl*, Node*> constants_;
  mutable Mutex literals_mutex_{"graph"};
  mutable std::unordered_map<const Node*, Tensor> literals_;  // large ones, as tensors of the host
  std::unordered_map<const void*, Node*> handles_;
  std::vector<Capture> captures_;
  std::shared_ptr<SizeTable> sizes_;
  std::vector<RefPtr<Resource>> counters_;
  std::vector<std::function<void()>> after_run_;
  std::unordered_map<const void*, int> tallies_;
};

// Throws InvalidArgumentError for a name that TensorFlow does not allow.
void expect_operation_name(std::string_view name);

inline bool is_symbolic(const Tensor& tensor) { return static_cast<bool>(impl_of(tensor).symbol); }
inline const Symbol& symbol_of(const Tensor& tensor) {
  return static_cast<const Symbol&>(*impl_of(tensor).symbol);
}

}  // namespace tandem
