// Traces the bodies of control flow as separate graphs.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "function/body_random.h"
#include "graph/graph.h"

namespace tandem {

using BodyFn = std::function<std::vector<Tensor>(const std::vector<Tensor>& arguments)>;

struct TracedBody {
  RefPtr<GraphImpl> graph;
  std::vector<Tensor> arguments;  // that the callable was called with
  std::vector<Tensor> results;
  RandomSequence::BodyCount random;
};

// Calls `body` once with symbolic tensors and records its operations in a graph that is nested in
// the one that the thread builds. REQUIRES: context.graph.
TracedBody trace_body(std::span<const TensorType> arguments, const BodyFn& body);

// Adds a node that runs `bodies` to the graph that the thread builds, and records it for gradients.
// `flow`: the kind and its settings; the other fields are computed here. `given`: the predicate of
// a branch, or the initial carried values of a loop. Returns the node's outputs, of these specs.
std::vector<Tensor> add_control_flow(const OpDef& op, ControlFlow flow,
                                     std::span<const Tensor> given, std::vector<TracedBody> bodies,
                                     std::vector<TensorType> outputs);

// Records for gradients that `node` computes `outputs` from `inputs`, if one of these is tracked.
void record_control_flow(const Node& node, std::span<const Tensor* const> inputs,
                         std::span<Tensor> outputs);

}  // namespace tandem
