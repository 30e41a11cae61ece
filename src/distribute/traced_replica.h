// A replica of a step that is being traced: its collectives become nodes.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "graph/collective.h"
#include "runtime/generator.h"
#include "runtime/replica_context.h"

namespace tandem::distribute {

struct ReplicaStep;

// Gradients of a trace that travel together.
struct TracedBucket {
  std::size_t index = 0;
  bool is_last = false;
  std::vector<std::size_t> variables;
  std::vector<Tensor> gradients;
};
// Adds what combines a bucket over the ranks in place of a sum; what it returns gives the combined
// gradients, once all buckets are under way.
using CombineTraced = std::function<std::function<std::vector<Tensor>()>(const TracedBucket&)>;

// The rank of a group that nodes are made for, on behalf of one replica.
class TracedRank {
 public:
  // Which variables have a gradient, reduction by reduction, as the first replica traced found it.
  using Agreements = std::vector<std::vector<bool>>;

  // `agreements`: what the replicas of one trace share; null: the others are traced elsewhere, and
  // are taken to have the gradients that this one has.
  TracedRank(CollectiveMember member, Device& device, Agreements* agreements);

  // `stands_by`: the rank has no examples, and contributes zeros.
  std::vector<Tensor> all_reduce(std::span<const Tensor> tensors, ReduceOp op,
                                 bool stands_by = false) const;
  Tensor broadcast(const Tensor& tensor, int root) const;
  // Every rank's tensor; `sizes` are theirs along `axis`.
  std::vector<Tensor> all_gather(const Tensor& tensor, std::int64_t axis,
                                 std::vector<std::int64_t> sizes) const;
  // `examples`: how many each rank has, float32 [ranks]; the gradients are then averaged by them.
  // Undefined: they are summed. REQUIRES: undefined where the host does not reach the device.
  std::unique_ptr<GradientReduction> start_reduction(const std::vector<Variable>& variables,
                                                     bool stands_by = false,
                                                     const Tensor& examples = {},
                                                     CombineTraced combine = nullptr);

 private:
  class Reduction;
  std::vector<Tensor> add(const OpDef& op, AttrsRef attrs, std::span<const Tensor> tensors) const;

  std::shared_ptr<const CollectiveMember> member_;
  Device& device_;
  Agreements* agreements_;
  std::size_t reductions_ = 0;
};

// The replicas of one call of a strategy's run() in a trace. They are traced one after the other on
// one thread; in the program they meet in their collectives.
struct TracedStep {
  std::shared_ptr<const StrategyMark> strategy;
  std::shared_ptr<CollectiveGroup> group;  // of those that take part
  std::vector<int> rank_of;                // by local replica; -1: takes no part
  std::vector<Device*> devices;            // by local replica
  int first_replica = 0;                   // of this process
  int num_replicas = 1;                    // of all processes
  int root = 0;                            // the rank of the first replica with examples
  TracedRank::Agreements agreements;
  std::vector<std::unique_ptr<class TracedReplica>> replicas;

  // The first local replica that takes part.
  int first() const;
};

class TracedReplica final : public ReplicaContext {
 public:
  // Draws as the thread's generator would. `how`: its `draws` are not used.
  TracedReplica(TracedStep& step, int local, const ReplicaStep& how);

  Generator& generator() { return generator_; }

  std::vector<Tensor> all_reduce_sum(std::span<const Tensor> tensors) override;
  std::unique_ptr<GradientReduction> start_reduction(
      const std::vector<Variable>& variables) override;
  void run_for_idle_replicas(const std::function<void()>& update) override;
  Tensor broadcast(const Tensor& tensor) override;
  void add_to_key(std::string&) const override {}  // functions are inlined here

 private:
  TracedStep& step_;
  TracedRank rank_;
  Generator generator_;
};

}  // namespace tandem::distribute
