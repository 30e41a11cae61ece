// Replicas that are threads of this process: the OneDevice and Mirrored strategies.
#pragma once

#include "core/thread_team.h"
#include "distribute/replica.h"
#include "distribute/strategy_impl.h"

namespace tandem::distribute {

// Replicas: a thread a device. Variables: a copy a device. Gradients: a cross-device operation
// inside the process.
class LocalStrategy final : public StrategyImpl {
 public:
  LocalStrategy(std::string name, std::vector<Device*> devices,
                const CrossDeviceOps& cross_device_ops);
  ~LocalStrategy() override;

  const std::vector<Device*>& devices() const override { return devices_; }
  void run(const std::function<void(int replica)>& step, const BatchSplit& split) override;

 private:
  std::vector<bool> active_in(const BatchSplit& split) const;
  void begin(const BatchSplit& split);
  // In a trace: the replicas one after the other, on this thread.
  void trace(const std::function<void(int)>& step, const BatchSplit& split);
  void run_replica(int replica, const std::function<void(int)>& step);

  std::vector<Device*> devices_;
  LocalPlan plan_;
  std::shared_ptr<LocalGroup> group_;
  std::vector<std::unique_ptr<Replica>> replicas_;
  std::vector<Replica*> all_;
  std::vector<std::exception_ptr> errors_;
  ThreadTeam threads_;
};

}  // namespace tandem::distribute
