// Launches the ranks of a job, forwards their output and signals, and terminates them together.
#pragma once

#include "run/plan.h"

namespace tandem::tools {

// Returns the job's exit code: 0, or that of the first rank to fail (128 and the signal's number
// if one killed it). Throws if the job cannot be started.
int launch(const RunOptions& options);

}  // namespace tandem::tools
