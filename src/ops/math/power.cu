// The kernels of power.cc on a GPU.
#include "ops/cuda/elementwise.cuh"
#include "ops/cuda/kernel_list.h"
#include "ops/cuda/refused.cuh"
#include "ops/math/scalar_attrs.h"
#include "ops/math/whole_power.h"

namespace tandem::cuda {
namespace {

struct Product {
  template <class C>
  __device__ C operator()(C a, C b) const {
    return wrapping(a, b, [](auto x, auto y) { return x * y; });
  }
};

struct Pow {
  template <class C>
  __device__ C operator()(C base, C exponent) const {
    if constexpr (std::is_integral_v<C>) {
      return whole_power(base, exponent);
    } else {
      return ::pow(base, exponent);
    }
  }
};

template <class C>
struct PowerOf {
  C exponent;
  int whole;  // 2 and 3 are products
  __device__ C operator()(C x) const {
    if (whole == 0) return Pow()(x, exponent);
    const C square = Product()(x, x);
    return whole == 2 ? square : Product()(square, x);
  }
};

// Of a divisor of 0 the kernel tells itself.
struct FloorMod {
  template <class C>
  __device__ C operator()(C a, C b) const {
    C rest;
    if constexpr (std::is_integral_v<C>) {
      if (b == C{0}) return C{0};
      if constexpr (std::is_signed_v<C>)
        if (b == C{-1}) return C{0};
      rest = static_cast<C>(a % b);
    } else {
      rest = ::fmod(a, b);
    }
    // The remainder has the divisor's sign.
    if constexpr (!std::is_unsigned_v<C>)
      if (rest != C{0} && (rest < C{0}) != (b < C{0})) rest += b;
    return rest;
  }
};
struct FloorDiv {
  template <class C>
  __device__ C operator()(C a, C b) const {
    if constexpr (std::is_integral_v<C>) {
      if (b == C{0}) return C{0};
      if constexpr (std::is_signed_v<C>) {
        if (b == C{-1}) return wrapping(C{0}, a, [](auto x, auto y) { return x - y; });
        const C quotient = static_cast<C>(a / b);
        return quotient * b != a && (a < C{0}) != (b < C{0}) ? quotient - 1 : quotient;
      }
      return static_cast<C>(a / b);
    } else {
      if (b == C{0}) return a / b;
      const C rest = ::fmod(a, b);  // from here as on the CPU
      C quotient = (a - rest) / b;
      if (rest != C{0} && (rest < C{0}) != (b < C{0})) quotient -= C{1};
      if (quotient == C{0}) return ::copysign(C{0}, a / b);
      return ::round(quotient);
    }
  }
};

constexpr const char* kNegativeExponent =
    "[{op}] expected an exponent of at least 0, got {value} at element {position}";

void pow_kernel(KernelContext& c) {
  switch_numeric(c.inputs[0].dtype, [&]<class T>(Type<T>) {
    if constexpr (std::is_integral_v<T> && std::is_signed_v<T>)
      refuse_elements<T>(c, c.inputs[1], IsNegative(), kNegativeExponent);
    binary_on<Pow, T>(c);
  });
}

// The shape rule refuses negative exponents of integers.
void pow_scalar_kernel(KernelContext& c) {
  const double exponent = c.attrs<ScalarAttrs>().scalar;
  const int whole = exponent == 2.0 ? 2 : exponent == 3.0 ? 3 : 0;
  switch_numeric(c.inputs[0].dtype, [&]<class T>(Type<T>) {
    unary_on<PowerOf<ComputeOf<T>>, T>(c, {rounded_to<T>(exponent), whole});
  });
}

template <class Op>
void division_kernel(KernelContext& c) {
  switch_numeric(c.inputs[0].dtype, [&]<class T>(Type<T>) {
    refuse_zero_divisors<T>(c, c.inputs[1]);
    binary_on<Op, T>(c);
  });
}

}  // namespace

KernelList power_kernels() {
  static constexpr CudaKernel kernels[] = {{"Pow", on_gpu<pow_kernel>},
                                           {"PowScalar", on_gpu<pow_scalar_kernel>},
                                           {"FloorDiv", on_gpu<division_kernel<FloorDiv>>},
                                           {"FloorMod", on_gpu<division_kernel<FloorMod>>}};
  return kernels;
}

}  // namespace tandem::cuda
