// A node of a graph: an operation and its inputs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "graph/rate_formula.h"
#include "op/op.h"

namespace tandem {

class GraphImpl;
struct CollectiveMember;  // graph/collective.h
struct ControlFlow;       // graph/control_flow.h
class RandomSequence;
class VariableImpl;

// Memory of one copy of a variable, as programs refer to it. It outlives runs.
class Resource : public RefCounted {
 public:
  // Equal for all Resources of the same memory.
  virtual const void* identity() const = 0;
  // The variable whose elements they are; null if there is none.
  virtual VariableImpl* variable() const { return nullptr; }
  virtual const std::string& name() const = 0;
  virtual DeviceImpl& device() const = 0;
  virtual const TensorType& spec() const = 0;
  // The current elements. Throws FailedPreconditionError "Attempting to use uninitialized value
  // NAME".
  virtual Tensor value() = 0;
  // The version of the elements of value() (TensorView::version); 0 if unknown.
  virtual std::uint64_t value_version() { return 0; }
  // Whether gradients with respect to value() are recorded.
  virtual bool tracked() { return static_cast<bool>(impl_of(value()).grad); }
  // The elements for a program that writes them, in memory that no reader shares.
  virtual Tensor writable() = 0;

  // The memory with a copy of its elements as `dtype`, for programs that write the copy whenever
  // they write the elements. It remains up to date from run to run; other writes make it stale, and
  // the next run casts the elements again. Null resources if the memory has no such copies.
  struct WithCast {
    RefPtr<Resource> memory, copy;
  };
  virtual WithCast with_cast([[maybe_unused]] DType dtype) { return {}; }
};

// Updates a node's attributes at the start of each run, such as a learning rate or the number of
// the step. Called on the thread that starts the run.
struct AttrUpdate {
  // `more`: how much higher than now `counter` is to be taken. A compiled program counts while it
  // runs, so the host updates attributes for every count that it may reach.
  using Fn = std::function<void(void* attrs, std::int64_t more)>;

  explicit AttrUpdate(Fn update_attrs, RefPtr<Resource> depends_on = {})
      : update(std::move(update_attrs)), counter(std::move(depends_on)) {}
  void operator()(void* attrs, std::int64_t more = 0) const { update(attrs, more); }

  Fn update;
  RefPtr<Resource> counter;  // of GraphImpl::counters(); null if the attributes depend on none
};

struct Node;

// The same for attributes that depend on a counter, such as an optimizer's steps. The counter is a
// variable of the graph; each session reads its own.
struct CountedAttrUpdate {
  Node* counter = nullptr;  // the VarHandleOp of a scalar of int64
  std::function<void(void* attrs, std::int64_t count)> update;
  // For serialisation. `update` sets the field "step" to count + 1 and, if there is a formula, the
  // field "learning_rate" to formula(count). Throws UnimplementedError for a learning rate that is
  // a function of this program.
  std::function<std::optional<RateFormula>()> formula;
};

struct Node {
  struct Input {
    Node* node = nullptr;
    int output = 0;
    friend bool operator==(const Input&, const Input&) = default;
  };

  GraphImpl* graph = nullptr;
  const OpDef* op = nullptr;
  std::shared_ptr<const void> attrs;
  std::string name;
  int id = 0;  // position in the graph; inputs have smaller ids
  std::vector<Input> inputs;
  std::vector<Node*> control_inputs;
  std::vector<TensorType> outputs;  // unknown sizes are handles (core/dim.h)

  // The device that the user requested by scopes; empty if there was no request.
  DeviceName requested;
  std::string requested_text;  // as the user wrote it, for messages

  // Const: the elements in host memory, or the captured tensor.
  std::vector<std::byte> literal;
  Tensor value;
  RefPtr<Resource> resource;          // VarHandleOp: the variable; null if it belongs to sessions
  Node* initializer = nullptr;        // VarHandleOp: the AssignVariableOp of its initial value
  std::vector<Node*> colocated_with;  // placed on the same device as these
  std::shared_ptr<const AttrUpdate> attr_update;
  std::shared_ptr<const CollectiveMember> member;  // collectives: the rank
  std::shared_ptr<const CountedAttrUpdate> counted;
  std::shared_ptr<const ControlFlow> control;  // runs other graphs
  // Random operations: the last control flow earlier in the graph that uses random numbers.
  std::shared_ptr<const RandomSequence> random_before;
  // VarHandleOp: the variable's leaf; null if it is not trainable.
  RefPtr<GradNodeBase> leaf;
  // VarHandleOp of a body: the handle of the same variable in the enclosing graph.
  Node* outside = nullptr;

  // Whether the node writes the memory of this input.
  bool mutates(std::size_t input) const;

  template <class A>
  const A& attrs_as() const {
    return *static_cast<const A*>(attrs.get());
  }
};

// Identifies a symbolic tensor: output `output` of `node`. Keeps the graph alive.
struct Symbol final : RefCounted {
  Symbol(RefPtr<RefCounted> owner, Node& made_by, int index);
  ~Symbol() override;

  RefPtr<RefCounted> graph;
  Node* node;
  int output;
};

}  // namespace tandem
