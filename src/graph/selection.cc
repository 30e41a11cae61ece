#include "graph/selection.h"

#include <unordered_set>
#include <utility>

#include "core/status.h"
#include "graph/control_flow.h"
#include "graph/structural_ops.h"

namespace tandem {
namespace {

bool is_initializer(const Node& node) {
  return node.op == &kAssignVariable && node.inputs[0].node->initializer == &node;
}

template <class F>
void for_each_used(const Node& node, F&& visit) {
  for (const Node::Input& input : node.inputs) visit(*input.node);
  for (const Node* control : node.control_inputs) visit(*control);
}

using Nodes = std::unordered_set<const Node*>;

Nodes ancestors(std::span<const Node* const> outputs, bool freezes, const Nodes& fed) {
  Nodes found;
  std::vector<const Node*> open;
  const auto add = [&](const Node& node) {
    if (!(freezes && is_initializer(node)) && found.insert(&node).second) open.push_back(&node);
  };
  for (const Node* output : outputs) add(*output);
  while (!open.empty()) {
    const Node& node = *open.back();
    open.pop_back();
    if (fed.count(&node) > 0) continue;
    for_each_used(node, add);
    if (node.initializer) add(*node.initializer);
    if (node.counted) add(*node.counted->counter);
    if (node.control && node.control->forward) add(*node.control->forward);
  }
  return found;
}

// All nodes except initializers and nodes that only these use.
Nodes without_initializers(const GraphImpl& graph) {
  Nodes kept, used, left_out;  // used: by a node that is kept
  const auto& nodes = graph.nodes();
  for (auto at = nodes.rbegin(); at != nodes.rend(); ++at) {
    const Node& node = **at;
    const bool only_for_others = left_out.count(&node) > 0 && used.count(&node) == 0;
    const bool keeps = node.op == &kVarHandle || !(is_initializer(node) || only_for_others);
    if (keeps) kept.insert(&node);
    for_each_used(node, [&](const Node& other) { (keeps ? used : left_out).insert(&other); });
    if (keeps && node.control && node.control->forward) used.insert(node.control->forward);
  }
  return kept;
}

void refuse_writes(const Node& node) {
  for (std::size_t i = 0; i < node.inputs.size(); ++i)
    if (node.mutates(i))
      fail<InvalidArgumentError>(
          "[Graph] variable '{}' cannot be stored as a constant: operation '{}' ({}) writes it. "
          "Tell in SerializeOptions::outputs what the graph is for; what only trains is left out "
          "then",
          node.inputs[i].node->name, node.name, node.op->name);
}

}  // namespace

std::unordered_map<const Node*, std::uint32_t> Selection::numbers() const {
  std::unordered_map<const Node*, std::uint32_t> numbers;
  for (const Node* node : nodes) numbers.emplace(node, static_cast<std::uint32_t>(numbers.size()));
  return numbers;
}

std::vector<const Node*> Selection::variables() const {
  std::vector<const Node*> handles;
  for (const Node* node : nodes)
    if (node->op == &kVarHandle) handles.push_back(node);
  return handles;
}

Selection select_nodes(const GraphImpl& graph, std::span<const Node* const> outputs, bool freezes,
                       std::unordered_set<const Node*> fed) {
  Selection selection;
  selection.fed = std::move(fed);
  selection.freezes = freezes;
  const bool all = outputs.empty() && !freezes;
  const Nodes kept = all               ? Nodes()
                     : outputs.empty() ? without_initializers(graph)
                                       : ancestors(outputs, freezes, selection.fed);
  for (const auto& node : graph.nodes()) {
    if (!all && kept.count(node.get()) == 0) continue;
    if (freezes) refuse_writes(*node);
    selection.nodes.push_back(node.get());
  }
  return selection;
}

}  // namespace tandem
