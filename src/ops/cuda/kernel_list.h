// What a .cu defines: a family of kernels. module/cuda_module.cc names the families.
#pragma once

#include <span>

#include "op/cuda_kernels.h"

namespace tandem::cuda {

using KernelList = std::span<const CudaKernel>;

}  // namespace tandem::cuda
