// Replicas that are threads of this process: the OneDevice and Mirrored strategies, and this
// process's part of those over several.
#pragma once

#include "core/thread_team.h"
#include "distribute/replica.h"
#include "distribute/replica_group.h"
#include "distribute/strategy_impl.h"

namespace tandem::distribute {

// Replicas: a thread a device. Variables: a copy a device. Gradients: as `group` joins the
// replicas.
class LocalStrategy : public StrategyImpl {
 public:
  LocalStrategy(std::string name, std::vector<Device*> devices,
                std::shared_ptr<ReplicaGroup> group);
  ~LocalStrategy() override;

  const std::vector<Device*>& devices() const override { return devices_; }
  int num_replicas() const override { return group_->num_replicas(); }
  int first_replica() const override { return group_->first_replica(); }
  bool all_take_part() const override { return group_->all_take_part(); }
  void give_up(const char* reason) override { group_->abort(0, reason); }

 private:
  void run_step(const std::function<void(int replica)>& step, const BatchSplit& split) override;
  // Which local replicas take part in a step. Throws InvalidArgumentError where there are no
  // examples.
  std::vector<bool> taking_part(const BatchSplit& split) const;
  // A replica a device, which are `all`.
  std::vector<std::unique_ptr<Replica>> make_replicas(std::vector<Replica*>& all,
                                                      TracedRun* run = nullptr);
  // Calls `step` as `replica`.
  void enter(Replica& replica, const std::function<void()>& step);
  // In a trace: the replicas one after the other, on this thread.
  void trace(const std::function<void(int)>& step, const BatchSplit& split);
  void run_replica(int replica, const std::function<void(int)>& step);

  std::vector<Device*> devices_;
  std::shared_ptr<ReplicaGroup> group_;
  std::vector<Replica*> all_;
  std::vector<std::unique_ptr<Replica>> replicas_;
  std::vector<std::exception_ptr> errors_;
  ThreadTeam threads_;
};

// One a replica: those named, else all GPUs, else CPU:0. Throws, naming `who`, for devices that do
// not exist or are named twice.
std::vector<Device*> replica_devices(const std::vector<std::string>& names, const char* who);
// The plan by which threads on `devices` combine.
LocalPlan plan_of(const CrossDeviceOps& ops, const std::vector<Device*>& devices);

}  // namespace tandem::distribute
