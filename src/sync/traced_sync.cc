#include "sync/traced_sync.h"

#include "core/status.h"
#include "runtime/placement.h"
#include "runtime/traced_collective.h"
#include "tandem/creation.h"

namespace tandem {

// --- buckets ---

TracedSync::TracedSync(std::vector<Variable> variables, DeviceImpl& device, ReduceTraced reduce,
                       const TracedSyncOptions& options)
    : variables_(std::move(variables)),
      device_(device),
      reduce_(std::move(reduce)),
      options_(options),
      gradients_(variables_.size()),
      present_(variables_.size(), false),
      buckets_(gradient_infos(variables_), options_.sizes) {
  if (options_.agreements && options_.pass < options_.agreements->size())
    agreed_ = &(*options_.agreements)[options_.pass];
}

void TracedSync::ready(std::size_t index, Tensor gradient) {
  if (!gradient.defined()) return;
  const Variable& variable = variables_[index];
  check_gradient(gradient, variable.impl());
  if (agreed_ && !agreed(index))
    fail<InvalidArgumentError>(
        "[all_reduce] {} has a gradient on this replica but none on the first replica. In a traced "
        "step, the first replica with examples must have every gradient that another one has. Use "
        "the variable on every replica, or run the step without td::function (fit: run_eagerly)",
        quoted_name(variable));
  gradients_[index] = std::move(gradient);
  present_[index] = true;
  buckets_.add(index);
  launch(false);
}

std::optional<std::vector<Tensor>> TracedSync::finish() {
  for (std::size_t i = 0; i < gradients_.size(); ++i) {
    if (present_[i] || !(options_.zeros_for_missing || agreed(i))) continue;
    const OnDevice on(device_);
    gradients_[i] = zeros(variables_[i].shape(), {.dtype = variables_[i].dtype()});
  }
  if (options_.agreements && !agreed_) options_.agreements->push_back(present_);
  launch(true);
  std::vector<Tensor> result(variables_.size());
  for (const Launched& bucket : launched_) {
    const std::vector<Tensor> reduced = bucket.reduced();
    for (std::size_t i = 0; i < bucket.variables.size(); ++i)
      if (const std::size_t index = bucket.variables[i]; present_[index] || agreed(index))
        result[index] = reduced[i];
  }
  return result;
}

void TracedSync::launch(bool rest) {
  for (; next_ < buckets_.size() && (rest || buckets_.full(next_)); ++next_) {
    TracedBucket bucket{next_, next_ + 1 == buckets_.size(), {}, {}};
    for (std::size_t index : buckets_.gradients(next_)) {
      if (!gradients_[index].defined()) continue;
      bucket.variables.push_back(index);
      bucket.gradients.push_back(std::exchange(gradients_[index], {}));
    }
    if (bucket.variables.empty()) continue;
    auto reduced = reduce_(bucket);
    launched_.push_back({std::move(bucket.variables), std::move(reduced)});
  }
}

// --- nodes ---

TracedRank::TracedRank(CollectiveMember member, DeviceImpl& device)
    : member_(std::make_shared<const CollectiveMember>(std::move(member))), device_(device) {}

std::vector<Tensor> TracedRank::all_reduce(std::span<const Tensor> tensors, ReduceOp op,
                                           bool inactive) const {
  if (tensors.empty()) return {};
  std::vector<Tensor> contributed;
  if (inactive) {
    const OnDevice on(device_);
    for (const Tensor& tensor : tensors) contributed.push_back(zeros_like(tensor));
    tensors = contributed;
  }
  return trace_collective(kCollectiveReduce, CollectiveReduceAttrs{op}, tensors, member_, device_);
}

Tensor TracedRank::broadcast(const Tensor& tensor, int root) const {
  return trace_collective(kCollectiveBroadcast, CollectiveBroadcastAttrs{root}, {&tensor, 1},
                          member_, device_)
      .front();
}

std::vector<Tensor> TracedRank::all_gather(const Tensor& tensor, std::int64_t axis,
                                           std::vector<std::int64_t> sizes) const {
  const CollectiveGatherAttrs attrs{.rank = member_->rank,
                                    .ranks = static_cast<std::int64_t>(sizes.size()),
                                    .axis = axis,
                                    .sizes = std::move(sizes)};
  return trace_collective(kCollectiveGather, attrs, {&tensor, 1}, member_, device_);
}

namespace {

std::function<std::vector<Tensor>()> returning(std::vector<Tensor> tensors) {
  return [tensors = std::move(tensors)] { return tensors; };
}

}  // namespace

ReduceTraced TracedRank::reduce(ReduceOp op, bool inactive) const {
  return [rank = *this, op, inactive](const TracedBucket& bucket) {
    return returning(rank.all_reduce(bucket.gradients, op, inactive));
  };
}

ReduceTraced TracedRank::average(const Tensor& examples) const {
  return [rank = *this, examples](const TracedBucket& bucket) {
    std::vector<Tensor> inputs = bucket.gradients;
    inputs.push_back(examples);
    return returning(trace_collective(kCollectiveReduce, CollectiveReduceAttrs{.by_examples = true},
                                      inputs, rank.member_, rank.device_));
  };
}

}  // namespace tandem
