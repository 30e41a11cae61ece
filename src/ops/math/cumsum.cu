// The kernel of cumsum.cc on a GPU.
#include "ops/cuda/kernel_list.h"
#include "ops/cuda/rows.cuh"
#include "ops/math/reduce.h"

namespace tandem::cuda {
namespace {

// The inclusive prefix sum over the warp's lanes.
template <class C>
__device__ C sum_up_to(C value) {
  const int lane = threadIdx.x % kWarp;
#pragma unroll
  for (int step = 1; step < kWarp; step *= 2) {
    const C before = static_cast<C>(__shfl_up_sync(0xffffffffu, value, step));
    if (lane >= step) value = Add()(before, value);
  }
  return value;
}

// For inner size 1: the threads of a row process one chunk of adjacent elements at a time, an
// element per thread.
template <class T>
__global__ void __launch_bounds__(kThreads)
    cumsum_rows(const T* x, T* y, std::int64_t rows, std::int64_t length, int width, bool reverse) {
  using C = ComputeOf<T>;
  const MyRow row(width);
  if (row.index >= rows) return;
  __shared__ C of_warp[kWarps];
  x += row.index * length;
  y += row.index * length;
  C carried = C{0};
  for (std::int64_t begin = 0; begin < length; begin += row.width) {
    const std::int64_t i = begin + row.lane;
    const std::int64_t at = reverse ? length - 1 - i : i;
    const C value = i < length ? static_cast<C>(load_as(x[at])) : C{0};
    C sum = sum_up_to(value), all;
    if (row.width == kWarp) {
      all = static_cast<C>(__shfl_sync(0xffffffffu, sum, kWarp - 1));
    } else {
      if (row.lane % kWarp == kWarp - 1) of_warp[row.lane / kWarp] = sum;
      __syncthreads();
      C before = C{0};
      all = C{0};
      for (int i = 0; i < kWarps; ++i) {
        if (i == row.lane / kWarp) before = all;
        all = Add()(all, of_warp[i]);
      }
      sum = Add()(before, sum);
      __syncthreads();  // the next chunk overwrites the shared memory
    }
    if (i < length) y[at] = store_as<T>(Add()(carried, sum));
    carried = Add()(carried, all);
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    cumsum_columns(const T* x, T* y, std::int64_t columns, std::int64_t length, std::int64_t inner,
                   bool reverse) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= columns) return;
  const std::int64_t step = reverse ? -inner : inner;
  std::int64_t at = i / inner * length * inner + i % inner + (reverse ? (length - 1) * inner : 0);
  ComputeOf<T> sum{};
#pragma unroll 4
  for (std::int64_t k = 0; k < length; ++k, at += step) {
    sum = Add()(sum, load_as(x[at]));
    y[at] = store_as<T>(sum);
  }
}

void cumsum_kernel(KernelContext& c) {
  const auto& attrs = c.attrs<CumsumAttrs>();
  const Shape& shape = c.inputs[0].shape;
  if (c.inputs[0].size() == 0) return;
  const int axis = resolve_axis(c.op->name, attrs.axis, shape.rank());
  const std::int64_t length = shape.word(axis), runs = c.inputs[0].size() / length;
  const std::int64_t inner = shape.without_leading(axis + 1).num_elements();
  switch_numeric(c.inputs[0].dtype, [&]<class T>(Type<T>) {
    const T* x = c.inputs[0].as<const T>();
    T* y = c.outputs[0].as<T>();
    if (inner == 1) {
      const int width = row_width(length);
      launch(c, {.blocks = row_blocks(runs, width)}, cumsum_rows<T>, x, y, runs, length, width,
             attrs.reverse);
    } else {
      launch(c, {.blocks = blocks_for(runs)}, cumsum_columns<T>, x, y, runs, length, inner,
             attrs.reverse);
    }
  });
}

}  // namespace

KernelList cumsum_kernels() {
  static constexpr CudaKernel kernels[] = {{"Cumsum", on_gpu<cumsum_kernel>}};
  return kernels;
}

}  // namespace tandem::cuda
