// The functions that formulas use. A formula is written once, in a header that both CPU and GPU
// kernels include. It is in the namespace TANDEM_SIDE, which is tandem::cpu in .cc files and
// tandem::cuda in .cu files. It calls functions of `prim`: vectorised ones on the CPU, CUDA's on
// GPUs.
#pragma once

#include <numbers>
#include <type_traits>

#ifdef TANDEM_GPU_CODE  // defined when .cu files are compiled
#include <cuda_runtime.h>

#define TANDEM_SIDE cuda
#define TANDEM_DEVICE __device__
#else
#include <cmath>

#include "core/multiversion.h"
#include "core/vector_math.h"

// Hidden, so that kernels that are templates of formulas are not exported.
#define TANDEM_SIDE cpu __attribute__((visibility("hidden")))
#define TANDEM_DEVICE TANDEM_INLINED
#endif

#ifdef TANDEM_GPU_CODE
namespace tandem::cuda {

inline constexpr bool kGpuCode = true;

namespace prim {
using ::exp, ::expm1, ::log, ::log1p, ::sin, ::cos, ::tanh, ::erf, ::pow, ::sqrt, ::rsqrt;
using ::floor, ::ceil, ::nearbyint, ::fabs, ::copysign, ::fmod;
template <class C>
__device__ C sigmoid(C x) {
  return C{1} / (C{1} + ::exp(-x));
}
template <class C>
__device__ C normal_tail(C u) {
  return C(0.5) * ::erfc(u * C(1 / std::numbers::sqrt2));
}
}  // namespace prim

}  // namespace tandem::cuda
#else
namespace tandem::cpu {

inline constexpr bool kGpuCode = false;

namespace prim {
using std::floor, std::ceil, std::nearbyint, std::fabs, std::copysign, std::sqrt;
using vec::exp, vec::expm1, vec::log, vec::log1p, vec::tanh, vec::sigmoid, vec::erf;
using vec::normal_tail, vec::sin, vec::cos, vec::pow, vec::fmod;
template <class C>
TANDEM_DEVICE C rsqrt(C x) {
  return C{1} / std::sqrt(x);
}
}  // namespace prim

}  // namespace tandem::cpu
#endif

namespace tandem {
namespace TANDEM_SIDE {

// Integer arithmetic wraps around, as in NumPy; signed overflow would be undefined.
template <class T, class F>
TANDEM_DEVICE T wrapping(T a, T b, F f) {
  if constexpr (std::is_integral_v<T>) {
    using U = std::make_unsigned_t<T>;
    return static_cast<T>(f(static_cast<U>(a), static_cast<U>(b)));
  } else {
    return f(a, b);
  }
}

}  // namespace TANDEM_SIDE
}  // namespace tandem
