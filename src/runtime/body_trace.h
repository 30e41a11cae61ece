// Bodies of control flow: callables that are traced as graphs of their own.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "graph/graph.h"
#include "runtime/body_random.h"

namespace tandem {

using BodyFn = std::function<std::vector<Tensor>(const std::vector<Tensor>& arguments)>;

struct TracedBody {
  RefPtr<GraphImpl> graph;
  std::vector<Tensor> arguments;  // as the callable was given them
  std::vector<Tensor> results;
  RandomSequence::BodyCount random;
};

// Calls `body` once with symbolic tensors; what it does becomes a graph inside of the one that the
// thread builds. REQUIRES: building.
TracedBody trace_body(std::span<const TensorSpec> arguments, const BodyFn& body);

// Adds the node that runs `bodies` to the graph that the thread builds, and records it. `flow`: its
// kind and what goes with it; the rest is found out. `given`: the predicate of a branch, or what a
// loop carries. Returns the node's outputs, of these specs.
std::vector<Tensor> add_control_flow(const OpDef& op, ControlFlow flow,
                                     std::span<const Tensor> given, std::vector<TracedBody> bodies,
                                     std::vector<TensorSpec> outputs);

// Records that `node`, which runs other graphs, made `outputs` of `inputs`, where one is tracked.
void record_control_flow(const Node& node, std::span<const Tensor* const> inputs,
                         std::span<Tensor> outputs);

}  // namespace tandem
