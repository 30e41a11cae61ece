// What is recorded of an operation for its gradient.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "op/op.h"

namespace tandem {

// A recorded operation, or (op == nullptr) a leaf. Nodes form a graph from results to leaves
// through their input edges. Not thread-safe: one backward pass at a time over a graph.
struct GradNode : GradNodeBase {
  const OpDef* op = nullptr;
  // Grows in the order of recording, over all threads: a node's inputs have smaller numbers, so
  // decreasing order is a topological order of the backward pass.
  std::uint64_t sequence = 0;

  ~GradNode() override = default;
};

// What a traced operation asked for, where there is no device yet.
struct PlacementRequest {
  DeviceName device;
  std::string text;  // as the user wrote it
};

struct OpNode final : GradNode {
  struct Input {
    GradEdge edge;  // null when the input is not tracked
    TensorSpec spec;
    Tensor saved;  // undefined when the gradient does not read it
  };
  struct Output {
    TensorSpec spec;
    Tensor saved;     // without its edge, which would be to this node
    Tensor gradient;  // what has arrived so far, during a backward pass
  };
  std::shared_ptr<const void> attrs;
  // Where the operation ran, or (traced) asked to run; its gradient runs there too.
  Device* device = nullptr;  // null: traced
  std::shared_ptr<const PlacementRequest> requested;
  // The layer whose call recorded it; null unless numerics are checked (op/numerics.h).
  std::shared_ptr<const std::string> layer;
  std::vector<Input> inputs;
  std::vector<Output> outputs;
  bool released = false;  // a backward pass has freed what was saved
  bool visited = false;   // by the backward pass that is running

  ~OpNode() override;  // iterative, however long the chain of nodes behind it is
  // Frees the saved tensors and edges.
  void free_saved();
};

// A tensor that gradients are asked for: a variable's value or a watched tensor.
struct Leaf final : GradNode {
  explicit Leaf(Device* where) : device(where) {}

  Device* device;  // the tensor's, and so its gradient's; null: that of a symbolic one
  Tensor grad;     // accumulated by backward()
  // Called when a backward() pass has accumulated this leaf's whole gradient in `grad`, while the
  // pass goes on; on the thread of the pass, in an order that depends on the graph alone.
  std::vector<std::function<void(Leaf&)>> on_grad_ready;
};

// What a gradient function sees. It reads what the operation saved and sets the gradient of each
// input that needs one, shaped like that input, computed with operations.
class GradContext {
 public:
  GradContext(OpNode& node, std::vector<Tensor>& input_grads)
      : node_(node), input_grads_(input_grads) {}

  const OpDef& op() const { return *node_.op; }
  template <class A>
  const A& attrs() const {
    return *static_cast<const A*>(node_.attrs.get());
  }
  int num_inputs() const { return static_cast<int>(node_.inputs.size()); }
  int num_outputs() const { return static_cast<int>(node_.outputs.size()); }
  bool needs_grad(int input) const {
    return static_cast<bool>(node_.inputs[static_cast<std::size_t>(input)].edge);
  }
  // Where the gradient of an input goes; null where it needs none.
  const GradEdge& edge(int input) const {
    return node_.inputs[static_cast<std::size_t>(input)].edge;
  }
  const TensorSpec& input_spec(int i) const {
    return node_.inputs[static_cast<std::size_t>(i)].spec;
  }
  const TensorSpec& output_spec(int i) const {
    return node_.outputs[static_cast<std::size_t>(i)].spec;
  }
  // REQUIRES: the OpDef saves it.
  const Tensor& input(int i) const;
  Tensor output(int i) const;
  // The gradient that arrived at output `i`; undefined where nothing depends on that output. An
  // operation with one output always has it.
  const Tensor& grad(int i = 0) const {
    return node_.outputs[static_cast<std::size_t>(i)].gradient;
  }
  // The same, given away, for run_in_place(): grad(i) is undefined afterwards.
  Tensor take_grad(int i = 0) {
    return std::move(node_.outputs[static_cast<std::size_t>(i)].gradient);
  }
  void set_grad(int input, Tensor gradient) {
    input_grads_[static_cast<std::size_t>(input)] = std::move(gradient);
  }

 private:
  OpNode& node_;
  std::vector<Tensor>& input_grads_;
};

// Whether the calling thread records.
extern constinit thread_local bool grad_mode;

inline bool is_tracked(const Tensor& tensor) { return static_cast<bool>(impl_of(tensor).grad); }

// Makes an untracked tensor a leaf. Throws InvalidArgumentError unless its type is floating.
void make_leaf(const Tensor& tensor);

// Records that `op` made `outputs` of `inputs`, on `device` (null: traced). REQUIRES: op.gradient,
// and a tracked input.
OpNode& record(const OpDef& op, AttrsRef attrs, std::span<const Tensor* const> inputs,
               std::span<Tensor> outputs, Device* device);

}  // namespace tandem
