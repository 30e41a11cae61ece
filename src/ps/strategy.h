// The implementation of ParameterServerStrategy.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "distribute/strategy_impl.h"
#include "ps/cluster.h"
#include "ps/coordinator.h"
#include "ps/variable_servers.h"
#include "tandem/parameter_server.h"

namespace tandem::ps {

// Sends each function once to the servers and, by the coordinator, to the workers. Functions and
// variables that are gone here are removed there when another function is sent. Thread-safe.
class FunctionScheduler {
 public:
  FunctionScheduler(std::shared_ptr<VariableServers> servers, Coordinator& coordinator,
                    std::uint32_t calls_per_update)
      : servers_(std::move(servers)),
        coordinator_(coordinator),
        calls_per_update_(calls_per_update) {}

  // Schedules a call with these tensors among the arguments. `iterators`: the coordinator's, in the
  // order of the iterators among the arguments. `workers`: arguments that differ between workers.
  // The call gets the learning rates, step numbers and random numbers that it would have if the
  // function ran here. The learning rates and step numbers of calls whose updates are averaged are
  // those of one step. A call that is not scheduled, because an earlier one has failed, takes none
  // of them.
  //
  // Throws FailedPreconditionError for a function that uses variables of other strategies,
  // UnimplementedError as split(), and as Coordinator::schedule().
  std::shared_ptr<RemoteResult> schedule(const std::shared_ptr<const TracedFunction>& function,
                                         std::vector<Tensor> arguments,
                                         std::vector<std::uint64_t> iterators,
                                         std::vector<Coordinator::WorkersArgument> workers = {});

 private:
  struct Sent {
    std::weak_ptr<const TracedFunction> function;  // keeps the nodes below
    std::weak_ptr<const void> used;                // expires: Coordinator::add_function()
    std::uint64_t id = 0;
    std::vector<const Node*> worker_attributes, update_attributes;  // SplitFunction
    std::uint32_t calls_of_step = 0;
  };

  Sent& send(const std::shared_ptr<const TracedFunction>& function);
  void remove_expired();

  const std::shared_ptr<VariableServers> servers_;
  Coordinator& coordinator_;
  const std::uint32_t calls_per_update_;
  std::mutex mutex_;  // one call at a time
  std::map<const TracedFunction*, Sent> sent_;
  // By id: functions that are gone here, and whether closures still use them.
  std::map<std::uint64_t, std::weak_ptr<const void>> gone_;
  std::vector<VariableId> dropped_;  // variables of functions that are gone
  std::uint64_t next_id_ = 0;
};

// One replica per call, which runs on a worker.
class ParameterServerImpl final : public distribute::StrategyImpl, private RemoteSteps {
 public:
  // `cluster`: to which the tasks belong, which ends with this object; null: none.
  ParameterServerImpl(std::vector<std::shared_ptr<ServerClient>> servers,
                      std::vector<Coordinator::WorkerTask> workers,
                      const distribute::ParameterServerOptions& options,
                      std::unique_ptr<Cluster> cluster = nullptr);
  ~ParameterServerImpl() override;

  Coordinator& coordinator() { return coordinator_; }
  // Sends a dataset to the workers. Returns the id of their iterators over it, which functions
  // refer to by `pass` when they are traced.
  std::uint64_t add_iterator(data::DatasetDescription dataset,
                             const std::shared_ptr<ElementPass>& pass);
  void remove_iterator(std::uint64_t id);
  // Throws InvalidArgumentError for a pass of this process.
  std::uint64_t iterator_of(const ElementPass& pass) const;
  // The tensors of the workers for which `tensor` stands, in this process alone, when functions are
  // traced.
  void add_values(const Tensor& tensor, std::shared_ptr<const std::vector<Tensor>> values);
  void remove_values(const Tensor& tensor);
  // Those among the inputs of a trace.
  std::vector<Coordinator::WorkersArgument> workers_arguments(std::span<const Tensor> inputs) const;
  FunctionScheduler& scheduler() { return scheduler_; }
  std::size_t num_workers() const { return num_workers_; }

  // The device of calls that are not scheduled, and of tensors of the results.
  const std::vector<DeviceImpl*>& devices() const override { return devices_; }
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

  const std::unique_ptr<Cluster> cluster_;
  const std::vector<DeviceImpl*> devices_;
  const distribute::ParameterServerOptions options_;
  const std::size_t num_workers_;
  const std::shared_ptr<VariableServers> servers_;
  Coordinator coordinator_;
  FunctionScheduler scheduler_;
  mutable std::mutex mutex_;                               // guards the following
  std::map<const ElementPass*, std::uint64_t> iterators_;  // of the workers
  std::uint64_t next_iterator_ = 0;
  std::map<const TensorImpl*, std::shared_ptr<const std::vector<Tensor>>> values_;  // of workers
};

// Connects to the tasks of a cluster.
std::shared_ptr<ParameterServerImpl> connect(const distribute::ClusterResolver& resolver,
                                             const distribute::ParameterServerOptions& options);

}  // namespace tandem::ps
