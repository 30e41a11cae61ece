// The operations of connectionist temporal classification.
#pragma once

#include <cstdint>

#include "op/op.h"

namespace tandem {

struct CtcAttrs {
  std::int64_t blank = 0;
  TANDEM_FIELDS(blank)
};

// Inputs: log-probabilities [time, batch, classes], labels [batch, most] or of all examples one
// after the other, and the examples' steps and numbers of labels. Output: the losses [batch].
extern const OpDef kCtcLoss;
// Inputs: the losses' gradient and those of the operation. Output: the log-probabilities' gradient.
extern const OpDef kCtcLossGrad;

}  // namespace tandem
