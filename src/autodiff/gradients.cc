// gradients(): reconstructs the recorded operations from the nodes of the graph.
#include <unordered_map>
#include <utility>

#include "autodiff/engine.h"
#include "core/status.h"
#include "graph/graph.h"
#include "graph/structural_ops.h"
#include "runtime/variable_impl.h"
#include "tandem/array.h"
#include "tandem/creation.h"
#include "tandem/graph.h"

namespace tandem {
namespace {

// Records the operations between sources and a target.
class Replay {
 public:
  Replay(GraphImpl& graph, const Node::Input& target, const std::vector<Node::Input>& sources)
      : graph_(graph), sources_(sources), wanted_(graph.nodes().size(), false) {
    wanted_[static_cast<std::size_t>(target.node->id)] = true;
    for (int id = target.node->id; id >= 0; --id) {
      if (!wanted_[static_cast<std::size_t>(id)]) continue;
      for (const Node::Input& input : graph.nodes()[static_cast<std::size_t>(id)]->inputs)
        wanted_[static_cast<std::size_t>(input.node->id)] = true;
    }
    tensors_.resize(wanted_.size());
    for (int id = 0; id <= target.node->id; ++id)
      if (wanted_[static_cast<std::size_t>(id)])
        replay(*graph.nodes()[static_cast<std::size_t>(id)]);
  }

  // Null if the target does not depend on the tensor.
  GradEdge edge_of(const Node::Input& tensor) const {
    const auto& tensors = tensors_[static_cast<std::size_t>(tensor.node->id)];
    return tensors.empty() ? GradEdge()
                           : impl_of(tensors[static_cast<std::size_t>(tensor.output)]).grad;
  }

 private:
  void replay(Node& node) {
    auto& outputs = tensors_[static_cast<std::size_t>(node.id)];
    for (std::size_t i = 0; i < node.outputs.size(); ++i)
      outputs.push_back(graph_.tensor(node, static_cast<int>(i)));
    if (node.op == &kReadVariable) {
      // A read of a variable has the leaf of the variable.
      impl_of(outputs[0]).grad = edge_of(node.inputs[0]);
    } else {
      std::vector<const Tensor*> inputs;
      bool tracked = false;
      for (const Node::Input& input : node.inputs) {
        inputs.push_back(&tensors_[static_cast<std::size_t>(input.node->id)]
                                  [static_cast<std::size_t>(input.output)]);
        tracked = tracked || is_tracked(*inputs.back());
      }
      if (tracked && node.op->gradient) {
        const RefPtr<OpNode> recorded =
            record(*node.op, {&node.op->attrs(), node.attrs.get()}, inputs, outputs, nullptr);
        if (!(node.requested == DeviceName()))
          recorded->requested = std::make_shared<const PlacementRequest>(
              PlacementRequest{node.requested, node.requested_text});
      }
    }
    for (const Node::Input& source : sources_)
      if (source.node == &node) {
        Tensor& output = outputs[static_cast<std::size_t>(source.output)];
        if (!is_tracked(output)) output.set_requires_grad();
      }
  }

  GraphImpl& graph_;
  const std::vector<Node::Input>& sources_;
  std::vector<bool> wanted_;
  std::vector<std::vector<Tensor>> tensors_;  // of each node
};

std::vector<Tensor> gradients_of(const Tensor& target, const std::vector<Node::Input>& sources,
                                 const GradientOptions& options) {
  const TensorImpl& from = impl_of(target);
  Tensor seed = options.output_gradient.defined() ? options.output_gradient : ones_like(target);
  if (!may_agree(seed.shape(), from.shape) || seed.dtype() != from.dtype)
    fail<InvalidArgumentError>(
        "[gradients] expected an output gradient of shape {} and dtype {}, got {} and {}",
        from.shape.to_string(), name_of(from.dtype), seed.shape().to_string(),
        name_of(seed.dtype()));
  seed = ensure_shape(seed, from.shape);
  const Node::Input root = context.graph->input_of(target);
  const Replay replay(*context.graph, root, sources);
  BackwardPass pass;
  pass.roots.push_back({replay.edge_of(root), seed});
  std::vector<std::size_t> indices;  // of the sources that the target depends on
  for (std::size_t i = 0; i < sources.size(); ++i)
    if (GradEdge edge = replay.edge_of(sources[i])) {
      pass.sources.push_back(std::move(edge));
      indices.push_back(i);
    }
  std::vector<Tensor> result(sources.size());
  if (pass.roots[0].edge && !pass.sources.empty()) {
    std::vector<Tensor> found = run_backward(pass);
    for (std::size_t i = 0; i < indices.size(); ++i) result[indices[i]] = std::move(found[i]);
  }
  if (options.unconnected_gradients == UnconnectedGradients::kZero)
    for (std::size_t i = 0; i < sources.size(); ++i)
      if (!result[i].defined()) {
        const TensorType& spec =
            sources[i].node->outputs[static_cast<std::size_t>(sources[i].output)];
        result[i] = zeros(spec.shape, {.dtype = spec.dtype});
      }
  return result;
}

void check_target(const Tensor& target) {
  if (!context.graph || !is_symbolic(target))
    throw FailedPreconditionError(
        "[gradients] expected a tensor of the graph that is being built; GradientTape and "
        "backward() are for tensors that have elements");
  if (!is_floating(target.dtype()))
    fail<InvalidArgumentError>("[gradients] the target must be a floating tensor, got {}",
                               name_of(target.dtype()));
}

Node::Input source_of(const Tensor& tensor) {
  if (!is_floating(tensor.dtype()))
    fail<InvalidArgumentError>("[gradients] only floating tensors have gradients, got {}",
                               name_of(tensor.dtype()));
  return context.graph->input_of(tensor);
}

}  // namespace

std::vector<Tensor> gradients(const Tensor& target, const std::vector<Tensor>& sources,
                              const GradientOptions& options) {
  check_target(target);
  std::vector<Node::Input> inputs;
  for (const Tensor& source : sources) inputs.push_back(source_of(source));
  return gradients_of(target, inputs, options);
}

std::vector<Tensor> gradients(const Tensor& target, const std::vector<Variable>& sources,
                              const GradientOptions& options) {
  check_target(target);
  std::vector<Node::Input> inputs;
  for (const Variable& source : sources) {
    VariableImpl& variable = source.impl();
    inputs.push_back(source_of(variable.memory(variable.local_index())));
  }
  return gradients_of(target, inputs, options);
}

}  // namespace tandem
