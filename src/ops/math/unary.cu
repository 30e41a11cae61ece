// The kernels of unary.cc on a GPU.
#include "ops/cuda/elementwise.cuh"
#include "ops/cuda/kernel_list.h"
#include "ops/formula/functions.h"

namespace tandem::cuda {
namespace {

template <class Op, class Result = void>
void floating(KernelContext& c) {
  switch_floating(c.inputs[0].dtype, [&]<class T>(Type<T>) { unary_on<Op, T, Result>(c); });
}
template <class Op>
void numeric(KernelContext& c) {
  switch_numeric(c.inputs[0].dtype, [&]<class T>(Type<T>) { unary_on<Op, T>(c); });
}
void logical_not(KernelContext& c) { unary_on<LogicalNot, bool>(c); }

}  // namespace

KernelList unary_kernels() {
  static constexpr CudaKernel kernels[] = {{"Neg", on_gpu<numeric<Neg>>},
                                           {"Abs", on_gpu<numeric<Abs>>},
                                           {"Sign", on_gpu<numeric<Sign>>},
                                           {"Square", on_gpu<numeric<Square>>},
                                           {"Sqrt", on_gpu<floating<Sqrt>>},
                                           {"Rsqrt", on_gpu<floating<Rsqrt>>},
                                           {"Reciprocal", on_gpu<floating<Reciprocal>>},
                                           {"Exp", on_gpu<floating<Exp>>},
                                           {"Expm1", on_gpu<floating<Expm1>>},
                                           {"Log", on_gpu<floating<Log>>},
                                           {"Log1p", on_gpu<floating<Log1p>>},
                                           {"Sin", on_gpu<floating<Sin>>},
                                           {"Cos", on_gpu<floating<Cos>>},
                                           {"Tanh", on_gpu<floating<Tanh>>},
                                           {"Sigmoid", on_gpu<floating<Sigmoid>>},
                                           {"Erf", on_gpu<floating<Erf>>},
                                           {"Floor", on_gpu<floating<Floor>>},
                                           {"Ceil", on_gpu<floating<Ceil>>},
                                           {"Round", on_gpu<floating<Round>>},
                                           {"IsNan", on_gpu<floating<IsNan, bool>>},
                                           {"IsFinite", on_gpu<floating<IsFinite, bool>>},
                                           {"LogicalNot", on_gpu<logical_not>}};
  return kernels;
}

}  // namespace tandem::cuda
