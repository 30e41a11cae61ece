#include "runtime/traced_collective.h"

#include "runtime/placement.h"

namespace tandem {

std::vector<Tensor> trace_collective(const OpDef& op, AttrsRef attrs,
                                     std::span<const Tensor> tensors,
                                     const std::shared_ptr<const CollectiveMember>& member,
                                     DeviceImpl& device) {
  const OnDevice on(device);
  std::vector<Node::Input> inputs;
  inputs.reserve(tensors.size());
  for (const Tensor& tensor : tensors) inputs.push_back(context.graph->input_of(tensor));
  Node& node = context.graph->add(op, attrs, inputs, node_options());
  node.member = member;
  std::vector<Tensor> results;
  results.reserve(node.outputs.size());
  for (std::size_t i = 0; i < node.outputs.size(); ++i)
    results.push_back(context.graph->tensor(node, static_cast<int>(i)));
  return results;
}

}  // namespace tandem
