// The interface through which strategies run fit(); src/train does not know strategies.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "op/context.h"
#include "runtime/worker_collectives.h"
#include "tandem/data.h"
#include "tandem/per_replica.h"
#include "tandem/tensor.h"
#include "tandem/variable.h"

namespace tandem {

struct TracedFunction;  // function/traced_function.h

// A global batch, split into one part per replica of this process. The replica of an empty part is
// inactive. If a part has examples but the count of its split is 0, its replica is a padding
// replica.
using GlobalBatch = distribute::PerReplica<data::Example>;

// The batches of an epoch.
class BatchSource {
 public:
  virtual ~BatchSource() = default;
  // None at the end of the epoch. All processes reach the end after the same number of batches.
  virtual std::optional<GlobalBatch> next() = 0;
};

// Runs steps in other processes.
class RemoteSteps {
 public:
  virtual ~RemoteSteps() = default;
  // Starts `step` with `inputs`. The returned function waits for its results and throws its error.
  virtual std::function<std::vector<Tensor>()> start(std::shared_ptr<const TracedFunction> step,
                                                     std::vector<Tensor> inputs) = 0;
  // How many steps should be under way, so that all processes are busy.
  virtual std::size_t steps_ahead() const = 0;
};

// Runs training steps on the replicas of a strategy, which implements it.
class StepRunner {
 public:
  using Step = std::function<std::vector<Tensor>(const data::Example& examples)>;

  virtual ~StepRunner() = default;
  virtual int num_local_replicas() const = 0;  // of this process
  // The processes that train together; null if there is only this one.
  virtual std::shared_ptr<WorkerCollectives> workers() const { return nullptr; }
  // Reports to the other processes that this one has failed.
  virtual void abort(const char* reason) { static_cast<void>(reason); }
  // Whether a variable was created under this runner's strategy.
  virtual bool owns(const Variable& variable) const = 0;
  // Splits a global batch over the replicas and copies the parts to their devices. Sizes differ by
  // at most one. Replicas without examples are inactive.
  virtual GlobalBatch split(const data::Example& global_batch) = 0;
  // The global batches of a dataset, split; `check` is called with each of them first.
  virtual std::unique_ptr<BatchSource> iterate(const data::Dataset& data,
                                               const data::IterateOptions& options,
                                               std::function<void(const data::Example&)> check);
  // Runs `step` on all replicas that have a part, each in its ReplicaContext and on its device,
  // concurrently; in a trace one after the other. Returns the results in the order of these
  // replicas. Throws the first replica's error once all have stopped.
  virtual std::vector<std::vector<Tensor>> run(const GlobalBatch& parts, const Step& step) = 0;

  // Where traced steps run; null: on this process's replicas, by run().
  virtual RemoteSteps* remote_steps() { return nullptr; }

  // The runner of the strategy whose scope is open on this thread; null if there is none.
  static std::shared_ptr<StepRunner> in_scope() {
    return context.runner ? *context.runner : nullptr;
  }
  // The same, or else the runner whose step calls this.
  static std::shared_ptr<StepRunner> current();
};

}  // namespace tandem
