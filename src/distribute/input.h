// What the replicas of a step are fed with.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "distribute/strategy_impl.h"

namespace tandem::distribute {

// The batches of one epoch, in one part a replica of this process. Of one thread.
class Input final : public BatchSource {
 public:
  // `check` sees each batch before it is split.
  Input(std::shared_ptr<StrategyImpl> strategy, const data::Dataset& data,
        const data::IterateOptions& options, std::function<void(const data::Example&)> check);

  std::optional<GlobalBatch> next() override;

 private:
  // AutoShardPolicy::kOff and kFile: this worker's batch, among those of the others.
  std::optional<GlobalBatch> join(data::NextExample batch);
  // AutoShardPolicy::kData: throws InvalidArgumentError where workers have different data.
  void compare(const data::NextExample& batch) const;

  std::shared_ptr<StrategyImpl> strategy_;
  bool own_ = false;  // this worker's data is other data than the others'
  data::Iterator batches_;
  std::function<void(const data::Example&)> check_;
  bool begun_ = false;
  data::Example stand_in_;  // `own_`: the batch before, for steps in which others alone have one
};

}  // namespace tandem::distribute
