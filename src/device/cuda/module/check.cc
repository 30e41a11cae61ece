#include "device/cuda/module/check.h"

#include "core/status.h"

namespace tandem::cuda {

namespace {

[[noreturn]] void fail_with(cudaError_t result, const char* call) {
  const std::string text =
      fmt::format("[cuda] {}: {} ({})", call, cudaGetErrorString(result), cudaGetErrorName(result));
  switch (result) {
    case cudaErrorMemoryAllocation: throw ResourceExhaustedError(text);
    case cudaErrorInvalidValue:
    case cudaErrorInvalidConfiguration:
    case cudaErrorInvalidDevice:
    case cudaErrorInvalidDeviceFunction:
    case cudaErrorInvalidResourceHandle:
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorLaunchOutOfResources:
    case cudaErrorIllegalAddress:
    case cudaErrorMisalignedAddress:
    case cudaErrorAssert:
    case cudaErrorLaunchFailure: throw InternalError(text);
    default: throw UnavailableError(text);
  }
}

}  // namespace

void check(cudaError_t result, const char* call) {
  if (result != cudaSuccess) [[unlikely]]
    fail_with(result, call);
}

void make_current(int ordinal) { check(cudaSetDevice(ordinal), "cudaSetDevice"); }

}  // namespace tandem::cuda
