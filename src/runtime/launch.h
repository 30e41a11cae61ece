// Handing a kernel to its device.
#pragma once

#include "op/op.h"

namespace tandem {

// Runs `kernel` on `device`'s stream: now on a CPU, later on the stream's thread of an emulated GPU
// (the context and its attributes are kept until then), enqueued by the kernel itself on CUDA.
void launch(KernelFn kernel, KernelContext& context, const AttrsType& attrs_type, Device& device);

}  // namespace tandem
