// The kernels of activation.cc on a GPU.
#include "ops/nn/activation.h"

#include <numbers>

#include "ops/cuda/activation.cuh"
#include "ops/cuda/elementwise.cuh"
#include "ops/cuda/kernel_list.h"

namespace tandem::cuda {
namespace {

// Each activation: its value, and the gradient of its input given dy and what the forward operation
// saved (its result or its input).

struct Relu {
  template <class T>
  static __device__ T value(T x, T) {
    return relu_value(x);
  }
  template <class T>
  static __device__ T gradient(T dy, T y, T) {
    return y > T(0) ? dy : T(0);
  }
};
struct Relu6 {
  template <class T>
  static __device__ T value(T x, T) {
    return relu6_value(x);
  }
  template <class T>
  static __device__ T gradient(T dy, T y, T) {
    return y > T(0) && y < T(6) ? dy : T(0);
  }
};
struct LeakyRelu {
  template <class T>
  static __device__ T value(T x, T alpha) {
    return x > T(0) ? x : alpha * x;
  }
  template <class T>
  static __device__ T gradient(T dy, T x, T alpha) {
    return x > T(0) ? dy : alpha * dy;
  }
};
struct Elu {
  template <class T>
  static __device__ T value(T x, T alpha) {
    return elu_value(x, alpha);
  }
  template <class T>
  static __device__ T gradient(T dy, T y, T alpha) {
    return y < T(0) ? dy * (y + alpha) : dy;
  }
};
constexpr double kSeluScale = 1.0507009873554804934193349852946;
constexpr double kSeluAlpha = 1.6732632423543772848170429916717;
struct Selu {
  template <class T>
  static __device__ T value(T x, T) {
    return T(kSeluScale) * elu_value(x, T(kSeluAlpha));
  }
  template <class T>
  static __device__ T gradient(T dy, T y, T) {
    return y < T(0) ? dy * (y + T(kSeluScale * kSeluAlpha)) : dy * T(kSeluScale);
  }
};
struct Softplus {
  template <class T>
  static __device__ T value(T x, T) {
    return (x < T(0) ? T(0) : x) + ::log1p(::exp(-::fabs(x)));
  }
  template <class T>
  static __device__ T gradient(T dy, T y, T) {
    return dy * -::expm1(-y);
  }
};
struct Swish {
  template <class T>
  static __device__ T value(T x, T) {
    return x * sigmoid_value(x);
  }
  template <class T>
  static __device__ T gradient(T dy, T x, T) {
    const T s = sigmoid_value(x);
    return dy * (s + x * s * (T(1) - s));
  }
};
struct Gelu {
  static constexpr double kDensity = std::numbers::inv_sqrtpi / std::numbers::sqrt2;
  template <class T>
  static __device__ T value(T x, T) {
    return T(0.5) * x * (T(1) + ::erf(x * T(1 / std::numbers::sqrt2)));
  }
  template <class T>
  static __device__ T gradient(T dy, T x, T) {
    const T phi = T(0.5) * (T(1) + ::erf(x * T(1 / std::numbers::sqrt2)));
    return dy * (phi + x * T(kDensity) * ::exp(T(-0.5) * x * x));
  }
};
struct GeluTanh {
  static constexpr double kScale = 2.0 * std::numbers::inv_sqrtpi / std::numbers::sqrt2,
                          kCubic = 0.044715;
  template <class T>
  static __device__ T value(T x, T) {
    return T(0.5) * x * (T(1) + ::tanh(T(kScale) * x * (T(1) + T(kCubic) * x * x)));
  }
  template <class T>
  static __device__ T gradient(T dy, T x, T) {
    const T t = ::tanh(T(kScale) * x * (T(1) + T(kCubic) * x * x));
    const T inner = T(kScale) * (T(1) + T(3 * kCubic) * x * x);
    return dy * T(0.5) * (T(1) + t + x * (T(1) - t * t) * inner);
  }
};
struct SigmoidCrossEntropy {
  template <class T>
  __device__ T operator()(T x, T z) const {
    return (x < T(0) ? T(0) : x) - x * z + ::log1p(::exp(-::fabs(x)));
  }
};

template <class A, class C>
struct Value {
  C alpha;
  __device__ C operator()(C x) const { return A::value(x, alpha); }
};
template <class A, class C>
struct Gradient {
  C alpha;
  __device__ C operator()(C dy, C saved) const { return A::gradient(dy, saved, alpha); }
};

template <class A>
void value_kernel(KernelContext& c) {
  switch_floating(c.inputs[0].dtype, [&]<class T>(Type<T>) {
    using C = ComputeOf<T>;
    unary_on<Value<A, C>, T>(c, {static_cast<C>(c.attrs<ActivationAttrs>().alpha)});
  });
}
template <class A>
void gradient_kernel(KernelContext& c) {
  switch_floating(c.inputs[0].dtype, [&]<class T>(Type<T>) {
    using C = ComputeOf<T>;
    binary_on<Gradient<A, C>, T>(c, {static_cast<C>(c.attrs<ActivationAttrs>().alpha)});
  });
}
void sigmoid_cross_entropy_kernel(KernelContext& c) {
  switch_floating(c.inputs[0].dtype,
                  [&]<class T>(Type<T>) { binary_on<SigmoidCrossEntropy, T>(c); });
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
      {"SigmoidCrossEntropyWithLogits", on_gpu<sigmoid_cross_entropy_kernel>}};
  return kernels;
}

}  // namespace tandem::cuda
