#include "distribute/traced_replica.h"

#include <algorithm>

#include "comm/reducer.h"
#include "core/status.h"
#include "distribute/replica.h"
#include "runtime/gradient_infos.h"
#include "runtime/placement.h"
#include "runtime/traced_collective.h"
#include "runtime/variable_impl.h"
#include "tandem/creation.h"

namespace tandem::distribute {
// --- nodes ---

TracedRank::TracedRank(CollectiveMember member, Device& device, Agreements* agreements)
    : member_(std::make_shared<const CollectiveMember>(std::move(member))),
      device_(device),
      agreements_(agreements) {}

std::vector<Tensor> TracedRank::add(const OpDef& op, AttrsRef attrs,
                                    std::span<const Tensor> tensors) const {
  return trace_collective(op, attrs, tensors, member_, device_);
}

std::vector<Tensor> TracedRank::all_reduce(std::span<const Tensor> tensors, ReduceOp op,
                                           bool stands_by) const {
  if (tensors.empty()) return {};
  std::vector<Tensor> contributed;
  if (stands_by) {
    const OnDevice on(device_);
    for (const Tensor& tensor : tensors) contributed.push_back(zeros_like(tensor));
    tensors = contributed;
  }
  return add(kCollectiveReduce, CollectiveReduceAttrs{op}, tensors);
}

Tensor TracedRank::broadcast(const Tensor& tensor, int root) const {
  return add(kCollectiveBroadcast, CollectiveBroadcastAttrs{root}, {&tensor, 1}).front();
}

std::vector<Tensor> TracedRank::all_gather(const Tensor& tensor, std::int64_t axis,
                                           std::vector<std::int64_t> sizes) const {
  const CollectiveGatherAttrs attrs{.rank = member_->rank,
                                    .ranks = static_cast<std::int64_t>(sizes.size()),
                                    .axis = axis,
                                    .sizes = std::move(sizes)};
  return add(kCollectiveGather, attrs, {&tensor, 1});
}

// The Reducer's buckets, as nodes: a bucket whose gradients are all there becomes one, so that in
// the program it sets out while the backward pass goes on.
class TracedRank::Reduction final : public GradientReduction {
 public:
  Reduction(TracedRank& rank, const std::vector<Variable>& variables, bool stands_by,
            Tensor examples, CombineTraced combine)
      : rank_(rank),
        stands_by_(stands_by),
        examples_(std::move(examples)),
        combine_(std::move(combine)),
        variables_(variables),
        gradients_(variables.size()),
        present_(variables.size(), false),
        buckets_(gradient_infos(variables)),
        sums_(variables.size()) {
    const std::size_t order = rank_.reductions_++;
    if (rank_.agreements_ && order < rank_.agreements_->size())
      agreed_ = &(*rank_.agreements_)[order];
  }

  void ready(std::size_t index, Tensor gradient) override {
    if (!gradient.defined()) return;
    const Variable& variable = variables_[index];
    if (!may_agree(gradient.shape(), variable.shape()) || gradient.dtype() != variable.dtype())
      fail<InvalidArgumentError>(
          "[all_reduce] the gradient of {} has shape {} and dtype {}, expected {} and {}",
          quoted_name(variable), gradient.shape().to_string(), name_of(gradient.dtype()),
          variable.shape().to_string(), name_of(variable.dtype()));
    if (agreed_ && !agreed_->at(index))
      fail<InvalidArgumentError>(
          "[all_reduce] {} has a gradient on this replica and none on the first one: in a traced "
          "step the first replica with examples has every gradient that another one has. Use the "
          "variable on each of them, or run the step without td::function (fit: run_eagerly)",
          quoted_name(variable));
    gradients_[index] = std::move(gradient);
    present_[index] = true;
    buckets_.add(index);
    launch(false);
  }

  std::vector<Tensor> finish() override {
    for (std::size_t i = 0; i < gradients_.size(); ++i) {
      if (present_[i] || !(combine_ || (agreed_ && agreed_->at(i)))) continue;
      const OnDevice on(rank_.device_);
      gradients_[i] = zeros(variables_[i].shape(), {.dtype = variables_[i].dtype()});
    }
    if (rank_.agreements_ && !agreed_) rank_.agreements_->push_back(present_);
    launch(true);
    for (const auto& [indices, combined] : combining_) {
      const std::vector<Tensor> sums = combined();
      for (std::size_t i = 0; i < indices.size(); ++i)
        if (present_[indices[i]]) sums_[indices[i]] = sums[i];
    }
    return std::move(sums_);
  }

 private:
  // In the order of the buckets, which is the same on every replica.
  void launch(bool rest) {
    for (; next_ < buckets_.size() && (rest || buckets_.full(next_)); ++next_) {
      std::vector<Tensor> parts;
      std::vector<std::size_t> indices;
      for (std::size_t index : buckets_.gradients(next_))
        if (gradients_[index].defined()) {
          parts.push_back(std::move(gradients_[index]));
          indices.push_back(index);
        }
      if (combine_) {
        auto combined = combine_({next_, next_ + 1 == buckets_.size(), indices, std::move(parts)});
        combining_.emplace_back(std::move(indices), std::move(combined));
        continue;
      }
      const std::vector<Tensor> sums = combine(std::move(parts));
      for (std::size_t i = 0; i < indices.size(); ++i) sums_[indices[i]] = sums[i];
    }
  }

  std::vector<Tensor> combine(std::vector<Tensor> parts) const {
    if (!examples_.defined() || parts.empty())
      return rank_.all_reduce(parts, ReduceOp::kSum, stands_by_);
    parts.push_back(examples_);
    return rank_.add(kCollectiveReduce, CollectiveReduceAttrs{.by_examples = true}, parts);
  }

  TracedRank& rank_;
  bool stands_by_;
  Tensor examples_;        // undefined: the gradients are summed
  CombineTraced combine_;  // null: a sum, or an average
  std::vector<std::pair<std::vector<std::size_t>, std::function<std::vector<Tensor>()>>> combining_;
  std::vector<Variable> variables_;
  std::vector<Tensor> gradients_;  // those that wait for their bucket
  std::vector<bool> present_;
  BucketFill buckets_;
  std::vector<Tensor> sums_;
  std::size_t next_ = 0;
  const std::vector<bool>* agreed_ = nullptr;  // null: this is the first replica
};

std::unique_ptr<GradientReduction> TracedRank::start_reduction(
    const std::vector<Variable>& variables, bool stands_by, const Tensor& examples,
    CombineTraced combine) {
  return std::make_unique<Reduction>(*this, variables, stands_by, examples, std::move(combine));
}

// --- replicas ---

int TracedStep::first() const {
  return static_cast<int>(
      std::find_if(rank_of.begin(), rank_of.end(), [](int rank) { return rank >= 0; }) -
      rank_of.begin());
}

TracedReplica::TracedReplica(TracedStep& step, int local, const ReplicaStep& how)
    : step_(step),
      rank_({step.group, step.rank_of[static_cast<std::size_t>(local)]},
            *step.devices[static_cast<std::size_t>(local)], &step.agreements) {
  generator_.follow(Generator::current());
  strategy_ = step.strategy;
  replica_id_ = step.first_replica + local;
  num_replicas_ = step.num_replicas;
  local_replica_id_ = local;
  num_local_replicas_ = static_cast<int>(step.devices.size());
  stands_by_ = how.stands_by;
  example_offset_ = how.total < 0 ? -1 : how.offset;
  local_examples_ = how.total < 0 ? -1 : how.count;
  global_examples_ = how.total;
}

std::vector<Tensor> TracedReplica::all_reduce_sum(std::span<const Tensor> tensors) {
  return rank_.all_reduce(tensors, ReduceOp::kSum, stands_by_);
}

Tensor TracedReplica::broadcast(const Tensor& tensor) {
  return rank_.broadcast(tensor, step_.root);
}

std::unique_ptr<GradientReduction> TracedReplica::start_reduction(
    const std::vector<Variable>& variables) {
  return rank_.start_reduction(variables, stands_by_);
}

void TracedReplica::run_for_idle_replicas(const std::function<void()>& update) {
  if (local_replica_id_ != step_.first()) return;
  for (std::size_t id = 0; id < step_.replicas.size(); ++id) {
    if (step_.rank_of[id] >= 0) continue;
    const ReplicaContextScope context(step_.replicas[id].get());
    const OnDevice on(*step_.devices[id]);
    update();
  }
}

}  // namespace tandem::distribute
