// Activations: the value of each, and the gradient of its input, given dy and the tensor that the
// forward operation saved (its result or its input). T is float or double. NaN stays NaN.
#pragma once

#include <numbers>

#include "ops/formula/primitives.h"

namespace tandem {
namespace TANDEM_SIDE {

struct Relu {
  template <class T>
  TANDEM_DEVICE static T value(T x, T = T()) {
    return x < T(0) ? T(0) : x;
  }
  template <class T>
  TANDEM_DEVICE static T gradient(T dy, T y, T) {
    return y > T(0) ? dy : T(0);
  }
};

struct Relu6 {
  template <class T>
  TANDEM_DEVICE static T value(T x, T = T()) {
    const T low = x < T(0) ? T(0) : x;
    return low > T(6) ? T(6) : low;
  }
  template <class T>
  TANDEM_DEVICE static T gradient(T dy, T y, T) {
    return y > T(0) && y < T(6) ? dy : T(0);
  }
};

struct LeakyRelu {
  template <class T>
  TANDEM_DEVICE static T value(T x, T alpha) {
    return x > T(0) ? x : alpha * x;
  }
  template <class T>
  TANDEM_DEVICE static T gradient(T dy, T x, T alpha) {
    return x > T(0) ? dy : alpha * dy;
  }
};

// The sign bit of a result shows which branch it is from, even if it was rounded to 0: +0 is from
// the linear branch.
struct Elu {
  template <class T>
  TANDEM_DEVICE static T value(T x, T alpha) {
    return x < T(0) ? alpha * prim::expm1(x) : x + T(0);
  }
  template <class T>
  TANDEM_DEVICE static T gradient(T dy, T y, T alpha) {
    return y <= T(0) ? dy * (y + alpha) : dy;
  }
};

struct Selu {
  static constexpr double kScale = 1.0507009873554804934193349852946;
  static constexpr double kAlpha = 1.6732632423543772848170429916717;
  template <class T>
  TANDEM_DEVICE static T value(T x, T) {
    return T(kScale) * Elu::value(x, T(kAlpha));
  }
  template <class T>
  TANDEM_DEVICE static T gradient(T dy, T y, T) {
    return y < T(0) ? dy * (y + T(kScale * kAlpha)) : dy * T(kScale);
  }
};

struct Softplus {
  template <class T>
  TANDEM_DEVICE static T value(T x, T) {
    return (x < T(0) ? T(0) : x) + prim::log1p(prim::exp(-prim::fabs(x)));
  }
  template <class T>
  TANDEM_DEVICE static T gradient(T dy, T y, T) {
    return dy * -prim::expm1(-y);
  }
};

struct Swish {
  template <class T>
  TANDEM_DEVICE static T value(T x, T) {
    return x * prim::sigmoid(x);
  }
  template <class T>
  TANDEM_DEVICE static T gradient(T dy, T x, T) {
    const T s = prim::sigmoid(x);
    return dy * (s + x * s * (T(1) - s));
  }
};

// D. Hendrycks and K. Gimpel, "Gaussian Error Linear Units": x * Phi(x), where Phi is the
// distribution function of the standard normal distribution.
struct Gelu {
  static constexpr double kDensity = std::numbers::inv_sqrtpi / std::numbers::sqrt2;
  template <class T>
  TANDEM_DEVICE static T value(T x, T) {
    const T a = prim::fabs(x);
    return (x < T(0) ? T(0) : x) - a * prim::normal_tail(a);
  }
  template <class T>
  TANDEM_DEVICE static T gradient(T dy, T x, T) {
    const T tail = prim::normal_tail(prim::fabs(x));
    const T phi = x < T(0) ? tail : T(1) - tail;
    // Not subnormal: that would slow down the products that the gradient is a factor of.
    constexpr T kLeast = sizeof(T) == 8 ? T(-700) : T(-80);
    const T exponent = T(-0.5) * x * x;
    const T density = exponent < kLeast ? T(0) : prim::exp(exponent);
    return dy * (phi + x * T(kDensity) * density);
  }
};

// The approximation by tanh from the same paper.
struct GeluTanh {
  static constexpr double kScale = 2.0 * std::numbers::inv_sqrtpi / std::numbers::sqrt2,
                          kCubic = 0.044715;
  template <class T>
  TANDEM_DEVICE static T value(T x, T) {
    return T(0.5) * x * (T(1) + prim::tanh(T(kScale) * x * (T(1) + T(kCubic) * x * x)));
  }
  template <class T>
  TANDEM_DEVICE static T gradient(T dy, T x, T) {
    const T t = prim::tanh(T(kScale) * x * (T(1) + T(kCubic) * x * x));
    const T inner = T(kScale) * (T(1) + T(3 * kCubic) * x * x);
    return dy * T(0.5) * (T(1) + t + x * (T(1) - t * t) * inner);
  }
};

}  // namespace TANDEM_SIDE
}  // namespace tandem
