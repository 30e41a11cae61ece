#include "op/find_kernel.h"

#include "op/cuda_kernels.h"
#include "op/own_op.h"

namespace tandem {

KernelFn find_kernel(const OpDef& op, DeviceBackend backend) {
  switch (backend) {
    case DeviceBackend::kCpu: return op.cpu_kernel;
    case DeviceBackend::kEmulatedGpu: return op.gpu ? op.cpu_kernel : nullptr;
    case DeviceBackend::kCuda: {
      const OwnOp* own = own_op(op);
      return own ? own->cuda_kernel : cuda_kernel_of(op);
    }
    case DeviceBackend::kPjrt: return nullptr;  // compiles whole programs
  }
  return nullptr;
}

}  // namespace tandem
