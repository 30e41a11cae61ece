// The kernels of power.cc on a GPU.
#include "ops/cuda/elementwise.cuh"
#include "ops/cuda/kernel_list.h"
#include "ops/cuda/refused.cuh"
#include "ops/formula/functions.h"
#include "ops/math/scalar_attrs.h"

namespace tandem::cuda {
namespace {

template <class C>
struct PowerOf {
  C exponent;
  int whole;  // the exponents 2 and 3 are computed by multiplications
  __device__ C operator()(C x) const {
    if (whole == 0) return Pow()(x, exponent);
    const C square = Mul()(x, x);
    return whole == 2 ? square : Mul()(square, x);
  }
};

// The shape rule has refused negative exponents of integers.
void pow_scalar_kernel(KernelContext& c) {
  const double exponent = c.attrs<ScalarAttrs>().scalar;
  const int whole = exponent == 2.0 ? 2 : exponent == 3.0 ? 3 : 0;
  switch_numeric(c.inputs[0].dtype, [&]<class T>(Type<T>) {
    unary_on<PowerOf<ComputeOf<T>>, T>(c, {rounded_to<T>(exponent), whole});
  });
}

template <class Op>
void refusing(KernelContext& c) {
  switch_numeric(c.inputs[0].dtype, [&]<class T>(Type<T>) {
    refuse_right<Op, T>(c, c.inputs[1]);
    binary_on<Op, T>(c);
  });
}

}  // namespace

KernelList power_kernels() {
  static constexpr CudaKernel kernels[] = {{"Pow", on_gpu<refusing<Pow>>},
                                           {"PowScalar", on_gpu<pow_scalar_kernel>},
                                           {"FloorDiv", on_gpu<refusing<FloorDiv>>},
                                           {"FloorMod", on_gpu<refusing<FloorMod>>}};
  return kernels;
}

}  // namespace tandem::cuda
