// The implementation of ParameterServerStrategy.
#pragma once

#include <memory>
#include <vector>

#include "distribute/strategy_impl.h"
#include "ps/function_scheduler.h"
#include "tandem/parameter_server.h"

namespace tandem::ps {

// One replica per call, which runs on a worker.
class ParameterServerImpl final : public distribute::StrategyImpl, private RemoteSteps {
 public:
  ParameterServerImpl(std::vector<std::shared_ptr<ServerClient>> servers,
                      std::vector<Coordinator::WorkerTask> workers,
                      const distribute::ParameterServerOptions& options);
  ~ParameterServerImpl() override;

  Coordinator& coordinator() { return coordinator_; }
  FunctionScheduler& scheduler() { return scheduler_; }

  // The device of calls that are not scheduled, and of tensors of the results.
  const std::vector<Device*>& devices() const override { return devices_; }
  RefPtr<VariableImpl> create(const Tensor& initial_value, VariableOptions options) override;

  // StepRunner: fit() and its like.
  bool owns(const Variable& variable) const override;
  RemoteSteps* remote_steps() override { return this; }
  void abort(const char* reason) override;

 private:
  void run_step(const std::function<void(int replica)>& step,
                const distribute::BatchSplit& split) override;
  std::function<std::vector<Tensor>()> start(std::shared_ptr<const TracedFunction> step,
                                             std::vector<Tensor> inputs) override;
  std::size_t steps_ahead() const override;

  const std::vector<Device*> devices_;
  const distribute::ParameterServerOptions options_;
  const std::size_t num_workers_;
  const std::shared_ptr<VariableServers> servers_;
  Coordinator coordinator_;
  FunctionScheduler scheduler_;
};

}  // namespace tandem::ps
