// Numbers as tensors, for the callbacks' state in checkpoints.
#pragma once

#include <map>
#include <string>

#include "core/status.h"
#include "tandem/tensor.h"

namespace tandem::callbacks {

using State = std::map<std::string, Tensor>;

Tensor number(double value);
// Throws DataLossError when the state has no such number.
double number(const State& state, const std::string& key);

}  // namespace tandem::callbacks
