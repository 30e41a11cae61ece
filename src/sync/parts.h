// A replica's step in the replica-invariant mode (config::set_replica_invariant_parts): its
// examples are computed part by part, and sums over the parts are TreeSums.
#pragma once

#include <functional>
#include <vector>

#include "runtime/replica_context.h"
#include "tandem/tensor.h"

namespace tandem {

using PartStep = std::function<std::vector<Tensor>(const std::vector<Tensor>& examples)>;

// Runs `step` on each part that `replica` has of the global batch, in order, and returns what the
// calls returned. `examples`: the replica's, along the first axis of each tensor. `replica`: null
// where there is one alone. In each call the ReplicaContext is that of the part: one of as many
// replicas as there are parts.
// - An optimizer takes its step in the last part, with the gradients of all. One per call.
// - What the parts write to variables is written when all are computed: its sum, its mean or the
//   first part's, as the variable's aggregation says.
// - Every part generates the same random numbers, as replicas do.
// Throws InvalidArgumentError where the examples are not those of whole parts, and
// UnimplementedError for what would have the parts wait for each other.
// REQUIRES: the mode is on.
std::vector<std::vector<Tensor>> run_parts(const std::vector<Tensor>& examples,
                                           ReplicaContext* replica, const PartStep& step);

// The same in either mode: without parts, one call with all examples. The sums over the parts of
// what `step` returns, which is as many tensors in each.
std::vector<Tensor> sum_over_parts(const std::vector<Tensor>& examples, ReplicaContext* replica,
                                   const PartStep& step);

}  // namespace tandem
