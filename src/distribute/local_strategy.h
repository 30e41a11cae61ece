// Strategies whose replicas are threads of this process: OneDevice, Mirrored and CentralStorage.
// They also run this process's replicas in strategies over several processes.
#pragma once

#include <optional>

#include "core/thread_team.h"
#include "distribute/replica.h"
#include "distribute/replica_connections.h"
#include "distribute/strategy_impl.h"

namespace tandem::distribute {

// Runs one thread per device and keeps one copy of each variable per device. `connections`
// reduces the gradients.
class LocalStrategy : public StrategyImpl {
 public:
  // `writer`: the replica that writes shared copies, by default the last one; see LocalReplicas.
  LocalStrategy(std::string name, std::vector<DeviceImpl*> devices,
                std::shared_ptr<ReplicaConnections> connections,
                std::optional<std::size_t> writer = std::nullopt);
  ~LocalStrategy() override;

  const std::vector<DeviceImpl*>& devices() const override { return devices_; }
  int num_replicas() const override { return connections_->num_replicas(); }
  int first_replica() const override { return connections_->first_replica(); }
  bool requires_all_replicas() const override { return connections_->requires_all_replicas(); }
  void abort(const char* reason) override { connections_->abort(0, reason); }

 protected:
  void run_step(const std::function<void(int replica)>& step, const BatchSplit& split) override;

 private:
  // Which local replicas take part in a step. Throws InvalidArgumentError if the batch has no
  // examples.
  std::vector<bool> find_participants(const BatchSplit& split) const;
  // One replica per device. Adds them to `local`.
  std::vector<std::unique_ptr<Replica>> make_replicas(LocalReplicas& local,
                                                      TracedRun* run = nullptr);
  // Calls `step` in the context of `replica`.
  void enter(Replica& replica, const std::function<void()>& step);
  // Traces the replicas one after the other on this thread.
  void trace(const std::function<void(int)>& step, const BatchSplit& split);
  void run_replica(int replica, const std::function<void(int)>& step);

  std::vector<DeviceImpl*> devices_;
  std::shared_ptr<ReplicaConnections> connections_;
  LocalReplicas local_;
  std::vector<std::unique_ptr<Replica>> replicas_;
  std::vector<std::exception_ptr> errors_;
  ThreadTeam threads_;
};

// The devices of a strategy, one per replica: those named, else all GPUs, else CPU:0. Throws for
// devices that do not exist or are named twice; `who` is the strategy in the message.
// `argument`: the option that holds the names.
std::vector<DeviceImpl*> replica_devices(const std::vector<std::string>& names, const char* who,
                                         const char* argument = "devices");
// How threads on `devices` reduce under `ops`.
LocalPlan local_plan_for(const CrossDeviceOps& ops, const std::vector<DeviceImpl*>& devices);

}  // namespace tandem::distribute
