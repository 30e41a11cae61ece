// Replaces the toolkit's header of this name, so that a C++ compiler accepts CUDA code. Kernels
// compiled with it run on the host, by cuda/executor.h. It has only what the existing kernels use;
// new kernels may need additions.
//
// Memory of a block (`__shared__`) is static, since one block runs at a time. A constant beside it
// tells cuda/shared_memory.h which functions have some. `extern __shared__` does not compile.
#pragma once

#include <cuda_runtime_api.h>
#include <math.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

#include "cuda/executor.h"
#include "cuda/fake_cuda.h"

// For other compilers, the toolkit's header defines the remaining qualifiers as empty.
#undef __shared__
#define TANDEM_JOIN_NAMES(a, b) a##b
#define TANDEM_SHARED_MARKER(number) TANDEM_JOIN_NAMES(tandem_shared_memory_, number)
#define __shared__                                                       \
  [[gnu::used]] static const char TANDEM_SHARED_MARKER(__COUNTER__) = 0; \
  static
#define __launch_bounds__(...)

extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;
inline constexpr int warpSize = tandem::executor::kLanes;

namespace {
[[maybe_unused]] const bool kHasKernels = tandem::executor::add_kernels(&kHasKernels);
}  // namespace

template <class... Params, class... Args>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Params...),
                               Args&&... args) {
  return tandem::fake_cuda::launch(
      *config, [kernel, params = std::tuple<Params...>(std::forward<Args>(args)...)] {
        std::apply(kernel, params);
      });
}

// --- synchronisation ---

inline void __syncthreads() { tandem::executor::block_barrier(); }
inline void __syncwarp(unsigned mask = 0xffffffffu) {
  tandem::executor::exchange("__syncwarp()", mask, 0);
}
// Writes of one thread are visible to the others immediately.
inline void __threadfence() {}
inline void __threadfence_block() {}
inline void __threadfence_system() {}

// --- warps ---

namespace tandem::executor {

// `from`: the lane whose value is read, as the intrinsic computes it. If it is outside the segment
// of the warp, the lane gets its own value.
template <class T>
T shuffle(const char* intrinsic, unsigned mask, T value, int from, bool inside) {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= sizeof(std::uint64_t));
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  const Values& all = exchange(intrinsic, mask, bits);
  if (!inside) return value;
  if ((mask >> from & 1u) == 0)
    throw KernelError(std::string(intrinsic) + " reads lane " + std::to_string(from) +
                      ", which is not in its mask");
  std::memcpy(&value, &all[static_cast<std::size_t>(from)], sizeof(T));
  return value;
}

inline unsigned ballot(const char* intrinsic, unsigned mask, bool predicate) {
  const Values& all = exchange(intrinsic, mask, predicate ? 1 : 0);
  unsigned result = 0;
  for (int lane = 0; lane < kLanes; ++lane)
    if ((mask >> lane & 1u) != 0 && all[static_cast<std::size_t>(lane)] != 0) result |= 1u << lane;
  return result;
}

}  // namespace tandem::executor

template <class T>
T __shfl_sync(unsigned mask, T value, int source, int width = warpSize) {
  const int lane = tandem::executor::my_lane();
  return tandem::executor::shuffle("__shfl_sync()", mask, value,
                                   lane / width * width + (source & (width - 1)), true);
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = warpSize) {
  const int lane = tandem::executor::my_lane(), from = lane - static_cast<int>(delta);
  return tandem::executor::shuffle("__shfl_up_sync()", mask, value, from,
                                   from >= lane / width * width);
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = warpSize) {
  const int lane = tandem::executor::my_lane(), from = lane + static_cast<int>(delta);
  return tandem::executor::shuffle("__shfl_down_sync()", mask, value, from,
                                   from < (lane / width + 1) * width);
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = warpSize) {
  const int lane = tandem::executor::my_lane(), from = lane ^ lane_mask;
  return tandem::executor::shuffle("__shfl_xor_sync()", mask, value, from,
                                   from < (lane / width + 1) * width);
}
inline unsigned __ballot_sync(unsigned mask, int predicate) {
  return tandem::executor::ballot("__ballot_sync()", mask, predicate != 0);
}
inline int __any_sync(unsigned mask, int predicate) {
  return tandem::executor::ballot("__any_sync()", mask, predicate != 0) != 0;
}
inline int __all_sync(unsigned mask, int predicate) {
  return tandem::executor::ballot("__all_sync()", mask, predicate != 0) == mask;
}

// --- atomics: one thread runs at a time ---

template <class T>
T atomicAdd(T* at, std::type_identity_t<T> value) {
  const T before = *at;
  *at = before + value;
  return before;
}
template <class T>
T atomicMax(T* at, std::type_identity_t<T> value) {
  const T before = *at;
  if (value > before) *at = value;
  return before;
}
template <class T>
T atomicCAS(T* at, std::type_identity_t<T> expected, std::type_identity_t<T> value) {
  const T before = *at;
  if (before == expected) *at = value;
  return before;
}
template <class T>
T atomicCAS_system(T* at, std::type_identity_t<T> expected, std::type_identity_t<T> value) {
  return atomicCAS(at, expected, value);
}

// --- arithmetic ---

inline float rsqrt(float x) { return 1.0f / ::sqrt(x); }
inline double rsqrt(double x) { return 1.0 / ::sqrt(x); }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline double __dadd_rn(double a, double b) { return a + b; }
inline double __dmul_rn(double a, double b) { return a * b; }
