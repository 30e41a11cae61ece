// The kernels of dense.cc on a GPU.
#include "ops/nn/dense.h"

#include "ops/cuda/kernel_list.h"
#include "ops/cuda/reduce.cuh"
#include "ops/math/matrix_product_on_gpu.h"

namespace tandem::cuda {
namespace {

void fused_matmul_kernel(KernelContext& c) {
  matrix_product_on_gpu(c, {.activation = c.attrs<FusedMatMulAttrs>().activation},
                        as_rows(c.inputs[0]), c.inputs[1],
                        c.inputs.size() == 3 ? &c.inputs[2] : nullptr, as_rows(c.outputs[0]));
}

void bias_add_kernel(KernelContext& c) {
  add_bias(c, c.inputs[0], &c.inputs[1], nn::Activation::kLinear, c.outputs[0]);
}

void bias_add_grad_kernel(KernelContext& c) {
  switch_floating(c.inputs[0].dtype, [&]<class T>(Type<T>) {
    reduce_on<T>(c, as_rows(c.inputs[0]), 0b01, c.outputs[0], Sum());
  });
}

}  // namespace

KernelList dense_kernels() {
  static constexpr CudaKernel kernels[] = {{"FusedMatMul", on_gpu<fused_matmul_kernel>},
                                           {"MatMulBiasAdd", on_gpu<fused_matmul_kernel>},
                                           {"BiasAdd", on_gpu<bias_add_kernel>},
                                           {"BiasAddGrad", on_gpu<bias_add_grad_kernel>}};
  return kernels;
}

}  // namespace tandem::cuda
