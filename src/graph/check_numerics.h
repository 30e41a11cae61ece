// Checks the results of operations for NaN and infinities.
#pragma once

#include <span>
#include <string>

#include "op/op.h"

namespace tandem {

struct CheckNumericsAttrs {
  std::string operation;  // the checked operation and its place in the model
  std::string inputs;     // the names of its inputs, one per line
  TANDEM_FIELDS(operation, inputs)
};

// Output 0 is input 0. The other inputs are those of the operation that computed input 0. The
// kernel throws as require_finite() does.
extern const OpDef kCheckNumerics;

// Throws InvalidArgumentError if `result` has a NaN, or if it has an infinity and no input has one.
// All tensors are in host memory. An input that shares the result's memory is not examined.
void require_finite(const CheckNumericsAttrs& what, const TensorView& result,
                    std::span<const TensorView> inputs);

}  // namespace tandem
