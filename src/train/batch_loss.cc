#include "train/batch_loss.h"

#include "core/status.h"
#include "runtime/replica_context.h"
#include "tandem/array.h"
#include "tandem/autodiff.h"
#include "tandem/math.h"
#include "tandem/nn.h"

namespace tandem {
namespace {

Shape with_trailing_ones(const Shape& shape, int rank) {
  Dims sizes = shape.words();
  while (sizes.size() < rank) sizes.push_back(1);
  return Shape(sizes);
}

// The size of the global batch, of which `here` examples are on this replica.
std::int64_t global_examples(std::int64_t here) {
  const ReplicaContext* context = ReplicaContext::current();
  return context && context->global_examples() >= 0 ? context->global_examples() : here;
}

Tensor example_losses(const losses::Loss& loss, const Tensor& targets, const Tensor& outputs,
                      const Tensor& weights, const std::string& what) {
  Tensor losses = loss.per_example(targets, outputs);
  const std::int64_t examples = targets.size_word(0);
  if (losses.rank() < 1 || losses.size_word(0) != examples)
    fail<InvalidArgumentError>(
        "[{}] loss '{}' gave shape {}, expected a value for each of the {} examples", what,
        loss.name(), losses.shape().to_string(), examples);
  if (weights.defined()) {
    if (weights.rank() > losses.rank())
      fail<InvalidArgumentError>("[{}] expected sample weights of shape ({},), got {}", what,
                                 examples, weights.shape().to_string());
    losses = losses * reshape(cast(weights, losses.dtype()),
                              with_trailing_ones(weights.shape(), losses.rank()));
  }
  if (losses.rank() == 1) return losses;
  Dims positions;
  for (int axis = 1; axis < losses.rank(); ++axis) positions.push_back(axis);
  return loss.reduction() == losses::Reduction::kSum ? reduce_sum(losses, {.axis = positions})
                                                     : reduce_mean(losses, {.axis = positions});
}

Tensor sum_of_penalties(const Layer& layer, DType dtype) {
  Tensor sum;
  for (const Tensor& penalty : layer.losses())
    sum = sum.defined() ? sum + cast(penalty, dtype) : cast(penalty, dtype);
  return sum;
}

// Adds a part to a sum, which has its dtype.
void add_to(Tensor& sum, const Tensor& part) {
  sum = sum.defined() ? sum + cast(part, sum.dtype()) : part;
}

}  // namespace

BatchLoss::BatchLoss(const Model::Impl& model, std::span<const Tensor> targets,
                     std::span<const Tensor> outputs, std::span<const Tensor> weights,
                     const std::string& what)
    : examples_(targets.front().size_word(0)), all_examples_(global_examples(examples_)) {
  if (model.losses.empty())
    fail<FailedPreconditionError>(
        "[{}] expected a loss in compile(), got none; a class that overrides train_step() and "
        "test_step() needs none",
        what);
  DType dtype = float32;
  for (std::size_t i = 0; i < model.losses.size(); ++i) {
    const auto& [loss, weight] = model.losses[i];
    OfOutput& made =
        losses_.emplace_back(OfOutput{.is_sum = false, .weight = weight, .values = {}});
    if (!loss.defined()) continue;
    made.is_sum = loss.reduction() == losses::Reduction::kSum;
    made.values =
        example_losses(loss, targets[i], outputs[i], weights.empty() ? Tensor() : weights[i], what);
    dtype = made.values.dtype();
  }
  penalty_ = sum_of_penalties(model.layer, dtype);
}

Tensor BatchLoss::to_minimize() const {
  Tensor loss;
  for (const OfOutput& each : losses_) {
    if (!each.values.defined()) continue;
    const Tensor value =
        each.is_sum ? reduce_sum(each.values)
                    : nn::compute_average_loss(each.values, {.global_batch_size = all_examples_});
    add_to(loss, each.weight == 1.0 ? value : value * each.weight);
  }
  // The sum over replicas and parts contains the penalty once.
  return penalty_.defined() ? loss + penalty_ * (static_cast<double>(examples_) /
                                                 static_cast<double>(all_examples_))
                            : loss;
}

Tensor BatchLoss::statistic(std::size_t output) const {
  Tensor loss = reduce_sum(losses_[output].values.detach());
  // A loss that is a sum over the batch is reported as the mean over batches, weighted by
  // their numbers of examples.
  if (losses_[output].is_sum) loss = loss * static_cast<double>(all_examples_);
  return cast(loss, float64);
}

Tensor BatchLoss::statistic() const {
  Tensor loss;
  for (std::size_t i = 0; i < losses_.size(); ++i) {
    if (!losses_[i].values.defined()) continue;
    const Tensor value = statistic(i);
    add_to(loss, losses_[i].weight == 1.0 ? value : value * losses_[i].weight);
  }
  // It is reported as a mean over the examples.
  return penalty_.defined()
             ? loss + cast(penalty_.detach(), float64) * static_cast<double>(examples_)
             : loss;
}

}  // namespace tandem
