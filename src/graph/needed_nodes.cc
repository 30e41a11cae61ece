#include "graph/needed_nodes.h"

#include <algorithm>

namespace tandem {

NeededNodes::NeededNodes(const GraphImpl& graph, const LowerOptions& options)
    : graph_(graph), needed_(graph.nodes().size(), false), last_use_(graph.nodes().size()) {
  const auto is_fed = [&](const Node::Input& tensor) {
    return std::find(options.feeds.begin(), options.feeds.end(), tensor) != options.feeds.end();
  };
  for (const Node::Input& fetch : options.fetches) {
    if (!is_fed(fetch)) need(*fetch.node);
    use(fetch, kFetched);
  }
  for (const Node* target : options.targets) need(*target);
  // From the last node to the first, because inputs have smaller ids.
  for (auto at = graph.nodes().rbegin(); at != graph.nodes().rend(); ++at) {
    const Node& node = **at;
    if (options.all_updates && has_effects(node)) need(node);
    if (!contains(node)) continue;
    for (const Node::Input& input : node.inputs) {
      if (!is_fed(input)) need(*input.node);
      use(input, node.id);
    }
    for (const Node* control : node.control_inputs) need(*control);
    if (node.control && node.control->needs_record()) need(*node.control->forward);
  }
}

int NeededNodes::last_use(const Node::Input& tensor) const {
  const std::vector<int>& uses = last_use_[static_cast<std::size_t>(tensor.node->id)];
  const auto output = static_cast<std::size_t>(tensor.output);
  return output < uses.size() ? uses[output] : -1;
}

void NeededNodes::use(const Node::Input& tensor, int node) {
  std::vector<int>& uses = last_use_[static_cast<std::size_t>(tensor.node->id)];
  uses.resize(tensor.node->outputs.size(), -1);
  int& last = uses[static_cast<std::size_t>(tensor.output)];
  last = std::max(last, node);
}

}  // namespace tandem
