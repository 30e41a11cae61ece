// The kernels of the CUDA backend, which is a module: an OpDef of the library cannot name them.
#pragma once

#include <span>
#include <string_view>

#include "op/op.h"

namespace tandem {

struct CudaKernel {
  std::string_view op;  // the operation's name
  KernelFn kernel;
};

// Makes them known to find_kernel(). Called as the module is loaded, before there is a device that
// could run one. Throws InternalError for an operation that is not there, or is there twice.
void register_cuda_kernels(std::span<const CudaKernel> kernels);
// The same for an operation that graphs alone have, which find_op() does not know.
void register_cuda_kernel(const OpDef& op, KernelFn kernel);
// Null where there is none.
KernelFn cuda_kernel_of(const OpDef& op);

}  // namespace tandem
