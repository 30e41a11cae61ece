// A node of a graph: an operation that will run, with where its inputs come from.
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

// Memory that outlives a run, as programs refer to it: one place of a variable.
class Resource : public RefCounted {
 public:
  // The same for every Resource that stands for the same memory.
  virtual const void* identity() const = 0;
  virtual const std::string& name() const = 0;
  virtual Device& device() const = 0;
  virtual const TensorSpec& spec() const = 0;
  // The present elements. Throws FailedPreconditionError "Attempting to use uninitialized value
  // NAME".
  virtual Tensor value() = 0;
  // The elements for a program that writes them: in memory that no reader shares.
  virtual Tensor writable() = 0;
};

// Changes a node's attributes at the start of each run: what the host computes anew for every step
// (a learning rate, the number of the step). Called on the thread that starts the run.
using Renewal = std::function<void(void* attrs)>;

struct Node;

// The same for what depends on a count that a variable of the graph keeps (the steps of an
// optimizer): sessions read it where they keep the variable.
struct CountedRenewal {
  Node* counter = nullptr;  // the VarHandleOp of a scalar of int64
  std::function<void(void* attrs, std::int64_t count)> renew;
  // What `renew` does beside setting the field "step" to count + 1, to be serialised: it sets
  // "learning_rate" to formula(count), where there is one. Throws UnimplementedError for a function
  // that is this program's own.
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
  int id = 0;  // position in the graph: inputs have smaller ones
  std::vector<Input> inputs;
  std::vector<Node*> control_inputs;
  std::vector<TensorSpec>
      outputs;  // sizes that are not known are negative (graph/symbolic_shape.h)

  // Where the program asked for it to run: the scopes it was made in. Empty: anywhere.
  DeviceName requested;
  std::string requested_text;  // as the user wrote it, for messages

  // Const: the elements, in the host's memory, or the tensor that the program was given.
  std::vector<std::byte> literal;
  Tensor value;
  RefPtr<Resource> resource;          // VarHandleOp: the variable; null: the session makes it
  Node* initializer = nullptr;        // VarHandleOp: the AssignVariableOp of its initial value
  std::vector<Node*> colocated_with;  // where these are, this one goes
  std::shared_ptr<const Renewal> renewal;
  std::shared_ptr<const CollectiveMember> member;  // collectives: the rank
  std::shared_ptr<const CountedRenewal> counted;
  std::shared_ptr<const ControlFlow> control;  // runs other graphs
  // Random operations: the last control flow earlier in the graph that uses random numbers.
  std::shared_ptr<const RandomSequence> random_before;
  // VarHandleOp: where gradients of the variable go; null: nowhere.
  RefPtr<GradNodeBase> leaf;
  // VarHandleOp of a body: the same variable in the graph around.
  Node* outside = nullptr;

  // Whether the node writes the memory that is this input.
  bool mutates(std::size_t input) const;

  template <class A>
  const A& attrs_as() const {
    return *static_cast<const A*>(attrs.get());
  }
};

// Sets the key of a random operation at the start of each run: the number of `traced`, plus the
// offset of the thread's generator, plus the total of `before`. Defined by the runtime.
std::shared_ptr<const Renewal> key_renewal(const OpDef& op, const RandomKey& traced,
                                           std::shared_ptr<const RandomSequence> before);

// What a symbolic tensor stands for: output `output` of `node`. Keeps the graph alive.
struct Symbol final : RefCounted {
  Symbol(RefPtr<RefCounted> owner, Node& made_by, int index);
  ~Symbol() override;

  RefPtr<RefCounted> graph;
  Node* node;
  int output;
};

}  // namespace tandem
