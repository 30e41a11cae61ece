#include "function/graph_programs.h"

#include "core/status.h"
#include "function/placer.h"
#include "graph/structural_ops.h"

namespace tandem {

GraphPrograms::GraphPrograms(RefPtr<GraphImpl> graph, const proto::Function& function,
                             Options options)
    : graph_(std::move(graph)), options_(std::move(options)), memory_(ProgramMemory::make()) {
  for (const std::uint32_t index : function.feeds()) {
    Node& node = node_at(index);
    if (node.op != &kPlaceholder)
      fail<InvalidArgumentError>("[{}] node '{}' is fed, but is not a placeholder", name(),
                                 node.name);
    feeds_.push_back({&node, 0});
  }
  for (const proto::Output& fetch : function.fetches()) {
    Node& node = node_at(fetch.node());
    if (fetch.output() >= node.outputs.size() || node.op == &kVarHandle)
      fail<InvalidArgumentError>("[{}] output {} of node '{}' cannot be fetched", name(),
                                 fetch.output(), node.name);
    fetches_.push_back({&node, static_cast<int>(fetch.output())});
  }
}

Node& GraphPrograms::node_at(std::uint32_t index) const {
  if (index >= graph_->nodes().size())
    fail<InvalidArgumentError>("[{}] expected a node below {}, got {}", name(),
                               graph_->nodes().size(), index);
  return *graph_->nodes()[index];
}

void GraphPrograms::check(std::span<const Tensor> inputs) const {
  if (inputs.size() != feeds_.size())
    fail<InvalidArgumentError>("[{}] expected {} inputs, got {}", name(), feeds_.size(),
                               inputs.size());
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const TensorType& spec = feeds_[i].node->outputs[0];
    if (inputs[i].dtype() != spec.dtype || !spec.shape.matches(inputs[i].shape()))
      fail<InvalidArgumentError>("[{}] expected input {} of shape {} and dtype {}, got {} and {}",
                                 name(), i, spec.shape.to_string(), name_of(spec.dtype),
                                 inputs[i].shape().to_string(), name_of(inputs[i].dtype()));
  }
}

Program& GraphPrograms::program_for(std::span<const Tensor> inputs) {
  std::string key;
  for (const Tensor& input : inputs) append_to_key(key, input);
  if (const auto* found = programs_.find(key)) return **found;
  KnownSizes sizes;
  LowerOptions options{
      .feeds = feeds_, .fetches = fetches_, .all_updates = options_.updates, .sizes = &sizes};
  for (const Tensor& input : inputs) options.add_given(input);
  options.devices = place_graph(*graph_);
  options.devices_of = [](const GraphImpl& body) { return place_graph(body); };
  auto program = std::make_unique<Program>(
      lower(*graph_, options),
      ProgramOptions{.name = fmt::format("'{}'", name()), .memory = memory_});
  Program& made = *program;
  programs_.put(std::move(key), std::move(program));
  return made;
}

void GraphPrograms::run(std::span<const Tensor> inputs, std::vector<Tensor>& outputs) {
  check(inputs);
  program_for(inputs).run(inputs, outputs);
}

}  // namespace tandem
