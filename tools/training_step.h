// A training step of the command's models, explained without running it.
#pragma once

#include <string>

#include "tandem/explain.h"
#include "workload.h"

namespace tandem::tools {

// `command`: in messages. Throws InvalidArgumentError for models, datasets and strategies that do
// not exist.
Explanation explain_step(const Workload& workload, const std::string& command);

}  // namespace tandem::tools
