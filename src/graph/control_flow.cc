#include "graph/control_flow.h"

#include <algorithm>

#include "graph/graph.h"
#include "graph/structural_ops.h"

namespace tandem {

constinit Registered<const OpDef&(ControlFlow::Kind)> control_flow_op("control_flow_op");

bool Node::mutates(std::size_t input) const {
  if (control) return control->writes[input];
  return input < 32 ? (op->mutated_inputs >> input & 1u) != 0 : op->mutated_inputs == kAllTensors;
}

bool has_effects(const Node& node) {
  // A collective needs all its ranks, even if the result is unused.
  return node.op->mutated_inputs != 0 || node.member || (node.control && node.control->effects);
}

const Node& outermost(const Node& handle) {
  return handle.outside ? outermost(*handle.outside) : handle;
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

bool find_effects(const ControlFlow& flow) {
  // Random operations always run, because the numbers of later ones depend on their count.
  if (flow.source || flow.random) return true;
  if (std::find(flow.writes.begin(), flow.writes.end(), true) != flow.writes.end()) return true;
  return std::any_of(flow.bodies.begin(), flow.bodies.end(), [](const Body& body) {
    const auto& nodes = body.graph->nodes();
    return !body.graph->after_run().empty() ||
           std::any_of(nodes.begin(), nodes.end(),
                       [](const auto& node) { return has_effects(*node); });
  });
}

Node* owner_of(const GraphImpl& graph, const RandomSequence* random) {
  for (const auto& node : graph.nodes())
    if (node->control && !node->control->forward && node->control->random.get() == random)
      return node.get();
  return nullptr;
}

}  // namespace tandem
