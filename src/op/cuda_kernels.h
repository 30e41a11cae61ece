// Registers the kernels of the CUDA backend. It is a separately loaded module, so an OpDef of the
// library cannot refer to them.
#pragma once

#include <span>
#include <string_view>

#include "op/op.h"

namespace tandem {

struct CudaKernel {
  std::string_view op;  // the operation's name
  KernelFn kernel;
};

// Registers kernels for find_kernel(). Called when the module is loaded, before CUDA devices exist.
// Throws InternalError for an unknown operation, or one that is registered twice.
void register_cuda_kernels(std::span<const CudaKernel> kernels);
// The same for an operation that only graphs use and find_op() does not find.
void register_cuda_kernel(const OpDef& op, KernelFn kernel);
// Returns null if there is none.
KernelFn cuda_kernel_of(const OpDef& op);

}  // namespace tandem
