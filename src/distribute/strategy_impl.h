// The base of all strategies. They differ in three respects: what runs the replicas, where
// variables live, how gradients are reduced.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "device/device.h"
#include "runtime/variable_impl.h"
#include "tandem/distribute.h"
#include "train/step_runner.h"

namespace tandem::distribute {

class StrategyImpl : public VariableCreator,
                     public StepRunner,
                     public std::enable_shared_from_this<StrategyImpl> {
 public:
  // `devices`: those of this process's replicas, for messages.
  explicit StrategyImpl(std::string name, const std::vector<DeviceImpl*>& devices = {});

  const std::string& name() const { return name_; }
  // Marks this strategy's variables, replicas and per-replica values.
  const std::shared_ptr<const StrategyMark>& mark() const { return mark_; }
  virtual bool is_default() const { return false; }
  // One device per replica of this process.
  virtual const std::vector<DeviceImpl*>& devices() const = 0;
  // The number of replicas of all processes, and the global number of this process's first one.
  virtual int num_replicas() const { return static_cast<int>(devices().size()); }
  virtual int first_replica() const { return 0; }
  // See ReplicaConnections.
  virtual bool requires_all_replicas() const { return false; }
  virtual bool is_chief() const { return true; }
  // Runs `step` once for each replica that has examples; see Strategy::run.
  void run(const std::function<void(int replica)>& step, const BatchSplit& split);
  // Throws RuntimeError inside a replica ("Method requires being in cross-replica context: ...")
  // and in the scope of another strategy ("Mixing different ...").
  void require_cross_replica(const char* method) const;

  // Throws InvalidArgumentError if the strategy does not reduce values by `op`.
  virtual void check_reduce(ReduceOp op, const char* method) const {
    static_cast<void>(op);
    static_cast<void>(method);
  }

  // Splits rows of a global batch as `split` says. `batch` holds its rows from `begin` on.
  GlobalBatch split_rows(const data::Example& batch, BatchSplit split, std::int64_t begin);

  // StepRunner: how models train under this strategy.
  int num_local_replicas() const override { return static_cast<int>(devices().size()); }
  std::shared_ptr<WorkerCollectives> workers() const override { return nullptr; }
  bool owns(const Variable& variable) const override;
  GlobalBatch split(const data::Example& batch) override;
  std::vector<std::vector<Tensor>> run(const GlobalBatch& parts, const Step& step) override;

  // Makes one copy of the variable per replica, on its device.
  RefPtr<VariableImpl> create(const Tensor& initial_value, VariableOptions options) override;

 private:
  // Called in cross-replica context.
  virtual void run_step(const std::function<void(int replica)>& step, const BatchSplit& split) = 0;

  std::string name_;
  std::shared_ptr<const StrategyMark> mark_;
};

// The strategy outside all scopes.
const std::shared_ptr<StrategyImpl>& default_strategy();

}  // namespace tandem::distribute
