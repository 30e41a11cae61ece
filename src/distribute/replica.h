// What one replica of a step has: its device, its rank among the others, its random stream.
#pragma once

#include <memory>
#include <vector>

#include "distribute/replica_group.h"
#include "distribute/traced_replica.h"
#include "runtime/generator.h"
#include "runtime/replica_context.h"
#include "sync/eager_sync.h"

namespace tandem::distribute {

// What one step is for a replica.
struct ReplicaStep {
  bool active = true;       // takes part in the collectives
  bool stands_by = false;   // without examples
  std::int64_t offset = 0;  // of its examples in the global batch; -1: there is no batch
  std::int64_t count = -1;  // of its examples
  std::int64_t total = -1;  // of the global batch
  int leader = 0;           // the first replica with examples, of all processes
  random::GeneratorState draws;
};

// The context of a replica that a thread of this process runs. Used by one thread at a time. What a
// function that is traced inside the replica's step calls becomes nodes of its graph.
class Replica final : public ReplicaContext {
 public:
  // `local`: the number among `all`, those of this process.
  Replica(std::shared_ptr<const StrategyMark> strategy, int local, ReplicaGroup& group,
          Device& device, std::vector<Replica*>& all);
  ~Replica() override;

  void begin(const ReplicaStep& step);
  bool active() const { return active_; }
  Device& device() const { return device_; }
  Generator& generator() { return generator_; }

  std::vector<Tensor> all_reduce(std::span<const Tensor> tensors, ReduceOp op) override;
  std::unique_ptr<GradientSync> start_sync(const std::vector<Variable>& variables,
                                           ReduceOp op) override;
  void run_for_idle_replicas(const std::function<void()>& update) override;
  Tensor broadcast(const Tensor& tensor) override;
  void add_to_key(std::string& key) const override;

 private:
  // Whether this replica brings an update about for those that sit the step out.
  bool updates_idle() const;

  ReplicaGroup& group_;
  Device& device_;
  std::vector<Replica*>& all_;
  bool active_ = true;
  int leader_ = 0;
  Generator generator_;
  std::shared_ptr<Communicator> communicator_;
  TracedRank traced_;
  std::vector<std::unique_ptr<EagerSync>> syncs_;  // of each list of variables
};

}  // namespace tandem::distribute
