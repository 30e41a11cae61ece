// A replica's step in the replica-invariant mode (config::set_replica_invariant_parts). The
// replica's examples are processed part by part, and sums over the parts are TreeSums, so that the
// result does not depend on the number of replicas.
#pragma once

#include <functional>
#include <vector>

#include "runtime/replica_context.h"
#include "tandem/tensor.h"

namespace tandem {

using PartStep = std::function<std::vector<Tensor>(const std::vector<Tensor>& examples)>;

// Runs `step` on each of this replica's parts of the global batch, in order, and returns the
// results of the calls. `examples` are the replica's, along the first axis of each tensor.
// `replica` is null if there is no strategy. Inside a call, ReplicaContext::current() describes the
// part: the parts look like replicas, as many as there are parts.
// - An optimizer takes its step in the last part, with the summed gradients of all parts. There may
//   be one such step per call.
// - Assignments to variables take effect after the last part. The variable's aggregation chooses
//   the sum, the mean or the first part's value.
// - Every part generates the same random numbers, as replicas do.
// Throws InvalidArgumentError if the examples are not those of whole parts, and
// UnimplementedError for a collective inside a part, since parts run one after the other.
// REQUIRES: the replica-invariant mode is on.
std::vector<std::vector<Tensor>> run_parts(const std::vector<Tensor>& examples,
                                           ReplicaContext* replica, const PartStep& step);

// Runs `step` as run_parts() does and returns the sums of its results over the parts. Every call
// must return the same number of tensors. Without the mode, `step` is called once with all
// examples.
std::vector<Tensor> sum_over_parts(const std::vector<Tensor>& examples, ReplicaContext* replica,
                                   const PartStep& step);

}  // namespace tandem
