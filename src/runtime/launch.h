// Launches kernels.
#pragma once

#include "op/op.h"

namespace tandem {

// Runs `kernel` on `device`'s stream. A CPU runs it at once. An emulated GPU runs it later on the
// stream's thread; the context and its attributes are kept until then. On CUDA the kernel itself
// enqueues its work.
void launch(KernelFn kernel, KernelContext& context, const AttrsType& attrs_type, Device& device);

}  // namespace tandem
