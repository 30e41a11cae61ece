// The activations as formulas on one number, on a GPU. T is float or double. NaN stays NaN.
#pragma once

#include "ops/cuda/elements.cuh"
#include "tandem/nn.h"

namespace tandem::cuda {

template <class T>
__device__ T relu_value(T x) {
  return x < T(0) ? T(0) : x;
}
template <class T>
__device__ T relu6_value(T x) {
  const T low = x < T(0) ? T(0) : x;
  return low > T(6) ? T(6) : low;
}
// The sign bit tells which branch a result is from, as on the CPU (ops/math/activation_math.h).
template <class T>
__device__ T elu_value(T x, T alpha) {
  return x < T(0) ? alpha * ::expm1(x) : x + T(0);
}
template <class T>
__device__ bool elu_is_left(T y) {
  return ::copysign(T(1), y) < T(0);
}
template <class T>
__device__ T sigmoid_value(T x) {
  return T(1) / (T(1) + ::exp(-x));
}

// One that an operation may apply to its result (nn::is_fused on the CPU).
template <class T>
__device__ T fused_value(nn::Activation activation, T x) {
  switch (activation) {
    case nn::Activation::kRelu: return relu_value(x);
    case nn::Activation::kRelu6: return relu6_value(x);
    case nn::Activation::kElu: return elu_value(x, T(1));
    case nn::Activation::kSigmoid: return sigmoid_value(x);
    case nn::Activation::kTanh: return ::tanh(x);
    default: return x;
  }
}

}  // namespace tandem::cuda
