// Checks results for NaN and infinities (debugging::enable_check_numerics), in dispatch and
// tracing.
#pragma once

#include <span>
#include <vector>

#include "op/numerics.h"
#include "op/op.h"

namespace tandem {

// Called after an operation has run. Throws InvalidArgumentError if a result has a NaN or an
// infinity. Waits for the device.
void check_results(const OpDef& op, std::span<const Tensor* const> inputs,
                   std::span<const Tensor> outputs);

// Called after an operation was traced. Replaces its floating outputs with those of nodes that
// check them in each run.
void trace_checks(const OpDef& op, std::span<const Tensor* const> inputs,
                  std::span<Tensor> outputs);

}  // namespace tandem
