// Starts the ranks of a job, passes on their output and signals, and ends them together.
#pragma once

#include "run/plan.h"

namespace tandem::tools {

// Returns the job's exit code: 0, or that of the first rank to fail (128 and the signal's number
// where one ended it). Throws where the job cannot be started.
int launch(const RunOptions& options);

}  // namespace tandem::tools
