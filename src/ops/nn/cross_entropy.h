// The operations of the cross entropies.
#pragma once

#include <cstdint>

#include "op/op.h"

namespace tandem {

// Lets errors report a label's position in the global batch instead of in the replica's batch.
struct LabelPositionAttrs {
  std::int64_t first_example = 0;  // of the replica, in the global batch
  std::int64_t examples = 0;       // of the replica; if 0, positions are those in the tensor
  TANDEM_FIELDS(first_example, examples)
  // The position of the replica's first label. `rows` is its number of labels, the same per
  // example.
  std::int64_t first_row(std::int64_t rows) const {
    return examples > 0 && rows % examples == 0 ? first_example * (rows / examples) : 0;
  }
};

// Inputs: logits [..., classes] and labels, which are class indices (integers [...]) or
// probabilities (of the logits' shape). Outputs: the loss [...] and each row's log-sum-exp. The
// operation with class indices and its gradient have LabelPositionAttrs.
extern const OpDef kSparseSoftmaxCrossEntropy, kSoftmaxCrossEntropy;
// Inputs: the loss's gradient, logits, labels and log-sum-exp. Output: the logits' gradient.
extern const OpDef kSparseSoftmaxCrossEntropyGrad, kSoftmaxCrossEntropyGrad;
// Inputs: logits and labels of one shape. Output: the loss per element.
extern const OpDef kSigmoidCrossEntropy;
// Inputs: the loss's gradient, logits and labels of one shape. Output: the logits' gradient.
extern const OpDef kSigmoidCrossEntropyGrad;

}  // namespace tandem
