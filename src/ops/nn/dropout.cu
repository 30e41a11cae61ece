// The GPU kernel of dropout.cc. It drops the same elements as the CPU's.
#include "ops/nn/dropout.h"

#include "ops/cuda/elements.cuh"
#include "ops/cuda/kernel_list.h"
#include "ops/cuda/per_run_arg.cuh"
#include "ops/nn/dropout_words.h"

namespace tandem::cuda {
namespace {

// One thread per counter, which is a column of a block of random words; half a warp per block.
template <class T>
__global__ void __launch_bounds__(kThreads)
    dropout_elements(const T* x, T* y, std::uint64_t* masks, std::int64_t size,
                     PerRunArg<RandomKey> random_key, DropoutBlocks blocks, std::uint32_t threshold,
                     ComputeOf<T> scale) {
  using C = ComputeOf<T>;
  const std::int64_t thread = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const std::int64_t block = thread / kColumns, column = thread % kColumns;
  const auto words =
      philox(random_key(), static_cast<std::uint64_t>(blocks.first * kColumns + thread));
  std::uint64_t mask = 0;
#pragma unroll
  for (int row = 0; row < 4; ++row) {
    const bool kept = words[row] >= threshold;
    const unsigned of_warp = __ballot_sync(0xffffffffu, kept);
    mask |=
        static_cast<std::uint64_t>(of_warp >> (threadIdx.x % 32 / kColumns * kColumns) & 0xffffu)
        << (row * kColumns);
    const std::int64_t at = block * kDropoutBlock - blocks.skipped + row * kColumns + column;
    if (at >= 0 && at < size) y[at] = store_as<T>(kept ? load_as(x[at]) * scale : C{0});
  }
  if (column == 0 && block < blocks.count) masks[block] = mask;
}

void dropout_kernel(KernelContext& c) {
  const auto& attrs = c.attrs<DropoutAttrs>();
  const auto random_key =
      per_run_arg<DropoutAttrs>(c, [](const DropoutAttrs& a) { return a.random_key(); });
  const std::int64_t size = c.outputs[0].size();
  const DropoutBlocks blocks(attrs.offset, size);
  auto* masks = c.outputs[1].as<std::uint64_t>();
  check(
      cudaMemsetAsync(masks + blocks.count, 0,
                      static_cast<std::size_t>(c.outputs[1].size() - blocks.count) * sizeof(*masks),
                      stream_of(c)),
      "cudaMemsetAsync");
  if (size == 0) return;
  switch_floating(c.inputs[0].dtype, [&]<class T>(Type<T>) {
    launch(c, {.blocks = blocks_for(blocks.count * kColumns)}, dropout_elements<T>,
           c.inputs[0].as<const T>(), c.outputs[0].as<T>(), masks, size, random_key, blocks,
           attrs.threshold(), static_cast<ComputeOf<T>>(attrs.scale()));
  });
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    masked_elements(const T* dy, const std::uint64_t* masks, T* dx, std::int64_t size,
                    std::int64_t skipped, ComputeOf<T> scale) {
  using C = ComputeOf<T>;
  constexpr int kCount = kPackOf<T>;
  const MyPack<kCount> mine(size);
  if (mine.count == 0) return;
  auto pack = load_pack<kCount>(dy, mine.begin, mine.count);
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    const std::int64_t at = skipped + (i < mine.count ? mine.begin + i : mine.begin);
    const bool kept = (masks[at / kDropoutBlock] >> (at % kDropoutBlock) & 1u) != 0;
    pack.at[i] = store_as<T>(kept ? load_as(pack.at[i]) * scale : C{0});
  }
  store_pack(dx, mine.begin, mine.count, pack);
}

void dropout_grad_kernel(KernelContext& c) {
  const auto& attrs = c.attrs<DropoutGradAttrs>();
  const std::int64_t size = c.inputs[0].size();
  if (size == 0) return;
  switch_floating(c.inputs[0].dtype, [&]<class T>(Type<T>) {
    constexpr int kCount = kPackOf<T>;
    launch(c, {.blocks = blocks_for((size + kCount - 1) / kCount)}, masked_elements<T>,
           c.inputs[0].as<const T>(), c.inputs[1].as<const std::uint64_t>(), c.outputs[0].as<T>(),
           size, attrs.skipped, static_cast<ComputeOf<T>>(attrs.scale()));
  });
}

}  // namespace

KernelList dropout_kernels() {
  static constexpr CudaKernel kernels[] = {{"Dropout", on_gpu<dropout_kernel>},
                                           {"DropoutGrad", on_gpu<dropout_grad_kernel>}};
  return kernels;
}

}  // namespace tandem::cuda
