#include "op/cuda_kernels.h"

#include <unordered_map>

#include "core/status.h"

namespace tandem {
namespace {

// Written before devices exist, and only read afterwards, so it needs no lock.
std::unordered_map<const OpDef*, KernelFn>& table() {
  static auto* const kernels = new std::unordered_map<const OpDef*, KernelFn>;
  return *kernels;
}

}  // namespace

void register_cuda_kernels(std::span<const CudaKernel> kernels) {
  for (const CudaKernel& each : kernels) {
    const OpDef* op = find_op(each.op);
    if (!op) fail<InternalError>("[cuda] kernel for the unknown operation '{}'", each.op);
    register_cuda_kernel(*op, each.kernel);
  }
}

void register_cuda_kernel(const OpDef& op, KernelFn kernel) {
  if (!table().emplace(&op, kernel).second)
    fail<InternalError>("[cuda] two kernels for '{}'", op.name);
}

KernelFn cuda_kernel_of(const OpDef& op) {
  const auto found = table().find(&op);
  return found == table().end() ? nullptr : found->second;
}

}  // namespace tandem
