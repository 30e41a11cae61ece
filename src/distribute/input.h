// What the replicas of a step are fed with.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "device/copy_ahead.h"
#include "distribute/strategy_impl.h"

namespace tandem::distribute {

// The batches of one epoch, in one part a replica of this process. Of one thread.
class Input {
 public:
  // `check` sees each batch before it is split.
  Input(std::shared_ptr<StrategyImpl> strategy, const data::Dataset& data,
        const data::IterateOptions& options, std::function<void(const data::Example&)> check);

  // Nothing at the end, which is the end for every worker.
  std::optional<PerReplica<data::Example>> next();

 private:
  // AutoShardPolicy::kOff and kFile: this worker's batch, among those of the others.
  std::optional<PerReplica<data::Example>> join(data::NextExample batch);
  // AutoShardPolicy::kData: throws InvalidArgumentError where workers have different data.
  void compare(const data::NextExample& batch) const;

  std::shared_ptr<StrategyImpl> strategy_;
  bool own_ = false;  // this worker's data is other data than the others'
  data::Iterator batches_;
  std::function<void(const data::Example&)> check_;
  bool begun_ = false;
  data::Example stand_in_;  // `own_`: the batch before, for steps in which others alone have one
};

// The same one step ahead, its copies on their way, where there are replicas on GPUs.
class InputAhead {
 public:
  InputAhead(Input input, const std::vector<Device*>& devices);
  std::optional<PerReplica<data::Example>> next();

 private:
  Input input_;
  bool copies_;
  FetchedAhead<PerReplica<data::Example>> ahead_;
};

}  // namespace tandem::distribute
