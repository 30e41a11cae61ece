// The kernels of variance.cc on a GPU.
#include "ops/cuda/columns.cuh"
#include "ops/cuda/kernel_list.h"
#include "ops/cuda/reduce.cuh"
#include "ops/cuda/strides.h"
#include "ops/math/reduce.h"

namespace tandem::cuda {

template <class C>
__device__ Moments<C> from_lane(const Moments<C>& moments, int step) {
  return {from_lane(moments.count, step), from_lane(moments.mean, step),
          from_lane(moments.squares, step)};
}

namespace {

// Numbers are shifted by the first one, so that a large mean costs no precision.
template <class T>
struct Variance {
  using R = ComputeOf<T>;
  const T* first;
  R *variance, *mean;

  template <class C>
  using Accumulator = Moments<C>;
  template <class C>
  __device__ static Moments<C> neutral() {
    return Moments<C>::none();
  }
  __device__ Moments<R> load(R x) const { return {R{1}, x - load_as(*first), R{0}}; }
  __device__ static Moments<R> combine(Moments<R> a, const Moments<R>& b) {
    a.join(b);
    return a;
  }
  __device__ void store(std::int64_t at, const Moments<R>& moments) const {
    // Not a number without elements
    variance[at] = moments.squares / moments.count;
    mean[at] = moments.count > R{0} ? moments.mean + load_as(*first) : variance[at];
  }
};

void variance_kernel(KernelContext& c) {
  const std::uint32_t mask =
      reduced_axes(c.op->name, c.attrs<ReduceAttrs>(), c.inputs[0].shape.rank());
  switch_floating(c.inputs[0].dtype, [&]<class T>(Type<T>) {
    using R = ComputeOf<T>;
    const T* x = c.inputs[0].as<const T>();
    reduce_on<T>(c, c.inputs[0], mask, c.outputs[0],
                 Variance<T>{x, c.outputs[0].as<R>(), c.outputs[1].as<R>()});
  });
}

// `scale` has the strides of `mean`.
template <class T>
__global__ void __launch_bounds__(kThreads)
    scaled_distances(const T* x, const ComputeOf<T>* mean, const ComputeOf<T>* scale, T* y,
                     Strides<1> strides, std::int64_t size) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= size) return;
  const std::int64_t at = strides.offsets(i).of[0];
  y[i] = store_as<T>((load_as(x[i]) - mean[at]) * scale[at]);
}

void scaled_distance_kernel(KernelContext& c) {
  const TensorView &x = c.inputs[0], &mean = c.inputs[1];
  if (x.size() == 0) return;
  const Strides<1> strides(x.shape, {&mean.shape});
  switch_floating(x.dtype, [&]<class T>(Type<T>) {
    using C = ComputeOf<T>;
    launch(c, {.blocks = blocks_for(x.size())}, scaled_distances<T>, x.as<const T>(),
           mean.as<const C>(), c.inputs[2].as<const C>(), c.outputs[0].as<T>(), strides, x.size());
  });
}

}  // namespace

KernelList variance_kernels() {
  static constexpr CudaKernel kernels[] = {{"Variance", on_gpu<variance_kernel>},
                                           {"ScaledDistance", on_gpu<scaled_distance_kernel>}};
  return kernels;
}

}  // namespace tandem::cuda
