// How a training step meets the replicas: the hook through which strategies run fit(), which itself
// knows no strategy.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "tandem/data.h"
#include "tandem/tensor.h"
#include "tandem/variable.h"

namespace tandem {

// A global batch in one part a replica.
struct BatchParts {
  std::vector<data::Example> examples;  // empty: the replica sits the step out
  std::vector<std::int64_t> offsets;    // where each part starts
  std::vector<std::int64_t> counts;
  std::int64_t total = 0;
};

class ReplicaRunner {
 public:
  using Step = std::function<std::vector<Tensor>(const data::Example& examples)>;

  virtual ~ReplicaRunner() = default;
  virtual int num_replicas() const = 0;
  // Whether a variable was made under this runner's strategy.
  virtual bool owns(const Variable& variable) const = 0;
  // The global batch split over the replicas (sizes differ by at most one; replicas that would get
  // none sit the step out), on their devices.
  virtual BatchParts split(const data::Example& global_batch) = 0;
  // Runs `step` on each replica that has a part, side by side, in its ReplicaContext and on its
  // device, and returns the results in the order of the replicas that took part. The first
  // replica's error is thrown when all have stopped. In a trace: one after the other.
  virtual std::vector<std::vector<Tensor>> run(const BatchParts& parts, const Step& step) = 0;

  // That of the strategy whose scope is open on this thread, else the one that just calls the step.
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
