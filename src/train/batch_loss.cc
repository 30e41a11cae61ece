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

const losses::Loss& loss_of(const Model::Impl& model, const std::string& what) {
  if (!model.loss.defined())
    fail<FailedPreconditionError>(
        "[{}] expected a loss in compile(), got none; a class that overrides train_step() and "
        "test_step() needs none",
        what);
  return model.loss;
}

}  // namespace

BatchLoss::BatchLoss(const Model::Impl& model, const Tensor& targets, const Tensor& outputs,
                     const Tensor& weights, const std::string& what)
    : is_sum_(loss_of(model, what).reduction() == losses::Reduction::kSum),
      examples_(targets.size_word(0)),
      all_examples_(global_examples(examples_)),
      losses_(example_losses(model.loss, targets, outputs, weights, what)),
      penalty_(sum_of_penalties(model.layer, losses_.dtype())) {}

Tensor BatchLoss::to_minimize() const {
  const Tensor loss = is_sum_
                          ? reduce_sum(losses_)
                          : nn::compute_average_loss(losses_, {.global_batch_size = all_examples_});
  // The sum over replicas and parts contains the penalty once.
  return penalty_.defined() ? loss + penalty_ * (static_cast<double>(examples_) /
                                                 static_cast<double>(all_examples_))
                            : loss;
}

Tensor BatchLoss::statistic() const {
  Tensor loss = reduce_sum(losses_.detach());
  // A loss that is a sum over the batch is reported as the mean over batches, weighted by
  // their numbers of examples.
  if (is_sum_) loss = loss * static_cast<double>(all_examples_);
  loss = cast(loss, float64);
  // It is reported as a mean over the examples.
  return penalty_.defined()
             ? loss + cast(penalty_.detach(), float64) * static_cast<double>(examples_)
             : loss;
}

}  // namespace tandem
