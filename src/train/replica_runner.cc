#include "train/replica_runner.h"

#include "runtime/variable_impl.h"

namespace tandem {
namespace {

thread_local std::shared_ptr<ReplicaRunner> current_runner;

class SingleReplica final : public ReplicaRunner {
 public:
  int num_replicas() const override { return 1; }
  bool owns(const Variable& variable) const override { return !variable.impl().distributed(); }
  BatchParts split(const data::Example& global_batch) override {
    const std::int64_t total = global_batch[0].dim(0);
    return {.examples = {global_batch}, .offsets = {0}, .counts = {total}, .total = total};
  }
  std::vector<std::vector<Tensor>> run(const BatchParts& parts, const Step& step) override {
    return {step(parts.examples.front())};
  }
};

}  // namespace

std::shared_ptr<ReplicaRunner> ReplicaRunner::current() {
  if (current_runner) return current_runner;
  static const auto single = std::make_shared<SingleReplica>();
  return single;
}

ReplicaRunnerScope::ReplicaRunnerScope(std::shared_ptr<ReplicaRunner> runner)
    : previous_(std::move(current_runner)) {
  current_runner = std::move(runner);
}

ReplicaRunnerScope::~ReplicaRunnerScope() { current_runner = std::move(previous_); }

}  // namespace tandem
