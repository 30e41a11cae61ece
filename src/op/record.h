// Recorded operations, for gradients.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "op/context.h"
#include "op/op.h"

namespace tandem {

// Increases from call to call, over all threads.
std::uint64_t new_sequence();

// A recorded operation, or a leaf (op == nullptr). Nodes form a graph from results to leaves
// through their input edges. Not thread-safe: one backward pass at a time over a graph.
struct GradNode : GradNodeBase {
  // Sees the gradient of result `index` in a backward pass; may return another one.
  struct Hook {
    std::int32_t index;
    std::function<Tensor(const Tensor& gradient)> call;
  };

  const OpDef* op = nullptr;
  // In the order of recording. A node's inputs have smaller numbers, so decreasing order is a
  // topological order for the backward pass.
  std::uint64_t sequence = 0;
  std::unique_ptr<std::vector<Hook>> hooks;  // null if there are none

  ~GradNode() override = default;
  // Calls the hooks of result `index` in order. Throws InvalidArgumentError if one returns a
  // gradient of another shape or dtype.
  void call_hooks(std::int32_t index, Tensor& gradient) const;
};

struct OpNode;

// The records that the tapes of a thread have. They do not keep them: a record that nothing else
// refers to is freed at once. When the last tape that has a record ends, it is freed even if
// tensors refer to it, unless it leads to a leaf that no tape has made, from which a backward() may
// still want it. A result that is computed under a later tape does not refer to it in either case,
// so that a program's earlier results do not keep its whole history. Thread-safe: other threads may
// free records.
class TapeRecords final : public RefCounted {
 public:
  static TapeRecords& of_thread();

  // Begins a tape, which has all records from now on. Returns its number.
  std::uint64_t begin_tape();
  void end_tape(std::uint64_t tape);
  // Adds a record if the thread has live tapes, and no other thread has one for it.
  void add(OpNode& node);
  void remove(OpNode& node);
  // Whether all tapes that had the record have ended.
  bool is_over(const OpNode& node) const;
  // The same, unless a live tape watches its results.
  bool has_ended(const OpNode& node) const;
  void watch(const OpNode& node);
  void unwatch(const OpNode& node);

 private:
  struct Freed;
  void unlink(OpNode& node);
  std::uint64_t find_oldest();

  mutable std::mutex mutex_;  // guards the following, and what the nodes know of their neighbours
  std::vector<std::uint64_t> tapes_;
  std::vector<const OpNode*> watched_;
  OpNode *first_ = nullptr, *last_ = nullptr;
  std::atomic<std::uint64_t> oldest_{~std::uint64_t{0}};  // of the live tapes
};

// The device that a traced operation requested.
struct PlacementRequest {
  DeviceName device;
  std::string text;  // as the user wrote it
};

struct OpNode final : GradNode {
  struct Input {
    GradEdge edge;  // null if the input is not tracked
    TensorType spec;
    Tensor saved;  // undefined if the gradient does not read it
  };
  struct Output {
    TensorType spec;
    Tensor saved;     // without its edge, which would refer to this node
    Tensor gradient;  // the sum so far, during a backward pass
  };
  std::shared_ptr<const void> attrs;
  // The device of the operation, or the requested device of a traced one. Its gradient runs there
  // too.
  DeviceImpl* device = nullptr;  // null if traced
  std::shared_ptr<const PlacementRequest> requested;
  // The layer whose call recorded it; null unless numerics are checked (op/numerics.h).
  std::shared_ptr<const std::string> layer;
  std::vector<Input> inputs;
  std::vector<Output> outputs;
  std::atomic<bool> released{false};  // a backward pass has freed what was saved
  bool visited = false;               // by the current backward pass
  // It has nothing any more, because the tapes that had it have ended. Tensors that refer to it are
  // not tracked.
  std::atomic<bool> ended{false};
  bool outlasts_tapes = false;  // leads to a leaf that no tape has made
  RefPtr<TapeRecords> tapes;    // in whose list it is, or was; null if in none
  OpNode *earlier = nullptr, *later = nullptr;

  ~OpNode() override;  // iterative, so that long chains of nodes do not overflow the stack
  // Frees the saved tensors and edges.
  void free_saved();
};

// A tensor that accumulates gradients: a variable's value or a watched tensor.
struct Leaf final : GradNode {
  explicit Leaf(DeviceImpl* where) : device(where) { sequence = new_sequence(); }

  // Accumulated by backward(). Throws FailedPreconditionError in a trace if it is from before: each
  // run would read the elements that it has now.
  const Tensor& grad() const;
  // The same for users, who may call zero_() on it: no other tensor has its TensorImpl.
  Tensor own_grad();
  Tensor& grad_to_accumulate();  // the same, to change it
  void set_grad(Tensor gradient);

  DeviceImpl* device;  // of the tensor and its gradient; null if symbolic
  // Called during a backward() pass when this leaf's gradient in `grad` is complete. Called on the
  // thread of the pass, in an order that depends on the graph alone.
  std::vector<std::function<void(Leaf&)>> on_grad_ready;

 private:
  friend class TracedGradients;
  Tensor grad_;

 public:
  bool of_tape = false;  // a tape has made it
};

// The gradients that a function gives to leaves while this thread traces it. They are of its runs:
// afterwards each leaf has its earlier gradient again.
class TracedGradients {
 public:
  TracedGradients();
  ~TracedGradients();
  TracedGradients(const TracedGradients&) = delete;
  TracedGradients& operator=(const TracedGradients&) = delete;

  // Returns whether the gradient of `leaf` is the trace's.
  bool has(const Leaf& leaf) const { return earlier_.count(&leaf) > 0; }
  void add(Leaf& leaf);

 private:
  struct Earlier {
    RefPtr<Leaf> leaf;
    Tensor gradient;
  };
  std::unordered_map<const Leaf*, Earlier> earlier_;
};

// Whether the edge leads to a record that was freed with its tapes.
inline bool has_ended(const GradEdge& edge) {
  const auto* node = static_cast<const GradNode*>(edge.node.get());
  return node && node->op &&
         static_cast<const OpNode*>(node)->ended.load(std::memory_order_relaxed);
}
inline bool leads_to_leaf(const GradEdge& edge) { return edge && !has_ended(edge); }
// Whether the edge leads to no leaf but those of tapes that have ended.
bool is_constant(const GradEdge& edge);
// Whether the edge led to leaves, but gives no gradients to new records: a pass has freed what it
// leads to or, under a live tape, it is of tapes that have ended.
bool is_dead_end(const GradEdge& edge);

// The argument of gradient functions. They read the saved tensors and set the gradient of each
// input that needs one. A gradient has the shape of its input and is computed by operations.
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
    return leads_to_leaf(node_.inputs[static_cast<std::size_t>(input)].edge);
  }
  // The edge that receives the gradient of an input; null if it needs none.
  const GradEdge& edge(int input) const {
    return node_.inputs[static_cast<std::size_t>(input)].edge;
  }
  const TensorType& input_spec(int i) const {
    return node_.inputs[static_cast<std::size_t>(i)].spec;
  }
  const TensorType& output_spec(int i) const {
    return node_.outputs[static_cast<std::size_t>(i)].spec;
  }
  // REQUIRES: the OpDef saves it.
  const Tensor& input(int i) const;
  Tensor output(int i) const;
  // The gradient of output `i`; undefined if nothing depends on that output. It is always defined
  // for operations with one output.
  const Tensor& grad(int i = 0) const {
    return node_.outputs[static_cast<std::size_t>(i)].gradient;
  }
  // Moves the gradient out, for run_in_place(): grad(i) is undefined afterwards.
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

inline bool is_tracked(const Tensor& tensor) { return leads_to_leaf(impl_of(tensor).grad); }

// Makes an untracked tensor a leaf. Throws InvalidArgumentError unless its type is floating.
void make_leaf(const Tensor& tensor);

// Lets results of an operation whose inputs are constants or dead ends be dead ends: a backward()
// over them throws, in place of taking them for constants.
void pass_on_end(std::span<const Tensor* const> inputs, std::span<Tensor> outputs);

// Records that `op` computed `outputs` from `inputs` on `device` (null if traced). REQUIRES:
// op.gradient, and a tracked input. Returns the node, to which no output refers if none is
// floating.
RefPtr<OpNode> record(const OpDef& op, AttrsRef attrs, std::span<const Tensor* const> inputs,
                      std::span<Tensor> outputs, DeviceImpl* device);

}  // namespace tandem
