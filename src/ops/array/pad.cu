// The kernel of pad.cc on a GPU.
#include "ops/array/pad.h"

#include "ops/cuda/elements.cuh"
#include "ops/cuda/kernel_list.h"

namespace tandem::cuda {
namespace {

template <class T>
__global__ void __launch_bounds__(kThreads) pad_elements(const T* x, T* y, PadAxes axes, bool small,
                                                         std::int64_t size, ComputeOf<T> value) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= size) return;
  const std::int64_t source = small ? axes.source_of(static_cast<std::uint32_t>(i), axes.rank)
                                    : axes.source_of(static_cast<std::uint64_t>(i), axes.rank);
  y[i] = source < 0 ? store_as<T>(value) : x[source];
}

void pad_kernel(KernelContext& c) {
  const auto& attrs = c.attrs<PadAttrs>();
  const std::int64_t size = c.outputs[0].size();
  if (size == 0) return;
  const PadAxes axes(c.inputs[0].shape, c.outputs[0].shape, attrs.before);
  switch_any(c.outputs[0].dtype, [&]<class T>(Type<T>) {
    launch(c, {.blocks = blocks_for(size)}, pad_elements<T>, c.inputs[0].as<const T>(),
           c.outputs[0].as<T>(), axes, size <= INT32_MAX, size, rounded_to<T>(attrs.value));
  });
}

}  // namespace

KernelList pad_kernels() {
  static constexpr CudaKernel kernels[] = {{"Pad", on_gpu<pad_kernel>},
                                           {"SliceGrad", on_gpu<pad_kernel>}};
  return kernels;
}

}  // namespace tandem::cuda
