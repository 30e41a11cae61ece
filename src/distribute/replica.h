// What one replica of a step has: its device, its rank among the others, its random stream.
#pragma once

#include <memory>
#include <vector>

#include "distribute/replica_group.h"
#include "runtime/generator.h"
#include "runtime/replica_context.h"
#include "sync/eager_sync.h"
#include "sync/traced_sync.h"
#include "tandem/per_replica.h"

namespace tandem::distribute {

// What the replicas of one call of run() share that is made while a function is traced. They are
// traced one after the other on one thread; in the program they meet in their collectives.
struct TracedRun {
  ReplicaGroup::Ranks ranks;
  int root = 0;                               // the rank of the first replica with examples
  std::vector<std::vector<bool>> agreements;  // TracedSyncOptions
};

// The context of a replica: one that a thread of this process runs step by step, in which functions
// may be traced, or one of a TracedRun. Used by one thread at a time.
class Replica final : public ReplicaContext {
 public:
  // `local`: the number among `all`, those of this process. `run`: null: a thread runs it.
  Replica(std::shared_ptr<const StrategyMark> strategy, int local, ReplicaGroup& group,
          Device& device, std::vector<Replica*>& all, TracedRun* run = nullptr);

  // A step starts, in which the local replicas that take part in its collectives share `split`.
  // Draws go on from those of the thread that calls this.
  void begin(const BatchSplit& split, const std::vector<bool>& taking_part);
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
  TracedRun* run_;
  std::size_t passes_ = 0;  // of the run
  bool active_ = true;
  int leader_ = 0;  // the first replica with examples, of all processes
  Generator generator_;
  std::shared_ptr<Communicator> communicator_;  // null in a TracedRun
  TracedRank traced_;
  std::vector<std::unique_ptr<EagerSync>> syncs_;  // of each list of variables
};

}  // namespace tandem::distribute
