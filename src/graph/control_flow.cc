#include "graph/control_flow.h"

#include <algorithm>

#include "graph/graph.h"
#include "graph/structural_ops.h"

namespace tandem {

bool Node::mutates(std::size_t input) const {
  if (control) return control->writes[input];
  return input < 32 ? (op->mutated_inputs >> input & 1u) != 0 : op->mutated_inputs == kAllTensors;
}

bool has_effects(const Node& node) {
  // A collective needs all its ranks, whoever uses the result.
  return node.op->mutated_inputs != 0 || node.member || (node.control && node.control->effects);
}

std::vector<Node*> written_handles(const GraphImpl& graph) {
  std::vector<Node*> handles;
  for (const auto& node : graph.nodes())
    for (std::size_t i = 0; i < node->inputs.size(); ++i) {
      Node* input = node->inputs[i].node;
      if (input->op == &kVarHandle && node->mutates(i) &&
          std::find(handles.begin(), handles.end(), input) == handles.end())
        handles.push_back(input);
    }
  return handles;
}

}  // namespace tandem
