// Where the kernels of each backend are found.
#pragma once

#include "op/op.h"

namespace tandem {

// The kernel of `op` for devices of this backend; null if there is none.
KernelFn find_kernel(const OpDef& op, DeviceBackend backend);

}  // namespace tandem
