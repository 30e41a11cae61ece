// Calls of CUDA: their errors, and the GPU that they speak of.
#pragma once

#include <cuda_runtime_api.h>

namespace tandem::cuda {

// Throws what the failed call means: ResourceExhaustedError, InternalError where Tandem made it
// wrong, UnavailableError where the GPU or the driver is no good. The text names the call and
// CUDA's error, which a kernel may have left and any later call bring out.
void check(cudaError_t result, const char* call);

// Makes GPU `ordinal` (CUDA's number) the calling thread's. Costs nothing to speak of where it is
// already.
void make_current(int ordinal);

}  // namespace tandem::cuda
