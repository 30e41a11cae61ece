#include "autodiff/engine.h"

#include <algorithm>
#include <limits>
#include <map>
#include <unordered_map>
#include <utility>

#include "core/status.h"
#include "graph/graph.h"
#include "op/context.h"
#include "ops/math/binary.h"
#include "runtime/autocast.h"
#include "runtime/dispatch.h"
#include "runtime/gradient_buffer.h"
#include "runtime/placement.h"
#include "tandem/array.h"
#include "tandem/autodiff.h"

namespace tandem {
namespace {

GradNode* node_of(const GradEdge& edge) { return static_cast<GradNode*>(edge.node.get()); }

class BackwardEngine {
 public:
  explicit BackwardEngine(const BackwardPass& pass) : pass_(pass), results_(pass.sources.size()) {}

  ~BackwardEngine() {  // runs also if a gradient function has thrown
    for (const auto& node : nodes_) {
      node->visited = false;
      for (auto& output : node->outputs) output.gradient = {};
    }
  }

  std::vector<Tensor> run() {
    for (std::size_t i = 0; i < pass_.sources.size(); ++i)
      sources_of_[node_of(pass_.sources[i])].push_back(i);
    collect();
    const Scoped mode(context.records, pass_.create_graph);
    // Gradients have the dtypes of the forward pass.
    const AutocastScope no_autocast(std::nullopt);
    const GradientBufferProvider buffers = provider();
    const Scoped scope(context.gradient_buffers, buffers ? &buffers : nullptr);
    for (const auto& root : pass_.roots) {
      if (root.edge) deliver(root.edge, root.gradient);
    }
    for (const auto& root : pass_.roots)
      if (root.edge) arrived(root.edge);
    for (const auto& node : nodes_) visit(*node);
    return std::move(results_);
  }

 private:
  struct LeafSlot {
    int expected = 0;  // edges whose gradients are still missing
    Tensor gradient;
  };

  using GradientBufferProvider = std::function<Tensor(const Leaf& leaf)>;

  // A recorded pass keeps its gradients, so they must not be computed in shared buffers.
  GradientBufferProvider provider() const {
    if (pass_.create_graph) return nullptr;
    if (pass_.sources.empty()) return gradient_buffer_of;
    if (!pass_.buffer) return nullptr;
    return [this](const Leaf& leaf) {
      const auto found = sources_of_.find(const_cast<Leaf*>(&leaf));
      return found == sources_of_.end() ? Tensor() : pass_.buffer(found->second.front());
    };
  }

  // Finds all nodes that the roots depend on, in the order of the pass: latest recorded first. If
  // there are sources, without the history before them, which leads to none.
  void collect() {
    std::uint64_t first = pass_.sources.empty() ? 0 : std::numeric_limits<std::uint64_t>::max();
    for (const GradEdge& source : pass_.sources) first = std::min(first, node_of(source)->sequence);
    std::vector<OpNode*> stack;
    const auto reach = [&](const GradEdge& edge) {
      GradNode* node = node_of(edge);
      if (!node->op) {
        ++leaves_[static_cast<Leaf*>(node)].expected;
        return;
      }
      auto* op_node = static_cast<OpNode*>(node);
      if (pass_.of_tape && of_ended_tapes(*op_node)) {
        if (sources_of_.count(node) == 0) return;
      } else if (is_constant(edge)) {
        return;
      } else if (op_node->ended.load(std::memory_order_relaxed)) {
        fail<RuntimeError>(
            "[backward] trying to backpropagate through '{}', which one GradientTape recorded, and "
            "whose result was used under a later one: tapes take results of tapes that have ended "
            "for constants. Use one tape for both, or detach() the result.",
            node->op->name);
      }
      if (op_node->visited || op_node->sequence < first) return;
      op_node->visited = true;
      nodes_.emplace_back(op_node);
      if (!ends_at(node)) stack.push_back(op_node);
    };
    for (const auto& root : pass_.roots)
      if (root.edge) reach(root.edge);
    while (!stack.empty()) {
      OpNode* node = stack.back();
      stack.pop_back();
      for (const auto& input : node->inputs)
        if (input.edge) reach(input.edge);
    }
    std::sort(nodes_.begin(), nodes_.end(),
              [](const auto& a, const auto& b) { return a->sequence > b->sequence; });
    if (!pass_.sources.empty()) keep_paths_to_sources();
    for (const auto& node : nodes_)
      if (node->released && passes(node.get()) && !ends_at(node.get()))
        fail<RuntimeError>(
            "[backward] trying to backpropagate through '{}' a second time, but its saved tensors "
            "were freed by the first pass. "
            "Use a persistent tape, or BackwardOptions{{.retain_graph = true}}.",
            node->op->name);
  }

  // Nodes from which no source can be reached need no gradient.
  void keep_paths_to_sources() {
    for (auto node = nodes_.rbegin(); node != nodes_.rend();
         ++node) {  // earliest first, so that inputs are decided before
      bool passes = false;
      for (const auto& input : (*node)->inputs)
        if (input.edge && leads_to_source(node_of(input.edge))) passes = true;
      if (passes || sources_of_.count(node->get()) > 0) needed_.emplace(node->get(), passes);
    }
  }

  bool leads_to_source(GradNode* node) const {
    return node->op ? needed_.count(node) > 0 : sources_of_.count(node) > 0;
  }
  bool ends_at(GradNode* node) const {
    if (pass_.of_tape && node->op && of_ended_tapes(*static_cast<OpNode*>(node))) return true;
    return pass_.stop_at_sources && sources_of_.count(node) > 0;
  }
  static bool of_ended_tapes(const OpNode& node) {
    return node.ended.load(std::memory_order_relaxed) || (node.tapes && node.tapes->is_over(node));
  }
  bool wanted(GradNode* node) const { return pass_.sources.empty() || leads_to_source(node); }
  // Whether the gradients of its inputs are wanted.
  bool passes(const OpNode* node) const {
    if (pass_.sources.empty()) return true;
    const auto found = needed_.find(node);
    return found != needed_.end() && found->second;
  }

  // Adds in place if only this pass refers to the sum.
  static void accumulate(Tensor& sum, const Tensor& gradient) {
    if (!sum.defined()) {
      sum = gradient;
      return;
    }
    OnDeviceOf on(sum);
    sum = run_in_place(kAddN, std::move(sum), {&gradient}, NoAttrs());
  }

  // Adds `gradient` to the sum at the edge.
  void deliver(const GradEdge& edge, const Tensor& gradient) {
    GradNode* node = node_of(edge);
    if (node->op)
      accumulate(static_cast<OpNode*>(node)->outputs[static_cast<std::size_t>(edge.index)].gradient,
                 gradient);
    else
      accumulate(leaves_[static_cast<Leaf*>(node)].gradient,
                 on_device_of(*static_cast<Leaf*>(node), gradient));
  }

  static Tensor on_device_of(const Leaf& leaf, const Tensor& gradient) {
    if (!leaf.device || is_symbolic(gradient) || &impl_of(gradient).device() == leaf.device)
      return gradient;
    Tensor copy = copy_to_device(gradient, *leaf.device);
    impl_of(copy).grad = impl_of(gradient).grad;
    return copy;
  }

  // An edge to a leaf is done. After the last one the leaf's gradient is complete.
  void arrived(const GradEdge& edge) {
    GradNode* node = node_of(edge);
    if (node->op) return;
    auto* leaf = static_cast<Leaf*>(node);
    LeafSlot& slot = leaves_[leaf];
    if (--slot.expected > 0 || !slot.gradient.defined()) return;
    if (leaf->hooks) leaf->call_hooks(0, slot.gradient);
    if (pass_.sources.empty()) {
      accumulate(leaf->grad_to_accumulate(), slot.gradient);
      slot.gradient = {};
      for (const auto& hook : leaf->on_grad_ready) hook(*leaf);
    } else {
      ready(node, 0, std::exchange(slot.gradient, {}));
    }
  }

  void ready(GradNode* node, int index, Tensor gradient) {
    const auto found = sources_of_.find(node);
    if (found == sources_of_.end()) return;
    for (std::size_t source : found->second) {
      if (pass_.sources[source].index != index) continue;
      if (!pass_.on_ready)
        results_[source] = gradient;
      else if (source == found->second.back())
        pass_.on_ready(source, std::move(gradient));
      else
        pass_.on_ready(source, gradient);
    }
  }

  void visit(OpNode& node) {
    bool any = false;
    for (std::size_t i = 0; i < node.outputs.size(); ++i) {
      if (!node.outputs[i].gradient.defined()) continue;
      any = true;
      if (node.hooks) node.call_hooks(static_cast<std::int32_t>(i), node.outputs[i].gradient);
      if (!sources_of_.empty()) ready(&node, static_cast<int>(i), node.outputs[i].gradient);
    }
    if (ends_at(&node)) {
      for (auto& output : node.outputs) output.gradient = {};
      return;
    }
    input_grads_.assign(node.inputs.size(), Tensor());
    if (any && passes(&node)) {
      OnDeviceOf on(node);
      const Scoped of(context.differentiated, &node);
      GradContext context(node, input_grads_);
      node.op->gradient(context);
    }
    for (auto& output : node.outputs) output.gradient = {};
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      const GradEdge& edge = node.inputs[i].edge;
      if (!edge) continue;
      if (input_grads_[i].defined() && wanted(node_of(edge))) {
        fit(node, i);
        deliver(edge, input_grads_[i]);
      }
      input_grads_[i] = {};
      arrived(edge);
    }
    if (!pass_.retain_graph && !pass_.create_graph && passes(&node)) node.free_saved();
  }

  // Checks that the gradient has the input's dtype and shape. Unknown sizes are checked when the
  // graph runs.
  void fit(const OpNode& node, std::size_t i) {
    const TensorType& spec = node.inputs[i].spec;
    const TensorImpl& gradient = impl_of(input_grads_[i]);
    if (gradient.shape == spec.shape && gradient.dtype == spec.dtype) return;
    if (gradient.dtype == spec.dtype && may_agree(gradient.shape, spec.shape)) {
      const OnDeviceOf on(node);
      input_grads_[i] = ensure_shape(input_grads_[i], spec.shape);
      return;
    }
    fail<InternalError>(
        "[{}] the gradient of input {} has shape {} and dtype {}, expected {} and {}",
        node.op->name, i, gradient.shape.to_string(), name_of(gradient.dtype),
        spec.shape.to_string(), name_of(spec.dtype));
  }

  const BackwardPass& pass_;
  std::vector<Tensor> results_;
  std::vector<RefPtr<OpNode>> nodes_;  // kept while the pass frees the edges between them
  std::unordered_map<GradNode*, std::vector<std::size_t>> sources_of_;
  // Nodes that lead to a source or are one, and whether they lead to another one.
  std::unordered_map<const GradNode*, bool> needed_;
  std::map<Leaf*, LeafSlot> leaves_;  // most passes have few, for which a hash table costs more
  std::vector<Tensor> input_grads_;
};

}  // namespace

std::vector<Tensor> run_backward(const BackwardPass& pass) {
  const Scoped tag(memory_tag, MemoryTag::kGradients);
  std::vector<std::function<void(bool)>> mine;
  std::vector<Tensor> gradients;
  try {
    const Scoped scope(context.after_backward, &mine);
    gradients = BackwardEngine(pass).run();
  } catch (...) {
    for (const auto& then : mine) then(false);
    throw;
  }
  for (const auto& then : mine) then(true);
  return gradients;
}

void after_backward(std::function<void(bool completed)> then) {
  TANDEM_ASSERT(context.after_backward);
  context.after_backward->push_back(std::move(then));
}

}  // namespace tandem
