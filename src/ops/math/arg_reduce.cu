// The kernels of arg_reduce.cc on a GPU.
#include <limits>

#include "ops/cuda/kernel_list.h"
#include "ops/cuda/reduce_passes.h"
#include "ops/cuda/rows.cuh"
#include "ops/math/reduce.h"

namespace tandem::cuda {
namespace {

// NaN beats every number, and the first NaN beats later ones.
struct Above {
  template <class C>
  __device__ static bool beats(C challenger, C best) {
    return challenger > best || (challenger != challenger && best == best);
  }
  template <class C>
  __device__ static C worst_value() {
    return std::is_floating_point_v<C> ? -std::numeric_limits<C>::infinity()
                                       : std::numeric_limits<C>::lowest();
  }
};
struct Below {
  template <class C>
  __device__ static bool beats(C challenger, C best) {
    return challenger < best || (challenger != challenger && best == best);
  }
  template <class C>
  __device__ static C worst_value() {
    return std::is_floating_point_v<C> ? std::numeric_limits<C>::infinity()
                                       : std::numeric_limits<C>::max();
  }
};

template <class C>
struct Extremum {
  C value;
  std::int64_t at;
};
template <class C>
__device__ Extremum<C> from_lane(const Extremum<C>& extremum, int step) {
  return {static_cast<C>(__shfl_xor_sync(0xffffffffu, extremum.value, step)),
          static_cast<std::int64_t>(
              __shfl_xor_sync(0xffffffffu, static_cast<long long>(extremum.at), step))};
}

// Selects the first of equal values.
template <class Op>
struct Better {
  template <class C>
  __device__ Extremum<C> operator()(const Extremum<C>& a, const Extremum<C>& b) const {
    if (Op::beats(a.value, b.value)) return a;
    if (Op::beats(b.value, a.value)) return b;
    return a.at < b.at ? a : b;
  }
};

// The extremum of the elements first, first + step, ... below `length`, which are `stride` apart in
// memory. Without elements, a value that every element beats or precedes.
template <class Op, class T>
__device__ Extremum<ComputeOf<T>> best_of(const T* x, std::int64_t first, std::int64_t step,
                                          std::int64_t length, std::int64_t stride) {
  using C = ComputeOf<T>;
  Extremum<C> best = {Op::template worst_value<C>(), std::numeric_limits<std::int64_t>::max()};
  for_steps<4>(first, length, step, [&](std::int64_t i) {
    best = Better<Op>()(best, Extremum<C>{load_as(x[i * stride]), i});
  });
  return best;
}

template <class Op, class T>
__global__ void __launch_bounds__(kThreads)
    arg_rows(const T* x, std::int64_t* y, std::int64_t rows, std::int64_t length, int width) {
  const MyRow row(width);
  if (row.index >= rows) return;
  const auto best = over_row(
      row, best_of<Op>(x + row.index * length, row.lane, row.width, length, 1), Better<Op>());
  if (row.lane == 0) y[row.index] = best.at;
}

template <class Op, class T>
__global__ void __launch_bounds__(kThreads)
    arg_columns(const T* x, std::int64_t* y, std::int64_t length, std::int64_t inner) {
  using C = ComputeOf<T>;
  constexpr int kLanes = kThreads / kTile;
  __shared__ Extremum<C> of_lane[kLanes][kTile];
  const std::int64_t tiles = (inner + kTile - 1) / kTile, outer = blockIdx.x / tiles;
  const int here = threadIdx.x % kTile, lane = threadIdx.x / kTile;
  const std::int64_t column = blockIdx.x % tiles * kTile + here;
  Extremum<C> best{};
  if (column < inner)
    best = best_of<Op>(x + outer * length * inner + column, lane, kLanes, length, inner);
  of_lane[lane][here] = best;
  __syncthreads();
  if (lane != 0 || column >= inner) return;
#pragma unroll
  for (int i = 1; i < kLanes; ++i) best = Better<Op>()(best, of_lane[i][here]);
  y[outer * inner + column] = best.at;
}

template <class Op>
void arg_reduce_kernel(KernelContext& c) {
  const Shape& shape = c.inputs[0].shape;
  const std::int64_t count = c.outputs[0].size();
  if (count == 0) return;
  const int axis = resolve_axis(c.op->name, c.attrs<AxisAttrs>().axis, shape.rank());
  const std::int64_t length = shape.word(axis);
  const std::int64_t inner = shape.without_leading(axis + 1).num_elements();
  auto* out = c.outputs[0].as<std::int64_t>();
  switch_numeric(c.inputs[0].dtype, [&]<class T>(Type<T>) {
    const T* x = c.inputs[0].as<const T>();
    if (inner == 1) {
      const int width = row_width(length);
      launch(c, {.blocks = row_blocks(count, width)}, arg_rows<Op, T>, x, out, count, length,
             width);
    } else {
      const std::int64_t blocks = (inner + kTile - 1) / kTile * (count / inner);
      launch(c, {.blocks = static_cast<unsigned>(blocks)}, arg_columns<Op, T>, x, out, length,
             inner);
    }
  });
}

}  // namespace

KernelList arg_reduce_kernels() {
  static constexpr CudaKernel kernels[] = {{"ArgMax", on_gpu<arg_reduce_kernel<Above>>},
                                           {"ArgMin", on_gpu<arg_reduce_kernel<Below>>}};
  return kernels;
}

}  // namespace tandem::cuda
