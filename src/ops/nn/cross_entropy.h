// The operations behind the cross entropies.
#pragma once

#include "op/op.h"

namespace tandem {

// Inputs logits [..., classes] and labels: classes (integers [...]) or probabilities (like logits).
// Outputs: the loss [...], and the logarithm of each row's sum of exp.
extern const OpDef kSparseSoftmaxCrossEntropy, kSoftmaxCrossEntropy;
// Inputs: the loss's gradient, logits, labels, and that logarithm. Output: the logits' gradient.
extern const OpDef kSparseSoftmaxCrossEntropyGrad, kSoftmaxCrossEntropyGrad;
// Inputs logits and labels of one shape; the loss element by element.
extern const OpDef kSigmoidCrossEntropy;

}  // namespace tandem
