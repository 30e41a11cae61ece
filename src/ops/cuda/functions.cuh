// What element-wise operations compute of an element, for the kernels that run one of them and for
// those that run a chain (chain.cuh). C is the type of arithmetic of the elements.
#pragma once

#include <numbers>

#include "ops/cuda/activation.cuh"
#include "ops/cuda/elements.cuh"

namespace tandem::cuda {

// --- arithmetic ---

struct Add {
  template <class C>
  __device__ C operator()(C a, C b) const {
    return wrapping(a, b, [](auto x, auto y) { return x + y; });
  }
};
struct Sub {
  template <class C>
  __device__ C operator()(C a, C b) const {
    return wrapping(a, b, [](auto x, auto y) { return x - y; });
  }
};
struct Mul {
  template <class C>
  __device__ C operator()(C a, C b) const {
    return wrapping(a, b, [](auto x, auto y) { return x * y; });
  }
};
// A quotient that overflows wraps. Of a divisor of 0 the kernel tells itself.
struct Div {
  template <class C>
  __device__ C operator()(C a, C b) const {
    if constexpr (std::is_integral_v<C>) {
      if (b == C{0}) return C{0};
      if constexpr (std::is_signed_v<C>)
        if (b == C{-1}) return Sub()(C{0}, a);
    }
    return a / b;
  }
};
// NaN wins on either side.
struct Maximum {
  template <class C>
  __device__ C operator()(C a, C b) const {
    return a > b || a != a ? a : b;
  }
};
struct Minimum {
  template <class C>
  __device__ C operator()(C a, C b) const {
    return a < b || a != a ? a : b;
  }
};
struct SquaredDifference {
  template <class C>
  __device__ C operator()(C a, C b) const {
    const C d = Sub()(a, b);
    return Mul()(d, d);
  }
};
// NaN stays.
struct AtLeast {
  template <class C>
  __device__ C operator()(C x, C low) const {
    return x < low ? low : x;
  }
};
struct AtMost {
  template <class C>
  __device__ C operator()(C x, C high) const {
    return x > high ? high : x;
  }
};
// Of the results y and the gradient g that arrives.
struct TanhGrad {
  template <class C>
  __device__ C operator()(C y, C g) const {
    return g * (C{1} - y * y);
  }
};
struct SigmoidGrad {
  template <class C>
  __device__ C operator()(C y, C g) const {
    return g * (y * (C{1} - y));
  }
};

// --- of one operand ---

#define TANDEM_UNARY(Name, expression)      \
  struct Name {                             \
    template <class C>                      \
    __device__ auto operator()(C x) const { \
      return expression;                    \
    }                                       \
  }

TANDEM_UNARY(Square, wrapping(x, x, [](auto a, auto b) { return a * b; }));
TANDEM_UNARY(Sqrt, sqrt(x));
TANDEM_UNARY(Rsqrt, rsqrt(x));
TANDEM_UNARY(Reciprocal, C{1} / x);
TANDEM_UNARY(Exp, exp(x));
TANDEM_UNARY(Expm1, expm1(x));
TANDEM_UNARY(Log, log(x));
TANDEM_UNARY(Log1p, log1p(x));
TANDEM_UNARY(Sin, sin(x));
TANDEM_UNARY(Cos, cos(x));
TANDEM_UNARY(Tanh, tanh(x));
TANDEM_UNARY(Sigmoid, C{1} / (C{1} + exp(-x)));
TANDEM_UNARY(Erf, erf(x));
TANDEM_UNARY(Floor, floor(x));
TANDEM_UNARY(Ceil, ceil(x));
TANDEM_UNARY(Round, rint(x));  // halves to even
TANDEM_UNARY(IsNan, x != x);
TANDEM_UNARY(IsFinite, x - x == C{0});
TANDEM_UNARY(LogicalNot, !x);

#undef TANDEM_UNARY

// Floating types keep the sign in a bit, also of zeros and NaNs.
struct Neg {
  template <class C>
  __device__ C operator()(C x) const {
    if constexpr (std::is_floating_point_v<C>)
      return -x;
    else
      return wrapping(C{0}, x, [](auto a, auto b) { return a - b; });
  }
};
struct Abs {
  template <class C>
  __device__ C operator()(C x) const {
    if constexpr (std::is_floating_point_v<C>)
      return fabs(x);
    else if constexpr (std::is_unsigned_v<C>)
      return x;
    else
      return x < C{0} ? Neg()(x) : x;
  }
};
struct Sign {
  template <class C>
  __device__ C operator()(C x) const {
    if constexpr (std::is_unsigned_v<C>)
      return x > C{0};
    else
      return x != x ? x : static_cast<C>((x > C{0}) - (x < C{0}));
  }
};

// --- comparisons ---

#define TANDEM_COMPARISON(Name, expression)      \
  struct Name {                                  \
    template <class C>                           \
    __device__ bool operator()(C a, C b) const { \
      return expression;                         \
    }                                            \
  }

TANDEM_COMPARISON(Equal, a == b);
TANDEM_COMPARISON(NotEqual, a != b);
TANDEM_COMPARISON(Less, a < b);
TANDEM_COMPARISON(LessEqual, a <= b);
TANDEM_COMPARISON(Greater, a > b);
TANDEM_COMPARISON(GreaterEqual, a >= b);
TANDEM_COMPARISON(LogicalAnd, a&& b);
TANDEM_COMPARISON(LogicalOr, a || b);

#undef TANDEM_COMPARISON

// --- activations ---

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
    return elu_is_left(y) ? dy * (y + alpha) : dy;
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

}  // namespace tandem::cuda
