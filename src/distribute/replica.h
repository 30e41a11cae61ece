// One replica of a strategy: its device, its rank, its random number generator.
#pragma once

#include <memory>
#include <vector>

#include "distribute/replica_connections.h"
#include "runtime/generator.h"
#include "runtime/replica_context.h"
#include "sync/eager_sync.h"
#include "sync/traced_sync.h"
#include "tandem/per_replica.h"

namespace tandem::distribute {

// State that the replicas share while run() is traced. They are traced one after the other on one
// thread; in the program they communicate by collectives.
struct TracedRun {
  ReplicaConnections::ProgramRanks ranks;
  int root = 0;                               // rank of the first replica with examples
  std::vector<std::vector<bool>> agreements;  // see TracedSyncOptions
};

// The ReplicaContext of one replica: of a thread of this process, or of a trace of run(). Used
// by one thread at a time.
class Replica final : public ReplicaContext {
 public:
  // `local`: its index in `all`, the replicas of this process. `run`: null if a thread runs
  // the replica.
  Replica(std::shared_ptr<const StrategyMark> strategy, int local, ReplicaConnections& connections,
          Device& device, std::vector<Replica*>& all, TracedRun* run = nullptr);

  // Starts a step on this replica's part of `split`. Local replicas with `participating` take part
  // in its collectives. Random numbers continue the caller's stream.
  void begin(const BatchSplit& split, const std::vector<bool>& participating);
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
  // Whether this replica runs updates on behalf of the inactive ones.
  bool updates_inactive() const;

  ReplicaConnections& connections_;
  Device& device_;
  std::vector<Replica*>& all_;
  TracedRun* run_;
  std::size_t passes_ = 0;  // backward passes traced in `run_`
  bool active_ = true;
  int leader_ = 0;  // the first replica with examples, over all processes
  Generator generator_;
  std::shared_ptr<Communicator> communicator_;  // null while traced
  TracedRank traced_;
  std::vector<std::unique_ptr<EagerSync>> syncs_;  // one per list of variables
};

}  // namespace tandem::distribute
