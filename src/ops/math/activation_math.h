// The activations as formulas on one number, for loops of every kernel that applies one. T is float
// or double; 16-bit elements are computed in float. NaN stays NaN.
#pragma once

#include "core/vector_math.h"
#include "tandem/nn.h"

namespace tandem::nn {

template <class T>
T relu_value(T x) {
  return x < T(0) ? T(0) : x;
}
template <class T>
T relu6_value(T x) {
  const T low = x < T(0) ? T(0) : x;
  return low > T(6) ? T(6) : low;
}
template <class T>
T elu_value(T x, T alpha) {
  return x < T(0) ? alpha * vec::expm1(x) : x;
}

// Applies an activation that onednn::fuses() to `count` elements in place.
template <class T>
void apply_fused(Activation activation, T* y, std::int64_t count) {
  switch (activation) {
    case Activation::kRelu:
      for (std::int64_t i = 0; i < count; ++i) y[i] = relu_value(y[i]);
      break;
    case Activation::kRelu6:
      for (std::int64_t i = 0; i < count; ++i) y[i] = relu6_value(y[i]);
      break;
    case Activation::kElu:
      for (std::int64_t i = 0; i < count; ++i) y[i] = elu_value(y[i], T(1));
      break;
    case Activation::kSigmoid:
      for (std::int64_t i = 0; i < count; ++i) y[i] = vec::sigmoid(y[i]);
      break;
    case Activation::kTanh:
      for (std::int64_t i = 0; i < count; ++i) y[i] = vec::tanh(y[i]);
      break;
    default: break;
  }
}

// y[rows, columns] = activation(y + bias); `bias` may be null.
template <class T>
void finish_rows(Activation activation, const T* bias, T* y, std::int64_t rows,
                 std::int64_t columns) {
  if (!bias && activation == Activation::kLinear) return;
  for (std::int64_t i = 0; i < rows; ++i) {
    T* row = y + i * columns;
    if (bias)
      for (std::int64_t j = 0; j < columns; ++j) row[j] += bias[j];
    apply_fused(activation, row, columns);
  }
}

}  // namespace tandem::nn
