// The kernels of rearrange.cc and slice.cc on a GPU: one loop, as on the CPU.
#include "ops/array/copies.h"
#include "ops/cuda/elements.cuh"
#include "ops/cuda/kernel_list.h"

namespace tandem::cuda {
namespace {

struct CopyAxes {
  int rank;
  bool small;  // positions fit into 32 bits, whose divisions take a fraction of the time
  std::int64_t offset;
  std::int64_t size[StridedCopy::kMaxAxes];
  std::int64_t stride[StridedCopy::kMaxAxes];

  template <class Index>
  __device__ std::int64_t walk(Index index) const {
    std::int64_t position = offset;
    for (int axis = rank - 1; axis > 0; --axis) {
      const Index length = static_cast<Index>(size[axis]);
      position += static_cast<std::int64_t>(index % length) * stride[axis];
      index /= length;
    }
    return rank > 0 ? position + static_cast<std::int64_t>(index) * stride[0] : position;
  }
  __device__ std::int64_t source_of(std::int64_t index) const {
    return small ? walk(static_cast<std::uint32_t>(index))
                 : walk(static_cast<std::uint64_t>(index));
  }
};

template <class U>
__global__ void __launch_bounds__(kThreads)
    copy_elements(const U* x, U* y, CopyAxes axes, std::int64_t size) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < size) y[i] = x[axes.source_of(i)];
}

template <class U>
void copy_typed(KernelContext& c, const CopyAxes& axes) {
  const std::int64_t size = c.outputs[0].size();
  launch(c, {.blocks = blocks_for(size)}, copy_elements<U>, c.inputs[0].as<const U>(),
         c.outputs[0].as<U>(), axes, size);
}

template <StridedCopy (*kCopy)(const KernelContext&)>
void copy_kernel(KernelContext& c) {
  if (c.outputs[0].size() == 0) return;
  const StridedCopy copy = kCopy(c);
  CopyAxes axes = {.rank = copy.rank(),
                   .small = c.outputs[0].size() <= INT32_MAX,
                   .offset = copy.offset(),
                   .size = {},
                   .stride = {}};
  for (int axis = 0; axis < axes.rank; ++axis) {
    axes.size[axis] = copy.size(axis);
    axes.stride[axis] = copy.stride(axis);
  }
  switch (size_of(c.outputs[0].dtype)) {
    case 1: return copy_typed<std::uint8_t>(c, axes);
    case 2: return copy_typed<std::uint16_t>(c, axes);
    case 4: return copy_typed<std::uint32_t>(c, axes);
    default: return copy_typed<std::uint64_t>(c, axes);
  }
}

}  // namespace

KernelList rearrange_kernels() {
  static constexpr CudaKernel kernels[] = {{"Transpose", on_gpu<copy_kernel<transpose_copy>>},
                                           {"BroadcastTo", on_gpu<copy_kernel<broadcast_to_copy>>},
                                           {"Tile", on_gpu<copy_kernel<tile_copy>>},
                                           {"ReverseV2", on_gpu<copy_kernel<reverse_copy>>},
                                           {"Slice", on_gpu<copy_kernel<slice_copy>>}};
  return kernels;
}

}  // namespace tandem::cuda
