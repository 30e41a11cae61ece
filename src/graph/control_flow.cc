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
    return !body.graph->counters().empty() || body.graph->has_actions() ||
           std::any_of(nodes.begin(), nodes.end(),
                       [](const auto& node) { return has_effects(*node); });
  });
}

void add_to(Resource& counter, std::int64_t runs) {
  *reinterpret_cast<std::int64_t*>(impl_of(counter.writable()).data()) += runs;
}

void GraphImpl::end_run() const {
  for (const RefPtr<Resource>& counter : counters_) add_to(*counter, 1);
  for (const auto& action : after_run_) action();
}

std::vector<Resource*> counters_of(const ControlFlow& flow) {
  std::vector<Resource*> counters;
  const auto add = [&](Resource* counter) {
    const auto same = [&](const Resource* other) {
      return other->identity() == counter->identity();
    };
    if (std::none_of(counters.begin(), counters.end(), same)) counters.push_back(counter);
  };
  for (const Body& body : flow.bodies) {
    if (!body.updates) continue;
    for (const RefPtr<Resource>& counter : body.graph->counters()) add(counter.get());
    for (const auto& node : body.graph->nodes())
      if (node->control)
        for (Resource* counter : counters_of(*node->control)) add(counter);
  }
  return counters;
}

std::optional<std::int64_t> most_counts(const ControlFlow& flow, const Resource& counter,
                                        std::int64_t limit) {
  std::int64_t most = 0;
  for (const Body& body : flow.bodies) {
    if (!body.updates) continue;
    std::int64_t of_body = 0;
    for (const RefPtr<Resource>& counted : body.graph->counters())
      of_body += counted->identity() == counter.identity() ? 1 : 0;
    for (const auto& node : body.graph->nodes()) {
      if (!node->control) continue;
      const std::optional<std::int64_t> inside = most_counts(*node->control, counter, limit);
      if (!inside) return std::nullopt;
      of_body += *inside;
    }
    most = std::max(most, of_body);
  }
  if (flow.loops() && most > 0) {
    if (flow.maximum_iterations < 0 || flow.maximum_iterations > limit / most) return std::nullopt;
    most *= flow.maximum_iterations;
  }
  return most <= limit ? std::optional(most) : std::nullopt;
}

Node* owner_of(const GraphImpl& graph, const RandomSequence* random) {
  for (const auto& node : graph.nodes())
    if (node->control && !node->control->forward && node->control->random.get() == random)
      return node.get();
  return nullptr;
}

}  // namespace tandem
