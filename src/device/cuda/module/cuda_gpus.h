// Which GPUs CUDA finds, without taking any of them into use.
#pragma once

#include "device/physical_gpu.h"

namespace tandem::cuda {

// In CUDA's order, those that CUDA_VISIBLE_DEVICES hides left out. No context is made: that comes
// with the first logical device on a GPU. A GPU that has no kernels here (below compute capability
// 8.0) is left out with a warning. None where there is no GPU; throws UnavailableError where CUDA
// does not work, with what to do.
PhysicalGpus find_gpus();

}  // namespace tandem::cuda
