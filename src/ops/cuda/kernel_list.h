// The list of kernels that a .cu file defines. module/cuda_module.cc collects the lists.
#pragma once

#include <span>

#include "op/cuda_kernels.h"

namespace tandem::cuda {

using KernelList = std::span<const CudaKernel>;

}  // namespace tandem::cuda
