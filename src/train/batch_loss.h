// The loss of a compiled model on a batch, or on a replica's part of one.
#pragma once

#include <cstdint>
#include <string>

#include "train/model_impl.h"

namespace tandem {

class BatchLoss {
 public:
  // `weights`: undefined, or one per example. `what` goes in messages. Throws
  // FailedPreconditionError if the model was compiled without a loss, and InvalidArgumentError for
  // a loss or weights of another shape.
  BatchLoss(const Model::Impl& model, const Tensor& targets, const Tensor& outputs,
            const Tensor& weights, const std::string& what);

  // The scalar that a step minimizes: its sum over replicas and parts is the loss of the batch.
  Tensor to_minimize() const;
  // The sum of the losses of the examples, in float64, from which fit() computes "loss".
  Tensor statistic() const;

 private:
  bool is_sum_;                // whether the loss is the sum over the batch
  std::int64_t examples_;      // here
  std::int64_t all_examples_;  // of the global batch
  Tensor losses_;              // one per example: the mean over positions, or their sum
  Tensor penalty_;             // the sum of the penalties of regularizers; undefined without
};

}  // namespace tandem
