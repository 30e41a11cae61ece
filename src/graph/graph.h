// Graph: operations that are described instead of run.
#pragma once

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "graph/node.h"
#include "graph/symbolic_shape.h"

namespace tandem {

// What the calling thread wants of the node that it adds.
struct NodeOptions {
  const DeviceName* requested = nullptr;
  std::string_view requested_text;
  std::string_view name;  // the operation's own name where empty
};

// The nodes of a graph in the order of their making, which is a topological order. Not thread-safe.
class GraphImpl final : public RefCounted {
 public:
  // `outer`: the graph that this one is a body of, whose tensors it may use while it is built.
  explicit GraphImpl(GraphImpl* outer = nullptr);
  ~GraphImpl() override;

  // Adds a node and infers its outputs. Throws InvalidArgumentError, as the operation would.
  Node& add(const OpDef& op, AttrsRef attrs, std::span<const Node::Input> inputs,
            const NodeOptions& options = {});
  // Adds a node whose outputs are known, under exactly the name that the options say. Throws
  // InvalidArgumentError where the shape rule disagrees.
  Node& restore(const OpDef& op, std::shared_ptr<const void> attrs, std::vector<Node::Input> inputs,
                std::vector<TensorSpec> outputs, const NodeOptions& options);
  // A node for a tensor's elements, once for each tensor.
  Node& constant(const Tensor& value, const NodeOptions& options = {});
  // The node that stands for the variable's memory, once for each.
  Node& handle(RefPtr<Resource> resource);
  // The node that stands for a variable of which each session has its own memory.
  Node& variable(const TensorSpec& spec, const NodeOptions& options);
  // A node that does nothing itself: running it runs `behind`.
  Node& group(std::span<Node* const> behind, const NodeOptions& options);
  // A node that runs other graphs.
  Node& control(const OpDef& op, std::shared_ptr<const ControlFlow> flow,
                std::vector<Node::Input> inputs, std::vector<TensorSpec> outputs,
                const NodeOptions& options);

  // Where the tensor comes from: a symbolic one of this graph, or a concrete one, which becomes a
  // constant. Throws InvalidArgumentError for another graph's.
  Node::Input input_of(const Tensor& tensor);
  // `tensor` as it is known in this graph: itself, or for one of a graph around this one (or one
  // that has elements and is tracked) a tensor that every run of the body is given, with an edge of
  // its own. Throws InvalidArgumentError for another graph's.
  Tensor local(const Tensor& tensor);
  // The node's output as a symbolic tensor.
  Tensor tensor(Node& node, int output = 0);

  // Names are unique: `wanted`, or wanted_1, wanted_2 and so on, behind the open name scopes.
  void rename(Node& node, std::string_view wanted);
  // "NAME/suffix" where NAME is that of `parent`.
  void rename_under(Node& node, const Node& parent, std::string_view suffix);
  void open_name_scope(std::string_view name);
  void close_name_scope();

  const std::vector<std::unique_ptr<Node>>& nodes() const { return nodes_; }
  // Null when there is none of that name.
  Node* find(std::string_view name) const;
  // Those of a body are those of the graph around it.
  SymbolicSizes& sizes() { return *sizes_; }
  const SymbolicSizes& sizes() const { return *sizes_; }
  // What a body takes from the graph around it, besides variables.
  struct Capture {
    Tensor outside;
    Node* inside = nullptr;
    GradEdge edge;  // as it is recorded inside
  };
  const std::vector<Capture>& captures() const { return captures_; }
  GraphImpl* outer() const { return outer_; }
  // The body is traced: it takes nothing more from outside.
  void close() {
    outer_ = nullptr;
    captures_.clear();
  }
  // Whether sessions run the graph. Variables that are made while it is built are then part of it.
  bool for_sessions = false;
  std::uint64_t random_count = 0;  // of its random operations, without those in control flow
  std::shared_ptr<RandomSequence> last_random;  // its last control flow that uses random numbers
  std::mutex random_mutex;  // sessions of one graph share the counts of last_random
  // The control flow before each random key, by its number, stream and replica. Gradients generate
  // the numbers of the forward pass again, so they need the same one.
  std::map<std::array<std::uint64_t, 3>, std::shared_ptr<const RandomSequence>> random_before;

  // What the host does after each run that ended well.
  void after_run(std::function<void()> action) { after_run_.push_back(std::move(action)); }
  const std::vector<std::function<void()>>& after_run() const { return after_run_; }
  // Counts calls for `what`: 0, 1, 2... How often a program does something in one run; in a body,
  // what the graph around has done before counts, too.
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
  std::unordered_map<const void*, Node*> handles_;
  std::vector<Capture> captures_;
  std::shared_ptr<SymbolicSizes> sizes_;
  std::vector<std::function<void()>> after_run_;
  std::unordered_map<const void*, int> tallies_;
};

// What renews the attributes of the nodes that the calling thread adds; null: nothing does.
extern constinit thread_local const std::shared_ptr<const Renewal>* renewing;

// The graph that the calling thread's operations are added to; null: they run.
extern constinit thread_local GraphImpl* building;

// What the nodes that the calling thread adds are to be colocated with; null: nothing.
extern constinit thread_local const std::vector<Node*>* colocating;

class BuildingScope {
 public:
  explicit BuildingScope(GraphImpl* graph) : previous_(building) { building = graph; }
  ~BuildingScope() { building = previous_; }
  BuildingScope(const BuildingScope&) = delete;
  BuildingScope& operator=(const BuildingScope&) = delete;

 private:
  GraphImpl* previous_;
};

class RenewingScope {
 public:
  explicit RenewingScope(const std::shared_ptr<const Renewal>& renewal) : previous_(renewing) {
    renewing = &renewal;
  }
  ~RenewingScope() { renewing = previous_; }
  RenewingScope(const RenewingScope&) = delete;
  RenewingScope& operator=(const RenewingScope&) = delete;

 private:
  const std::shared_ptr<const Renewal>* previous_;
};

inline bool is_symbolic(const Tensor& tensor) { return static_cast<bool>(impl_of(tensor).symbol); }
inline const Symbol& symbol_of(const Tensor& tensor) {
  return static_cast<const Symbol&>(*impl_of(tensor).symbol);
}

}  // namespace tandem
