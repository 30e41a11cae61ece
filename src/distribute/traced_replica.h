// A replica of a step that is being traced: its collectives become nodes.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "runtime/generator.h"
#include "runtime/replica_context.h"
#include "sync/traced_sync.h"

namespace tandem::distribute {

struct ReplicaStep;

// The replicas of one call of a strategy's run() in a trace. They are traced one after the other on
// one thread; in the program they meet in their collectives.
struct TracedStep {
  std::shared_ptr<const StrategyMark> strategy;
  std::shared_ptr<CollectiveGroup> group;     // of those that take part
  std::vector<int> rank_of;                   // by local replica; -1: takes no part
  std::vector<Device*> devices;               // by local replica
  int first_replica = 0;                      // of this process
  int num_replicas = 1;                       // of all processes
  int root = 0;                               // the rank of the first replica with examples
  std::vector<std::vector<bool>> agreements;  // TracedSyncOptions
  std::vector<std::unique_ptr<class TracedReplica>> replicas;

  // The first local replica that takes part.
  int first() const;
};

class TracedReplica final : public ReplicaContext {
 public:
  // Draws as the thread's generator would. `how`: its `draws` are not used.
  TracedReplica(TracedStep& step, int local, const ReplicaStep& how);

  Generator& generator() { return generator_; }

  std::vector<Tensor> all_reduce(std::span<const Tensor> tensors, ReduceOp op) override;
  std::unique_ptr<GradientSync> start_sync(const std::vector<Variable>& variables,
                                           ReduceOp op) override;
  void run_for_idle_replicas(const std::function<void()>& update) override;
  Tensor broadcast(const Tensor& tensor) override;
  void add_to_key(std::string&) const override {}  // functions are inlined here

 private:
  TracedStep& step_;
  TracedRank rank_;
  std::size_t passes_ = 0;
  Generator generator_;
};

}  // namespace tandem::distribute
