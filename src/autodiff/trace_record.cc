#include "autodiff/trace_record.h"

#include <algorithm>
#include <map>
#include <set>
#include <unordered_set>
#include <utility>

#include "graph/structural_ops.h"

namespace tandem {
namespace {

using EdgeKey = std::pair<const GradNodeBase*, int>;

// The traced operation of an edge; null for leaves and for eager operations.
OpNode* traced_operation(const GradEdge& edge) {
  auto* node = static_cast<GradNode*>(edge.node.get());
  if (!node || !node->op) return nullptr;
  auto* operation = static_cast<OpNode*>(node);
  return operation->device ? nullptr : operation;
}

// The traced operations that the edges depend on, earliest first.
std::vector<RefPtr<OpNode>> operations_before(const std::vector<GradEdge>& edges) {
  std::vector<RefPtr<OpNode>> found;
  std::unordered_set<OpNode*> seen;
  std::vector<OpNode*> stack;
  const auto reach = [&](const GradEdge& edge) {
    OpNode* operation = traced_operation(edge);
    if (!operation || !seen.insert(operation).second) return;
    found.emplace_back(operation);
    stack.push_back(operation);
  };
  for (const GradEdge& edge : edges) reach(edge);
  while (!stack.empty()) {
    OpNode* operation = stack.back();
    stack.pop_back();
    for (const OpNode::Input& input : operation->inputs) reach(input.edge);
  }
  std::sort(found.begin(), found.end(),
            [](const auto& a, const auto& b) { return a->sequence < b->sequence; });
  return found;
}

}  // namespace

Tensor TraceRecord::TracedSource::in_run(std::span<const Tensor> arguments) const {
  if (!captured) return arguments[static_cast<std::size_t>(argument)];
  return captured->resource ? captured->resource->value() : captured->value;
}

Tensor TraceRecord::KeptTensor::in_run(std::span<const Tensor> arguments,
                                       std::span<const Tensor> fetched) const {
  if (argument >= 0) return arguments[static_cast<std::size_t>(argument)];
  return variable ? variable->resource->value() : fetched[static_cast<std::size_t>(fetch)];
}

TraceRecord::TraceRecord(const GraphImpl& graph, std::span<const Tensor> arguments,
                         std::span<const Tensor> outputs) {
  find_roots(outputs);
  find_sources(graph, arguments);
  if (!sources_.empty()) find_kept(graph, arguments);
}

// Finds the outputs whose recorded operations are intact. A backward pass in the callable frees
// those that it visits.
void TraceRecord::find_roots(std::span<const Tensor> outputs) {
  std::vector<GradEdge> edges;
  for (const Tensor& output : outputs) edges.push_back(impl_of(output).grad);
  std::unordered_set<const GradNodeBase*> broken;
  for (const RefPtr<OpNode>& operation : operations_before(edges)) {
    const bool depends_on_broken =
        std::any_of(operation->inputs.begin(), operation->inputs.end(),
                    [&](const OpNode::Input& i) { return broken.count(i.edge.node.get()) > 0; });
    if (operation->released || depends_on_broken) broken.insert(operation.get());
  }
  std::vector<GradEdge> whole;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    if (!edges[i] || broken.count(edges[i].node.get()) > 0) continue;
    roots_.push_back({i, outputs[i]});
    whole.push_back(edges[i]);
  }
  operations_ = operations_before(whole);
}

void TraceRecord::find_sources(const GraphImpl& graph, std::span<const Tensor> arguments) {
  std::set<EdgeKey> ends;
  const auto note = [&](const GradEdge& edge) {
    if (edge && !traced_operation(edge)) ends.emplace(edge.node.get(), edge.index);
  };
  for (const RootOutput& root : roots_) note(impl_of(root.tensor).grad);
  for (const RefPtr<OpNode>& operation : operations_)
    for (const OpNode::Input& input : operation->inputs) note(input.edge);
  const auto take = [&](const GradEdge& edge, TracedSource source) {
    if (!edge || ends.erase({edge.node.get(), edge.index}) == 0) return;
    source.edge = edge;
    sources_.push_back(std::move(source));
  };
  // In the order in which gradients need them: the last operation first.
  for (auto node = graph.nodes().rbegin(); node != graph.nodes().rend(); ++node) {
    if ((*node)->resource)
      take(impl_of((*node)->resource->value()).grad, {.captured = node->get()});
    else if ((*node)->value.defined())
      take(impl_of((*node)->value).grad, {.captured = node->get()});
  }
  for (std::size_t i = 0; i < arguments.size(); ++i)
    take(impl_of(arguments[i]).grad, {.argument = static_cast<int>(i)});
}

void TraceRecord::find_kept(const GraphImpl& graph, std::span<const Tensor> arguments) {
  std::unordered_set<const Node*> written;
  for (const auto& node : graph.nodes())
    for (std::size_t i = 0; i < node->inputs.size() && i < 32; ++i)
      if ((node->op->mutated_inputs >> i & 1u) != 0) written.insert(node->inputs[i].node);
  std::unordered_map<const Node*, int> argument_of;
  for (std::size_t i = 0; i < arguments.size(); ++i)
    argument_of[symbol_of(arguments[i]).node] = static_cast<int>(i);

  std::set<std::pair<const Node*, int>> seen;
  const auto keep = [&](Node::Input tensor) {
    // Views are recreated from their bases, and constants always exist.
    while (tensor.node->op != &kReadVariable && (tensor.node->op->traits & kView) != 0)
      tensor = tensor.node->inputs[0];
    if (tensor.node->op == &kConst || !seen.emplace(tensor.node, tensor.output).second) return;
    KeptTensor kept{.tensor = tensor};
    if (const auto found = argument_of.find(tensor.node); found != argument_of.end()) {
      kept.argument = found->second;
    } else if (tensor.node->op == &kReadVariable && tensor.node->inputs[0].node->resource &&
               written.count(tensor.node->inputs[0].node) == 0) {
      kept.variable = tensor.node->inputs[0].node;
    } else {
      kept.fetch = static_cast<int>(fetches_.size());
      fetches_.push_back(tensor);
    }
    kept_.push_back(kept);
  };
  const auto keep_symbolic = [&](const Tensor& saved) {
    if (saved.defined() && is_symbolic(saved))
      keep({symbol_of(saved).node, symbol_of(saved).output});
  };
  for (const RefPtr<OpNode>& operation : operations_) {
    for (const OpNode::Input& input : operation->inputs) keep_symbolic(input.saved);
    for (const OpNode::Output& output : operation->outputs) keep_symbolic(output.saved);
  }
}

}  // namespace tandem
