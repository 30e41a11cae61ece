// Finds the GPUs without initialising any of them.
#pragma once

#include "device/physical_gpu.h"

namespace tandem::cuda {

// In CUDA's order, without GPUs hidden by CUDA_VISIBLE_DEVICES. Creates no context; the first
// logical device on a GPU does. A GPU without kernels in this build (below compute capability 8.0)
// is skipped with a warning. Empty if there is no GPU. Throws UnavailableError, with advice, if
// CUDA does not work.
PhysicalGpus find_gpus();

}  // namespace tandem::cuda
