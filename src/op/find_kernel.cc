#include "op/find_kernel.h"

#include "op/cuda_kernels.h"

namespace tandem {

KernelFn find_kernel(const OpDef& op, DeviceBackend backend) {
  switch (backend) {
    case DeviceBackend::kCpu: return op.cpu_kernel;
    case DeviceBackend::kEmulatedGpu: return op.gpu ? op.cpu_kernel : nullptr;
    case DeviceBackend::kCuda: return cuda_kernel_of(op);
    case DeviceBackend::kPjrt: return nullptr;  // compiles whole programs
  }
  return nullptr;
}

}  // namespace tandem
