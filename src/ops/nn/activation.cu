// The kernels of activation.cc on a GPU.
#include "ops/nn/activation.h"

#include "ops/cuda/elementwise.cuh"
#include "ops/cuda/kernel_list.h"
#include "ops/formula/activations.h"
#include "ops/formula/functions.h"

namespace tandem::cuda {
namespace {

template <class A, class C>
struct ActivationValue {
  C alpha;
  __device__ C operator()(C x) const { return A::value(x, alpha); }
};
template <class A, class C>
struct ActivationGradient {
  C alpha;
  __device__ C operator()(C dy, C saved) const { return A::gradient(dy, saved, alpha); }
};

template <class A>
void value_kernel(KernelContext& c) {
  switch_floating(c.inputs[0].dtype, [&]<class T>(Type<T>) {
    using C = ComputeOf<T>;
    unary_on<ActivationValue<A, C>, T>(c, {static_cast<C>(c.attrs<ActivationAttrs>().alpha)});
  });
}
template <class A>
void gradient_kernel(KernelContext& c) {
  switch_floating(c.inputs[0].dtype, [&]<class T>(Type<T>) {
    using C = ComputeOf<T>;
    binary_on<ActivationGradient<A, C>, T>(c, {static_cast<C>(c.attrs<ActivationAttrs>().alpha)});
  });
}
void sigmoid_cross_entropy_kernel(KernelContext& c) {
  switch_floating(c.inputs[0].dtype,
                  [&]<class T>(Type<T>) { binary_on<SigmoidCrossEntropy, T>(c); });
}
void sigmoid_cross_entropy_grad_kernel(KernelContext& c) {
  switch_floating(c.inputs[0].dtype,
                  [&]<class T>(Type<T>) { ternary_on<SigmoidCrossEntropyGrad, T>(c); });
}

}  // namespace

KernelList activation_kernels() {
  static constexpr CudaKernel kernels[] = {
      {"Relu", on_gpu<value_kernel<Relu>>},
      {"ReluGrad", on_gpu<gradient_kernel<Relu>>},
      {"Relu6", on_gpu<value_kernel<Relu6>>},
      {"Relu6Grad", on_gpu<gradient_kernel<Relu6>>},
      {"LeakyRelu", on_gpu<value_kernel<LeakyRelu>>},
      {"LeakyReluGrad", on_gpu<gradient_kernel<LeakyRelu>>},
      {"Elu", on_gpu<value_kernel<Elu>>},
      {"EluGrad", on_gpu<gradient_kernel<Elu>>},
      {"Selu", on_gpu<value_kernel<Selu>>},
      {"SeluGrad", on_gpu<gradient_kernel<Selu>>},
      {"Softplus", on_gpu<value_kernel<Softplus>>},
      {"SoftplusGrad", on_gpu<gradient_kernel<Softplus>>},
      {"Swish", on_gpu<value_kernel<Swish>>},
      {"SwishGrad", on_gpu<gradient_kernel<Swish>>},
      {"Gelu", on_gpu<value_kernel<Gelu>>},
      {"GeluGrad", on_gpu<gradient_kernel<Gelu>>},
      {"GeluTanh", on_gpu<value_kernel<GeluTanh>>},
      {"GeluTanhGrad", on_gpu<gradient_kernel<GeluTanh>>},
      {"SigmoidCrossEntropyWithLogits", on_gpu<sigmoid_cross_entropy_kernel>},
      {"SigmoidCrossEntropyWithLogitsGrad", on_gpu<sigmoid_cross_entropy_grad_kernel>}};
  return kernels;
}

}  // namespace tandem::cuda
