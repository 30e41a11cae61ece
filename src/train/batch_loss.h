// The loss of a compiled model on a batch, or on a replica's part of one.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "train/model_impl.h"

namespace tandem {

class BatchLoss {
 public:
  // One tensor for each output of the model. `weights`: undefined, or one per example; none: all
  // undefined. `what` goes in messages. Throws FailedPreconditionError if the model was compiled
  // without a loss, and InvalidArgumentError for a loss or weights of another shape.
  BatchLoss(const Model::Impl& model, std::span<const Tensor> targets,
            std::span<const Tensor> outputs, std::span<const Tensor> weights,
            const std::string& what);

  // The scalar that a step minimizes: its sum over replicas and parts is the loss of the batch.
  Tensor to_minimize() const;
  // The sum of the losses of the examples, in float64, from which fit() computes "loss".
  Tensor statistic() const;
  // The same of the loss of one output, which must have one, without its weight and penalties.
  Tensor statistic(std::size_t output) const;
  std::int64_t examples() const { return examples_; }

 private:
  struct OfOutput {
    bool is_sum;    // whether the loss is the sum over the batch
    double weight;  // in the loss of the model
    Tensor values;  // one per example: the mean over positions, or their sum; undefined: no loss
  };
  std::int64_t examples_;      // here
  std::int64_t all_examples_;  // of the global batch
  std::vector<OfOutput> losses_;
  Tensor penalty_;  // the sum of the penalties of regularizers; undefined without
};

}  // namespace tandem
