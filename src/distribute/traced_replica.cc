#include "distribute/traced_replica.h"

#include <algorithm>

#include "distribute/replica.h"
#include "runtime/placement.h"

namespace tandem::distribute {

int TracedStep::first() const {
  return static_cast<int>(
      std::find_if(rank_of.begin(), rank_of.end(), [](int rank) { return rank >= 0; }) -
      rank_of.begin());
}

TracedReplica::TracedReplica(TracedStep& step, int local, const ReplicaStep& how)
    : step_(step),
      rank_({step.group, step.rank_of[static_cast<std::size_t>(local)]},
            *step.devices[static_cast<std::size_t>(local)]) {
  generator_.follow(Generator::current());
  strategy_ = step.strategy;
  replica_id_ = step.first_replica + local;
  num_replicas_ = step.num_replicas;
  local_replica_id_ = local;
  num_local_replicas_ = static_cast<int>(step.devices.size());
  stands_by_ = how.stands_by;
  example_offset_ = how.total < 0 ? -1 : how.offset;
  local_examples_ = how.total < 0 ? -1 : how.count;
  global_examples_ = how.total;
}

std::vector<Tensor> TracedReplica::all_reduce(std::span<const Tensor> tensors, ReduceOp op) {
  return rank_.all_reduce(tensors, op, stands_by_);
}

Tensor TracedReplica::broadcast(const Tensor& tensor) {
  return rank_.broadcast(tensor, step_.root);
}

std::unique_ptr<GradientSync> TracedReplica::start_sync(const std::vector<Variable>& variables,
                                                        ReduceOp op) {
  const TracedSyncOptions options{.agreements = &step_.agreements, .pass = passes_++};
  return std::make_unique<TracedSync>(variables, rank_.device(), rank_.reduce(op, stands_by_),
                                      options);
}

void TracedReplica::run_for_idle_replicas(const std::function<void()>& update) {
  if (local_replica_id_ != step_.first()) return;
  for (std::size_t id = 0; id < step_.replicas.size(); ++id) {
    if (step_.rank_of[id] >= 0) continue;
    const ReplicaContextScope context(step_.replicas[id].get());
    const OnDevice on(*step_.devices[id]);
    update();
  }
}

}  // namespace tandem::distribute
