// Looking for NaN and infinities in the results of operations.
#pragma once

#include <span>
#include <string>

#include "op/op.h"

namespace tandem {

struct CheckNumericsAttrs {
  std::string operation;  // whose result is checked, and where in the model it is
  std::string inputs;     // the names of its inputs, one per line
  TANDEM_FIELDS(operation, inputs)
};

// Input 0, as it is. The other inputs are those of the operation that computed it. Its kernel
// throws where require_finite() does.
extern const OpDef kCheckNumerics;

// Throws InvalidArgumentError where `result` has a NaN, or an infinity and no input has one. All
// are in the host's memory. An input in the memory of the result is left out.
void require_finite(const CheckNumericsAttrs& what, const TensorView& result,
                    std::span<const TensorView> inputs);

}  // namespace tandem
