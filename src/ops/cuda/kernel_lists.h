// The families of CUDA kernels: each .cu defines a list; module/cuda_module.cc joins them.
#pragma once

#include <span>

#include "op/cuda_kernels.h"

namespace tandem::cuda {

using KernelList = std::span<const CudaKernel>;

KernelList creation_kernels();
KernelList unary_kernels();
KernelList arithmetic_kernels();
KernelList compare_kernels();
KernelList cast_kernels();
KernelList reduce_kernels();
KernelList matmul_kernels();
KernelList dense_kernels();
KernelList activation_kernels();
KernelList softmax_kernels();
KernelList update_kernels();
KernelList rearrange_kernels();
KernelList join_kernels();
KernelList index_kernels();

// All of them.
KernelList all_kernels();

}  // namespace tandem::cuda
