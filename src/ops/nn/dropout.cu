// The GPU kernel of dropout.cc. It drops the same elements as the CPU's.
#include "ops/nn/dropout.h"

#include "ops/cuda/elements.cuh"
#include "ops/cuda/kernel_list.h"
#include "ops/cuda/per_run_arg.cuh"
#include "ops/nn/dropout_words.h"

namespace tandem::cuda {
namespace {

// One thread per counter, which is a column of a block of random words.
template <class T>
__global__ void __launch_bounds__(kThreads)
    dropout_elements(const T* x, T* y, std::int64_t size, PerRunArg<RandomKey> random_key,
                     std::int64_t first_counter, std::int64_t offset, std::uint32_t threshold,
                     ComputeOf<T> scale) {
  using C = ComputeOf<T>;
  const std::int64_t counter =
      first_counter + static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const std::int64_t first = counter / kColumns * kDropoutBlock + counter % kColumns - offset;
  if (first >= size) return;
  const auto words = philox(random_key(), static_cast<std::uint64_t>(counter));
#pragma unroll
  for (int row = 0; row < 4; ++row) {
    const std::int64_t at = first + row * kColumns;
    if (at >= 0 && at < size)
      y[at] = store_as<T>(words[row] >= threshold ? load_as(x[at]) * scale : C{0});
  }
}

void dropout_kernel(KernelContext& c) {
  const auto& attrs = c.attrs<DropoutAttrs>();
  const auto random_key =
      per_run_arg<DropoutAttrs>(c, [](const DropoutAttrs& a) { return a.random_key(); });
  const std::int64_t size = c.outputs[0].size();
  if (size == 0) return;
  const std::int64_t first = attrs.offset / kDropoutBlock,
                     end = (attrs.offset + size + kDropoutBlock - 1) / kDropoutBlock;
  switch_floating(c.inputs[0].dtype, [&]<class T>(Type<T>) {
    launch(c, {.blocks = blocks_for((end - first) * kColumns)}, dropout_elements<T>,
           c.inputs[0].as<const T>(), c.outputs[0].as<T>(), size, random_key, first * kColumns,
           attrs.offset, attrs.threshold(), static_cast<ComputeOf<T>>(attrs.scale()));
  });
}

}  // namespace

KernelList dropout_kernels() {
  static constexpr CudaKernel kernels[] = {{"Dropout", on_gpu<dropout_kernel>}};
  return kernels;
}

}  // namespace tandem::cuda
