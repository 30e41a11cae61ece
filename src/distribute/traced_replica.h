// A replica of a step that is being traced: its collectives become nodes.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "comm/local/local_group.h"
#include "graph/collective.h"
#include "runtime/generator.h"
#include "runtime/replica_context.h"

namespace tandem::distribute {

// The rank of a group that nodes are made for, on behalf of one replica.
class TracedRank {
 public:
  // Which variables have a gradient, reduction by reduction, as the first replica traced found it.
  using Agreements = std::vector<std::vector<bool>>;

  // `agreements`: what the replicas of one trace share; null: the others are traced elsewhere, and
  // are taken to have the gradients that this one has.
  TracedRank(CollectiveMember member, Device& device, Agreements* agreements);

  std::vector<Tensor> all_reduce_sum(std::span<const Tensor> tensors) const;
  Tensor broadcast(const Tensor& tensor, int root) const;
  std::unique_ptr<GradientReduction> start_reduction(const std::vector<Variable>& variables);

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
  std::shared_ptr<CollectiveGroup> group;  // of the active replicas
  std::vector<int> rank_of;                // by replica; -1: without examples
  std::vector<Device*> devices;            // by replica
  TracedRank::Agreements agreements;
  std::vector<std::unique_ptr<class TracedReplica>> replicas;

  // The first replica that has examples.
  int first() const;
};

class TracedReplica final : public ReplicaContext {
 public:
  // `offset`, `total`: as of Replica::begin. Draws as the thread's generator would.
  TracedReplica(TracedStep& step, int id, std::int64_t offset, std::int64_t total);

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

// The devices as the ranks of a group that lanes of one program join.
std::shared_ptr<CollectiveGroup> make_lane_group(std::vector<Device*> devices,
                                                 const LocalGroupOptions& options);

}  // namespace tandem::distribute
