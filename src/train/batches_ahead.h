// Batches that are made, and on their way to the GPUs, one step before they are used.
#pragma once

#include <memory>

#include "train/replica_runner.h"

namespace tandem {

// The same batches; `batches` itself where none is copied to a GPU. An error comes when its batch's
// turn does.
std::unique_ptr<BatchSource> copied_ahead(std::unique_ptr<BatchSource> batches, bool to_gpus);

}  // namespace tandem
