#include "parallel/reachable.h"

namespace tandem::parallel {

void add_leaves_of(const Tensor& tensor, std::unordered_set<const Leaf*>& leaves) {
  std::unordered_set<const OpNode*> seen;
  std::vector<const OpNode*> stack;
  const auto reach = [&](const GradEdge& edge) {
    if (!edge) return;
    const auto* node = static_cast<const GradNode*>(edge.node.get());
    if (!node->op)
      leaves.insert(static_cast<const Leaf*>(node));
    else if (const auto* op_node = static_cast<const OpNode*>(node); seen.insert(op_node).second)
      stack.push_back(op_node);
  };
  reach(impl_of(tensor).grad);
  while (!stack.empty()) {
    const OpNode* node = stack.back();
    stack.pop_back();
    for (const OpNode::Input& input : node->inputs) reach(input.edge);
  }
}

}  // namespace tandem::parallel
