// Error checks of CUDA calls, and the current GPU.
#pragma once

#include <cuda_runtime_api.h>

namespace tandem::cuda {

// Throws the error of a failed call: ResourceExhaustedError; InternalError for invalid calls;
// UnavailableError if the GPU or driver is unusable. The message has the call and CUDA's error,
// which may stem from an earlier kernel.
void check(cudaError_t result, const char* call);

// Makes GPU `ordinal` (CUDA's number) current for the calling thread. Cheap if it is already.
void make_current(int ordinal);

}  // namespace tandem::cuda
