// The kernels of reduce.cc on a GPU.
#include "ops/cuda/kernel_list.h"
#include "ops/cuda/reduce.cuh"
#include "ops/math/broadcast.h"
#include "ops/math/reduce.h"

namespace tandem::cuda {
namespace {

std::uint32_t axes_of(const KernelContext& c) {
  return reduced_axes(c.op->name, c.attrs<ReduceAttrs>(), c.inputs[0].shape.rank());
}

template <class Op>
void numeric(KernelContext& c) {
  switch_numeric(c.inputs[0].dtype, [&]<class T>(Type<T>) {
    reduce_on<T>(c, c.inputs[0], axes_of(c), c.outputs[0], Op());
  });
}
template <class Op>
void floating(KernelContext& c) {
  switch_floating(c.inputs[0].dtype, [&]<class T>(Type<T>) {
    reduce_on<T>(c, c.inputs[0], axes_of(c), c.outputs[0], Op());
  });
}
void sum_to_shape_kernel(KernelContext& c) {
  switch_numeric(c.inputs[0].dtype, [&]<class T>(Type<T>) {
    reduce_on<T>(c, c.inputs[0], repeated_axes(c.inputs[0].shape, c.outputs[0].shape), c.outputs[0],
                 Sum());
  });
}
template <class Op>
void logical(KernelContext& c) {
  reduce_on<bool>(c, c.inputs[0], axes_of(c), c.outputs[0], Op());
}

}  // namespace

KernelList reduce_kernels() {
  static constexpr CudaKernel kernels[] = {{"Sum", on_gpu<numeric<Sum>>},
                                           {"Mean", on_gpu<floating<Mean>>},
                                           {"Prod", on_gpu<numeric<Prod>>},
                                           {"Max", on_gpu<numeric<Max>>},
                                           {"Min", on_gpu<numeric<Min>>},
                                           {"Any", on_gpu<logical<Any>>},
                                           {"All", on_gpu<logical<All>>},
                                           {"EuclideanNorm", on_gpu<floating<EuclideanNorm>>},
                                           {"SumToShape", on_gpu<sum_to_shape_kernel>}};
  return kernels;
}

}  // namespace tandem::cuda
