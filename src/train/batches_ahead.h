// Prepares each batch, and starts its copy to the GPUs, one step before it is used.
#pragma once

#include <memory>

#include "train/step_runner.h"

namespace tandem {

// Wraps `batches`; returns it unchanged unless `to_gpus`. An error is thrown when its batch is
// asked for.
std::unique_ptr<BatchSource> copied_ahead(std::unique_ptr<BatchSource> batches, bool to_gpus);

}  // namespace tandem
