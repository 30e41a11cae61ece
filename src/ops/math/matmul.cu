// The kernels of matmul.cc on a GPU.
#include "ops/cuda/kernel_list.h"
#include "ops/cuda/launch.h"
#include "ops/math/matmul_attrs.h"
#include "ops/math/matrix_product_on_gpu.h"

namespace tandem::cuda {
namespace {

void matmul_kernel(KernelContext& c) {
  const auto& attrs = c.attrs<MatMulAttrs>();
  matrix_product_on_gpu(c, {.transpose_a = attrs.transpose_a, .transpose_b = attrs.transpose_b},
                        c.inputs[0], c.inputs[1], nullptr, c.outputs[0]);
}

}  // namespace

KernelList matmul_kernels() {
  static constexpr CudaKernel kernels[] = {{"MatMul", on_gpu<matmul_kernel>},
                                           {"BatchMatMulV2", on_gpu<matmul_kernel>}};
  return kernels;
}

}  // namespace tandem::cuda
