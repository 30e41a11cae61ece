#include "parallel/ddp_trace.h"

#include "core/status.h"
#include "graph/graph.h"
#include "parallel/bucket_tensors.h"
#include "runtime/placement.h"
#include "sync/external_group.h"
#include "tandem/array.h"
#include "tandem/autodiff.h"
#include "tandem/creation.h"
#include "tandem/math.h"

namespace tandem::parallel {

namespace {

std::shared_ptr<CollectiveGroup> group_of(std::shared_ptr<Communicator> communicator,
                                          std::shared_ptr<std::atomic<bool>> allowed,
                                          std::shared_ptr<ParameterCheck> check) {
  return std::make_shared<ExternalGroup>(
      std::move(communicator),
      ExternalGroupHooks{.begin = [allowed = std::move(allowed), check = std::move(check)] {
        if (!*allowed)
          fail<FailedPreconditionError>(
              "[DistributedDataParallel] a function that was traced with reductions was called "
              "under join()");
        check->step();
      }});
}

}  // namespace

TracedReductions::TracedReductions(std::shared_ptr<Communicator> communicator, DeviceImpl& device,
                                   std::vector<Variable> parameters, const BucketSizes& sizes,
                                   std::shared_ptr<ParameterCheck> check)
    : communicator_(std::move(communicator)),
      allowed_(std::make_shared<std::atomic<bool>>(true)),
      rank_({group_of(communicator_, allowed_, std::move(check)), communicator_->rank()}, device),
      scales_gradients_(!device.host_accessible()),
      parameters_(std::move(parameters)),
      sizes_(sizes) {}

void TracedReductions::forward(std::int64_t examples, const std::vector<Variable>& buffers) {
  const NoGradScope no_grad;
  for (Variable buffer : buffers) buffer.assign(rank_.broadcast(buffer.value(), 0));
  if (graph_ != context.graph) {
    graph_ = context.graph;
    examples_ = {};
  }
  const Tensor more = constant(examples < 0 ? 1.0 : static_cast<double>(examples));
  examples_ = examples_.defined() ? examples_ + more : more;
}

void TracedReductions::begin() {
  const NoGradScope no_grad;
  const bool counted = graph_ == context.graph && examples_.defined();
  const Tensor mine = counted ? examples_ : constant(1.0);
  examples_ = {};
  ready_.assign(parameters_.size(), false);
  std::vector<float> own_place(static_cast<std::size_t>(communicator_->size()));
  own_place[static_cast<std::size_t>(communicator_->rank())] = 1.0f;
  const Tensor alone = constant(own_place) * mine;
  const Tensor all = rank_.all_reduce({&alone, 1}, ReduceOp::kSum).front();
  if (scales_gradients_) weight_ = mine / reduce_sum(all);
  ReduceTraced reduce = scales_gradients_ ? rank_.reduce(ReduceOp::kSum) : rank_.average(all);
  if (hook_) reduce = [this](const TracedBucket& bucket) { return call_hook(bucket); };
  sync_ = std::make_unique<TracedSync>(
      parameters_, rank_.device(), std::move(reduce),
      TracedSyncOptions{.sizes = sizes_, .zeros_for_missing = hook_ != nullptr});
}

void TracedReductions::ready(std::size_t index, const Tensor& gradient) {
  if (ready_[index]) return;
  ready_[index] = true;
  const NoGradScope no_grad;
  sync_->ready(index, scales_gradients_ ? gradient * cast(weight_, gradient.dtype()) : gradient);
}

void TracedReductions::set_hook(CommHook hook, std::shared_ptr<comm::ProcessGroupImpl> group,
                                bool weighted) {
  hook_ = std::move(hook);
  scales_gradients_ = weighted;
  group_ = comm::ProcessGroup(std::move(group));
}

// The same as HookTransport, for symbolic buckets.
std::function<std::vector<Tensor>()> TracedReductions::call_hook(const TracedBucket& traced) const {
  GradBucket bucket{.index = traced.index,
                    .is_last = traced.is_last,
                    .buffer = {},
                    .gradients = traced.gradients,
                    .parameters = {},
                    .group = group_};
  std::vector<Tensor> flat;
  for (const Tensor& gradient : traced.gradients) flat.push_back(reshape(gradient, {-1}));
  bucket.buffer = flat.size() == 1 ? flat.front() : concat(flat, 0);
  for (std::size_t index : traced.variables) bucket.parameters.push_back(parameters_[index]);
  return [then = hook_(bucket), index = bucket.index, parameters = bucket.parameters] {
    const NoGradScope no_grad;
    std::vector<Tensor> combined = then ? then() : std::vector<Tensor>();
    check_combined(combined, parameters, index);
    return combined;
  };
}

std::vector<Tensor> TracedReductions::finish() {
  weight_ = {};
  const NoGradScope no_grad;
  return *std::exchange(sync_, nullptr)->finish();
}

std::unique_ptr<GradientSync> TracedReductions::start(ReduceOp op) {
  examples_ = {};
  return std::make_unique<TracedSync>(parameters_, rank_.device(), rank_.reduce(op),
                                      TracedSyncOptions{.sizes = sizes_});
}

void TracedReductions::abort() { sync_.reset(); }

}  // namespace tandem::parallel
