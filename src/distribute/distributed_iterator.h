// Batches of a dataset, split over the workers and the replicas of a strategy.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "distribute/strategy_impl.h"

namespace tandem::distribute {

// Iterates over one epoch: splits each global batch into one part per replica of this process.
// Not thread-safe.
class DistributedIterator final : public BatchSource {
 public:
  // `check` is called with each batch before it is split. REQUIRES: strategy->workers().
  DistributedIterator(std::shared_ptr<StrategyImpl> strategy, const data::Dataset& data,
                      const data::IterateOptions& options,
                      std::function<void(const data::Example&)> check);

  std::optional<GlobalBatch> next() override;

 private:
  // AutoShardPolicy::kOff and kFile: forms a global batch from the batches of all workers.
  std::optional<GlobalBatch> join(data::NextExample batch);
  // AutoShardPolicy::kData: throws InvalidArgumentError if the workers' datasets differ.
  void compare(const data::NextExample& batch) const;

  std::shared_ptr<StrategyImpl> strategy_;
  bool own_ = false;  // this worker's data differs from that of the others (kOff, kFile)
  data::Iterator batches_;
  std::int64_t count_ = 0;  // of batches; negative: not known
  std::function<void(const data::Example&)> check_;
  bool compared_ = false;
  // With `own_`: the previous batch, as padding for steps in which this worker has no batch.
  data::Example padding_;
};

}  // namespace tandem::distribute
