// Checks results for NaN and infinities (debugging::enable_check_numerics).
#pragma once

#include <span>
#include <string>

#include "op/numerics.h"
#include "op/op.h"

namespace tandem {

// Called after an operation has run. Throws InvalidArgumentError if a result has a NaN or an
// infinity. Waits for the device.
void check_results(const OpDef& op, std::span<const Tensor* const> inputs,
                   std::span<const Tensor> outputs);

// Whether check_results() checks results of the operation. Traces add nodes that do so in each run.
bool has_checked_results(const OpDef& op, std::span<const Tensor* const> inputs);
// The operation in messages, with the layer that runs it or whose gradient it computes.
std::string describe_operation(const OpDef& op);

}  // namespace tandem
