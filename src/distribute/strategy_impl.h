// What the kinds of strategies have in common, on the three axes: what runs the replicas, where
// variables live, how gradients are brought together.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "device/device.h"
#include "runtime/variable_impl.h"
#include "tandem/distribute.h"
#include "train/replica_runner.h"

namespace tandem::distribute {

class StrategyImpl : public VariableCreator,
                     public ReplicaRunner,
                     public std::enable_shared_from_this<StrategyImpl> {
 public:
  // `devices`: of this process's replicas, for messages.
  explicit StrategyImpl(std::string name, const std::vector<Device*>& devices = {});

  const std::string& name() const { return name_; }
  // The mark of this strategy's variables, replicas and per-replica values.
  const std::shared_ptr<const StrategyMark>& mark() const { return mark_; }
  virtual bool is_default() const { return false; }
  // One device a replica of this process.
  virtual const std::vector<Device*>& devices() const = 0;
  // The replicas of all processes, and the number of this one's first.
  virtual int num_replicas() const { return static_cast<int>(devices().size()); }
  virtual int first_replica() const { return 0; }
  // Whether a replica without examples is a padding replica (is_padding()), else it is inactive.
  virtual bool all_take_part() const { return false; }
  virtual bool is_chief() const { return true; }
  // Runs `step` once for each replica that has examples; see Strategy::run.
  void run(const std::function<void(int replica)>& step, const BatchSplit& split);
  // Throws RuntimeError inside a replica ("Method requires being in cross-replica context: ...")
  // and in the scope of another strategy ("Mixing different ...").
  void require_cross_replica(const char* method) const;

  // split() where `batch` is the rows from `begin` on of a global batch, split so.
  GlobalBatch parts_of(const data::Example& batch, BatchSplit split, std::int64_t begin);

  // How models train under this strategy.
  int num_local_replicas() const override { return static_cast<int>(devices().size()); }
  std::shared_ptr<Workers> workers() const override { return nullptr; }
  bool owns(const Variable& variable) const override;
  GlobalBatch split(const data::Example& batch) override;
  std::unique_ptr<BatchSource> iterate(const data::Dataset& data,
                                       const data::IterateOptions& options,
                                       std::function<void(const data::Example&)> check) override;
  std::vector<std::vector<Tensor>> run(const GlobalBatch& parts, const Step& step) override;

  // Copies of the variable on every replica's device.
  RefPtr<VariableImpl> create(const Tensor& initial_value, VariableOptions options) override;

 private:
  // In cross-replica context.
  virtual void run_step(const std::function<void(int replica)>& step, const BatchSplit& split) = 0;

  std::string name_;
  std::shared_ptr<const StrategyMark> mark_;
};

// The strategy of the calling thread: its open scope's, or that of the replica it runs.
StrategyImpl* current_strategy();
// The one outside every scope.
const std::shared_ptr<StrategyImpl>& default_strategy();

// Marks the calling thread as running a replica of `strategy` while it lives.
class CurrentStrategyScope {
 public:
  explicit CurrentStrategyScope(StrategyImpl* strategy);
  ~CurrentStrategyScope();
  CurrentStrategyScope(const CurrentStrategyScope&) = delete;
  CurrentStrategyScope& operator=(const CurrentStrategyScope&) = delete;

 private:
  StrategyImpl* previous_;
};

}  // namespace tandem::distribute
