// The steps of a DistributedDataParallel model that are traced: their collectives become nodes.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <vector>

#include "sync/traced_sync.h"
#include "tandem/ddp.h"

namespace tandem::parallel {

class TracedReductions {
 public:
  TracedReductions(std::shared_ptr<Communicator> communicator, Device& device,
                   std::vector<Variable> parameters, const BucketSizes& sizes);

  // A forward of so many examples (-1: not known, or they do not count), of a model with these
  // buffers, which rank 0's replace.
  void forward(std::int64_t examples, const std::vector<Variable>& buffers);
  // What combines buckets, and the group for its collectives.
  void set_hook(CommHook hook, std::shared_ptr<comm::ProcessGroupImpl> group);

  // The gradient of a parameter is whole (the first counts): starts the reduction where it is the
  // pass's first.
  bool under_way() const { return sync_ != nullptr; }
  void begin();
  void ready(std::size_t index, const Tensor& gradient);
  // The averages; undefined where there was no gradient.
  std::vector<Tensor> finish();
  void give_up();

  // What brings gradients that are whole together by `op`, as they are.
  std::unique_ptr<GradientSync> start(ReduceOp op);
  const TracedRank& rank() const { return rank_; }

  // Runs of the programs are refused from now on, or again allowed.
  void allow(bool runs) { *allowed_ = runs; }

 private:
  std::function<std::vector<Tensor>()> call_hook(const TracedBucket& traced) const;

  std::shared_ptr<Communicator> communicator_;
  std::shared_ptr<std::atomic<bool>> allowed_;  // runs of the programs
  TracedRank rank_;
  bool weighs_itself_;  // the gradients, before they are reduced
  std::vector<Variable> parameters_;
  BucketSizes sizes_;
  const void* graph_ = nullptr;  // that examples_ is of
  Tensor examples_, weight_;
  std::unique_ptr<GradientSync> sync_;
  std::vector<bool> ready_;  // of the pass
  CommHook hook_;
  comm::ProcessGroup group_;
};

}  // namespace tandem::parallel
