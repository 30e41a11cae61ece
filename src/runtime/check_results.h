// Debugging of NaN and infinities (debugging::enable_check_numerics): what dispatch and tracing do
// with the results of an operation.
#pragma once

#include <span>
#include <vector>

#include "op/numerics.h"
#include "op/op.h"

namespace tandem {

// The operation has run: throws InvalidArgumentError where it made a NaN or an infinity. Waits for
// the device.
void check_results(const OpDef& op, std::span<const Tensor* const> inputs,
                   std::span<const Tensor> outputs);

// The operation was traced: its floating outputs become those of nodes that check them in each run.
void trace_checks(const OpDef& op, std::span<const Tensor* const> inputs,
                  std::span<Tensor> outputs);

}  // namespace tandem
