// Traced steps of a DistributedDataParallel model: their collectives become nodes of the graph.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <vector>

#include "parallel/parameter_check.h"
#include "sync/traced_sync.h"
#include "tandem/ddp.h"

namespace tandem::parallel {

class TracedReductions {
 public:
  // Each run of a traced program is a step of `check`.
  TracedReductions(std::shared_ptr<Communicator> communicator, DeviceImpl& device,
                   std::vector<Variable> parameters, const BucketSizes& sizes,
                   std::shared_ptr<ParameterCheck> check);

  // Traces a forward pass. `examples`: -1 if the number is not known or does not count.
  // `buffers` receive rank 0's values.
  void forward(std::int64_t examples, const std::vector<Variable>& buffers);
  // `hook` reduces the buckets of later traces, with collectives of `group`. If `weighted`, it gets
  // gradients that are multiplied by their weight.
  void set_hook(CommHook hook, std::shared_ptr<comm::ProcessGroupImpl> group, bool weighted);

  // The reduction of one backward pass: begin() with its first gradient, ready() for each complete
  // gradient (a second call for the same parameter is ignored), then finish() or abort().
  bool active() const { return sync_ != nullptr; }
  void begin();
  void ready(std::size_t index, const Tensor& gradient);
  // The averages; an undefined tensor for a parameter without a gradient.
  std::vector<Tensor> finish();
  void abort();

  // A reduction of complete gradients by `op`, without weights.
  std::unique_ptr<GradientSync> start(ReduceOp op);
  const TracedRank& rank() const { return rank_; }

  // Allows or refuses runs of the traced programs.
  void allow_runs(bool runs) { *allowed_ = runs; }

 private:
  std::function<std::vector<Tensor>()> call_hook(const TracedBucket& traced) const;

  std::shared_ptr<Communicator> communicator_;
  std::shared_ptr<std::atomic<bool>> allowed_;  // whether programs may run
  TracedRank rank_;
  bool scales_gradients_;  // multiplies gradients by their weight before they are reduced
  std::vector<Variable> parameters_;
  BucketSizes sizes_;
  const void* graph_ = nullptr;  // the graph that examples_ belongs to
  Tensor examples_, weight_;
  std::unique_ptr<GradientSync> sync_;
  std::vector<bool> ready_;  // in this pass
  CommHook hook_;
  comm::ProcessGroup group_;
};

}  // namespace tandem::parallel
