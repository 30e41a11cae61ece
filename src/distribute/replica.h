// One replica of a strategy: its device, its rank, its random number generator.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <unordered_set>
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
  GraphImpl* graph = nullptr;  // that run() is traced into
  ReplicaConnections::ProgramRanks ranks;
  int root = 0;                               // rank of the first replica with examples
  std::vector<std::vector<bool>> agreements;  // see TracedSyncOptions
  // Reads of remote() variables on the devices of their copies, before the writes.
  std::unordered_map<const VariableImpl*, Tensor> elements;
};

class Replica;
class StrategyImpl;

// The replicas of this process.
struct LocalReplicas {
  StrategyImpl* strategy = nullptr;
  std::vector<Replica*> all;
  // The one that writes variables whose copy the replicas share. It is traced last, so that its
  // nodes follow the reads of all others.
  std::size_t writer = 0;

  // The layers that this step has built, and how many random operations that took. `builds`: set
  // before the first one.
  std::mutex building{};
  std::atomic<bool> builds = false;
  std::unordered_map<const void*, std::uint64_t> built{};
};

// The ReplicaContext of one replica: of a thread of this process, or of a trace of run(). Used
// by one thread at a time.
class Replica final : public ReplicaContext {
 public:
  // `local`: its index in `replicas`, which it adds itself to. `run`: null if a thread runs the
  // replica.
  Replica(std::shared_ptr<const StrategyMark> strategy, int local, ReplicaConnections& connections,
          DeviceImpl& device, LocalReplicas& replicas, TracedRun* run = nullptr);

  // Starts a step on this replica's part of `split`. Local replicas with `participating` take part
  // in its collectives. Random numbers continue the caller's stream.
  void begin(const BatchSplit& split, const std::vector<bool>& participating);
  // Ends the step: frees what the replica has read of variables on other devices.
  void end() { reads_.clear(); }
  bool active() const { return active_; }
  // The replica that writes for all in this step, and runs updates on behalf of the inactive ones.
  const Replica& writer() const;
  DeviceImpl& device() const { return device_; }
  Generator& generator() { return generator_; }

  std::vector<Tensor> all_reduce(std::span<const Tensor> tensors, ReduceOp op) override;
  std::unique_ptr<GradientSync> start_sync(const std::vector<Variable>& variables,
                                           ReduceOp op) override;
  void run_for_idle_replicas(const std::function<void()>& update) override;
  void build(const void* what, const std::function<void()>& make) override;
  void find_built(const void* what) override;
  Tensor broadcast(const Tensor& tensor) override;
  // These two are in remote_reads.cc.
  Tensor read_remote(VariableImpl& variable) override;
  void end_write(std::span<const Variable> variables) override;
  void add_to_key(std::string& key) const override;

 private:
  // Continues after the random numbers of a layer that another replica has built in this step.
  void skip_numbers_of(const void* built);
  // Reads of variables that are remote(): eager, in a traced run(), in a function that is traced in
  // this replica, and after a write in one of these two.
  Tensor read_at_once(VariableImpl& variable);
  Tensor read_in_run(VariableImpl& variable);
  Tensor read_in_function(VariableImpl& variable);
  Tensor read_written(VariableImpl& variable);
  // The variables that this trace has written and another replica wrote for this one.
  std::unordered_set<const VariableImpl*>& written();
  void note_write(std::span<const Variable> variables);

  ReplicaConnections& connections_;
  DeviceImpl& device_;
  LocalReplicas& replicas_;
  TracedRun* run_;
  std::size_t passes_ = 0;  // backward passes traced in `run_`
  bool active_ = true;
  // By variable: what this step has read, which is freed when the variable is written.
  std::unordered_map<const VariableImpl*, Tensor> reads_;
  std::unordered_set<const VariableImpl*> written_;         // in the current trace
  std::unordered_set<const VariableImpl*> read_in_bodies_;  // of control flow in a traced run()
  int leader_ = 0;  // the first replica with examples, over all processes
  Generator generator_;
  std::unordered_set<const void*> passed_;      // of LocalReplicas::built
  std::shared_ptr<Communicator> communicator_;  // null while traced
  TracedRank traced_;
  std::vector<std::unique_ptr<EagerSync>> syncs_;  // one per list of variables
};

}  // namespace tandem::distribute
