// The kernel of where() on a GPU. The others of compare.cc are chains of one step
// (ops/cuda/chain.h).
#include "ops/cuda/elements.cuh"
#include "ops/cuda/kernel_list.h"
#include "ops/cuda/strides.h"

namespace tandem::cuda {
namespace {

// Elements are only moved, so that an unsigned integer of their size serves for any dtype.
template <class U>
__global__ void __launch_bounds__(kThreads)
    select_elements(const bool* condition, const U* a, const U* b, U* y, Strides<3> strides,
                    std::int64_t size) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= size) return;
  const auto at = strides.offsets(i);
  y[i] = condition[at.of[0]] ? a[at.of[1]] : b[at.of[2]];
}

template <class U>
void select(KernelContext& c) {
  const std::int64_t size = c.outputs[0].size();
  if (size == 0) return;
  const Strides<3> strides(c.outputs[0].shape,
                           {&c.inputs[0].shape, &c.inputs[1].shape, &c.inputs[2].shape});
  launch(c, {.blocks = blocks_for(size)}, select_elements<U>, c.inputs[0].as<const bool>(),
         c.inputs[1].as<const U>(), c.inputs[2].as<const U>(), c.outputs[0].as<U>(), strides, size);
}

void select_kernel(KernelContext& c) {
  switch (size_of(c.inputs[1].dtype)) {
    case 1: return select<std::uint8_t>(c);
    case 2: return select<std::uint16_t>(c);
    case 4: return select<std::uint32_t>(c);
    default: return select<std::uint64_t>(c);
  }
}

}  // namespace

KernelList compare_kernels() {
  static constexpr CudaKernel kernels[] = {{"SelectV2", on_gpu<select_kernel>}};
  return kernels;
}

}  // namespace tandem::cuda
