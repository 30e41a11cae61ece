// The operations behind the cross entropies.
#pragma once

#include <cstdint>

#include "op/op.h"

namespace tandem {

// For errors to tell a label by its position in the global batch, not in a replica's part of it.
struct LabelPositionAttrs {
  std::int64_t first_example = 0;  // of the replica, in the global batch
  std::int64_t examples = 0;       // of the replica; 0: positions are those in the tensor
  TANDEM_FIELDS(first_example, examples)
  // The position of the first of the replica's `rows` labels, as many of each example.
  std::int64_t first_row(std::int64_t rows) const {
    return examples > 0 && rows % examples == 0 ? first_example * (rows / examples) : 0;
  }
};

// Inputs logits [..., classes] and labels: classes (integers [...]) or probabilities (like logits).
// Outputs: the loss [...], and the logarithm of each row's sum of exp. That of classes has
// LabelPositionAttrs, and so has its gradient.
extern const OpDef kSparseSoftmaxCrossEntropy, kSoftmaxCrossEntropy;
// Inputs: the loss's gradient, logits, labels, and that logarithm. Output: the logits' gradient.
extern const OpDef kSparseSoftmaxCrossEntropyGrad, kSoftmaxCrossEntropyGrad;
// Inputs logits and labels of one shape; the loss element by element.
extern const OpDef kSigmoidCrossEntropy;

}  // namespace tandem
