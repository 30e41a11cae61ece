// GPU kernels of rearrange.cc and slice.cc: one strided loop, as on the CPU, and tiles in shared
// memory for copies that transpose.
#include "ops/array/copies.h"
#include "ops/array/copy_on_gpu.h"
#include "ops/cuda/elements.cuh"
#include "ops/cuda/kernel_list.h"

namespace tandem::cuda {
namespace {

struct CopyAxes {
  int rank;
  bool small;  // positions fit into 32 bits, whose divisions are much faster
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

constexpr int kSide = 32;  // of a tile, which goes through shared memory

// One block per tile of a plane. Adjacent rows are contiguous in the input, columns in the output.
template <class U>
__global__ void __launch_bounds__(kThreads) transpose_tiles(const U* x, U* y, TransposePlanes of) {
  __shared__ U tile[kSide][kSide + 1];  // the padding avoids bank conflicts
  const std::int64_t down = (of.rows + kSide - 1) / kSide,
                     across = (of.columns + kSide - 1) / kSide;
  const std::int64_t row = blockIdx.x / across % down * kSide, column = blockIdx.x % across * kSide;
  const auto at = of.plane(blockIdx.x / across / down);
  x += at.input + column * of.input_stride + row;
  y += at.output + row * of.output_stride + column;
  const int here = threadIdx.x % kSide, step = kThreads / kSide;
  for (int i = threadIdx.x / kSide; i < kSide; i += step)
    if (column + i < of.columns && row + here < of.rows)
      tile[i][here] = x[i * of.input_stride + here];
  __syncthreads();
  for (int i = threadIdx.x / kSide; i < kSide; i += step)
    if (row + i < of.rows && column + here < of.columns)
      y[i * of.output_stride + here] = tile[here][i];
}

void transpose(KernelContext& c, const TransposePlanes& planes, std::size_t bytes) {
  const std::int64_t tiles =
      (planes.rows + kSide - 1) / kSide * ((planes.columns + kSide - 1) / kSide) * planes.planes;
  switch_bytes(bytes, [&]<class U>(Type<U>) {
    launch(c, {.blocks = static_cast<unsigned>(tiles)}, transpose_tiles<U>,
           c.inputs[0].as<const U>(), c.outputs[0].as<U>(), planes);
  });
}

template <StridedCopy (*kCopy)(const KernelContext&)>
void copy_kernel(KernelContext& c) {
  if (c.outputs[0].size() == 0) return;
  const StridedCopy copy = kCopy(c);
  const std::size_t bytes = size_of(c.outputs[0].dtype);
  if (const auto planes = TransposePlanes::of(copy)) return transpose(c, *planes, bytes);
  // Elements that stay adjacent are copied as one word.
  const std::int64_t together =
      elements_together(copy, bytes,
                        reinterpret_cast<std::uintptr_t>(c.inputs[0].data) |
                            reinterpret_cast<std::uintptr_t>(c.outputs[0].data));
  const std::int64_t size = c.outputs[0].size() / together;
  CopyAxes axes = {.rank = copy.rank(),
                   .small = size <= INT32_MAX,
                   .offset = copy.offset() / together,
                   .size = {},
                   .stride = {}};
  for (int axis = 0; axis < axes.rank; ++axis) {
    axes.size[axis] = copy.size(axis);
    axes.stride[axis] = copy.stride(axis) / together;
  }
  if (together > 1) {
    axes.size[axes.rank - 1] /= together;
    axes.stride[axes.rank - 1] = 1;
  }
  switch_bytes(bytes * static_cast<std::size_t>(together), [&]<class U>(Type<U>) {
    launch(c, {.blocks = blocks_for(size)}, copy_elements<U>, c.inputs[0].as<const U>(),
           c.outputs[0].as<U>(), axes, size);
  });
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
