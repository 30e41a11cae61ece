// How a training step meets the replicas: the hook through which strategies run fit(), which itself
// knows no strategy.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "runtime/workers.h"
#include "tandem/data.h"
#include "tandem/per_replica.h"
#include "tandem/tensor.h"
#include "tandem/variable.h"

namespace tandem {

// A global batch in one part a replica of this process. An empty part: the replica takes no part in
// the step. One with examples whose count is 0: ReplicaContext::is_padding.
using GlobalBatch = distribute::PerReplica<data::Example>;

// The batches of an epoch.
class BatchSource {
 public:
  virtual ~BatchSource() = default;
  // Nothing at the end, which is the end for every process.
  virtual std::optional<GlobalBatch> next() = 0;
};

class ReplicaRunner {
 public:
  using Step = std::function<std::vector<Tensor>(const data::Example& examples)>;

  virtual ~ReplicaRunner() = default;
  virtual int num_local_replicas() const = 0;  // of this process
  // The processes that train together; null: this one alone.
  virtual std::shared_ptr<Workers> workers() const { return nullptr; }
  // This process has failed: tells the others, who would wait for it.
  virtual void give_up(const char* reason) { static_cast<void>(reason); }
  // Whether a variable was made under this runner's strategy.
  virtual bool owns(const Variable& variable) const = 0;
  // The global batch split over the replicas (sizes differ by at most one; replicas that would get
  // none sit the step out), on their devices.
  virtual GlobalBatch split(const data::Example& global_batch) = 0;
  // The dataset's global batches, split; `check` sees each of them first.
  virtual std::unique_ptr<BatchSource> iterate(const data::Dataset& data,
                                               const data::IterateOptions& options,
                                               std::function<void(const data::Example&)> check);
  // Runs `step` on each replica that has a part, side by side, in its ReplicaContext and on its
  // device, and returns the results in the order of the replicas that ran it. The first
  // replica's error is thrown when all have stopped. In a trace: one after the other.
  virtual std::vector<std::vector<Tensor>> run(const GlobalBatch& parts, const Step& step) = 0;

  // That of the strategy whose scope is open on this thread; null: none is.
  static std::shared_ptr<ReplicaRunner> in_scope();
  // The same, or else the one that just calls the step.
  static std::shared_ptr<ReplicaRunner> current();
};

// Makes `runner` the calling thread's while it lives.
class ReplicaRunnerScope {
 public:
  explicit ReplicaRunnerScope(std::shared_ptr<ReplicaRunner> runner);
  ~ReplicaRunnerScope();
  ReplicaRunnerScope(const ReplicaRunnerScope&) = delete;
  ReplicaRunnerScope& operator=(const ReplicaRunnerScope&) = delete;

 private:
  std::shared_ptr<ReplicaRunner> previous_;
};

}  // namespace tandem
