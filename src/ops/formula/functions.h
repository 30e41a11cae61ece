// The formulas of element-wise operations. C is the compute type of the elements.
#pragma once

#include <cstdint>
#include <limits>

#include "ops/formula/primitives.h"

namespace tandem {
namespace TANDEM_SIDE {

// --- two operands ---

struct Add {
  template <class C>
  TANDEM_DEVICE C operator()(C a, C b) const {
    return wrapping(a, b, [](auto x, auto y) { return x + y; });
  }
};
struct Sub {
  template <class C>
  TANDEM_DEVICE C operator()(C a, C b) const {
    return wrapping(a, b, [](auto x, auto y) { return x - y; });
  }
};
struct Mul {
  template <class C>
  TANDEM_DEVICE C operator()(C a, C b) const {
    return wrapping(a, b, [](auto x, auto y) { return x * y; });
  }
};

// The base of operations that refuse some integers as right operand. CPU kernels check the operands
// first; GPU kernels compute an arbitrary result and report the operand.
struct RefusesZero {
  static constexpr const char* kExpected = "a non-zero divisor";
  template <class T>
  TANDEM_DEVICE static bool refuses(T right) {
    return right == T{0};
  }
};

struct Div : RefusesZero {
  template <class C>
  TANDEM_DEVICE C operator()(C a, C b) const {
    if constexpr (std::is_integral_v<C>) {
      if (kGpuCode && b == C{0}) return C{0};
      // An overflowing quotient (min / -1) wraps around; the CPU's division would trap.
      if constexpr (std::is_signed_v<C>)
        if (b == C{-1}) return Sub()(C{0}, a);
    }
    return static_cast<C>(a / b);
  }
};
// The remainder has the divisor's sign.
struct FloorMod : RefusesZero {
  template <class C>
  TANDEM_DEVICE C operator()(C a, C b) const {
    C rest;
    if constexpr (std::is_integral_v<C>) {
      // An overflowing division (min / -1) would trap on a CPU.
      const bool whole = std::is_signed_v<C> && b == static_cast<C>(-1);
      rest = whole || (kGpuCode && b == C{0}) ? C{0} : static_cast<C>(a % b);
    } else {
      rest = prim::fmod(a, b);
    }
    if constexpr (!std::is_unsigned_v<C>)
      if (rest != C{0} && (rest < C{0}) != (b < C{0})) rest += b;
    return rest;
  }
};
struct FloorDiv : RefusesZero {
  template <class C>
  TANDEM_DEVICE C operator()(C a, C b) const {
    if constexpr (std::is_integral_v<C>) {
      if (kGpuCode && b == C{0}) return C{0};
      if constexpr (std::is_signed_v<C>) {
        if (b == C{-1}) return Sub()(C{0}, a);
        const C quotient = static_cast<C>(a / b);
        return quotient * b != a && (a < C{0}) != (b < C{0}) ? quotient - 1 : quotient;
      }
      return static_cast<C>(a / b);
    } else {
      // As in Python, this starts from the remainder, because a / b may be rounded up to the next
      // whole number.
      if (b == C{0}) return a / b;
      const C rest = prim::fmod(a, b);
      C quotient = (a - rest) / b;
      if (rest != C{0} && (rest < C{0}) != (b < C{0})) quotient -= C{1};
      if (quotient == C{0}) return prim::copysign(C{0}, a / b);
      return prim::nearbyint(quotient);
    }
  }
};

struct Pow {
  static constexpr const char* kExpected = "an exponent of at least 0";
  template <class T>
  TANDEM_DEVICE static bool refuses(T exponent) {
    if constexpr (std::is_signed_v<T>) return exponent < T{0};
    return false;
  }
  template <class C>
  TANDEM_DEVICE C operator()(C base, C exponent) const {
    if constexpr (std::is_floating_point_v<C>) {
      return prim::pow(base, exponent);
    } else {
      using U = std::make_unsigned_t<C>;
      auto square = static_cast<std::uint64_t>(static_cast<U>(base));
      std::uint64_t result = 1;
      for (auto left = static_cast<U>(exponent); left != 0; left = static_cast<U>(left >> 1)) {
        if ((left & 1u) != 0) result *= square;
        square *= square;
      }
      return static_cast<C>(result);
    }
  }
};

// If either operand is NaN, so is the result, as in NumPy.
struct Maximum {
  template <class C>
  TANDEM_DEVICE C operator()(C a, C b) const {
    const C larger = a > b ? a : b;  // b if one is NaN
    return a != a ? a : larger;      // one comparison per choice, so that there are no branches
  }
};
struct Minimum {
  template <class C>
  TANDEM_DEVICE C operator()(C a, C b) const {
    const C smaller = a < b ? a : b;
    return a != a ? a : smaller;
  }
};
// NaN stays NaN.
struct Clip {
  template <class C>
  TANDEM_DEVICE C operator()(C x, C low, C high) const {
    const C raised = x < low ? low : x;
    return raised > high ? high : raised;
  }
};
struct SquaredDifference {
  template <class C>
  TANDEM_DEVICE C operator()(C a, C b) const {
    const C d = Sub()(a, b);
    return Mul()(d, d);
  }
};
// Gradients, from the result y and the result's gradient g.
struct TanhGrad {
  template <class C>
  TANDEM_DEVICE C operator()(C y, C g) const {
    return g * (C{1} - y * y);
  }
};
struct SigmoidGrad {
  template <class C>
  TANDEM_DEVICE C operator()(C y, C g) const {
    return g * (y * (C{1} - y));
  }
};
// log(1 + exp(x)) - x z without overflow, for logits x and labels z.
struct SigmoidCrossEntropy {
  template <class C>
  TANDEM_DEVICE C operator()(C x, C z) const {
    return (x < C(0) ? C(0) : x) - x * z + prim::log1p(prim::exp(-prim::fabs(x)));
  }
};
// The gradient by x, for the gradient g of the loss.
struct SigmoidCrossEntropyGrad {
  template <class C>
  TANDEM_DEVICE C operator()(C g, C x, C z) const {
    return g * (prim::sigmoid(x) - z);
  }
};

#define TANDEM_COMPARISON(Name, expression)         \
  struct Name {                                     \
    template <class C>                              \
    TANDEM_DEVICE bool operator()(C a, C b) const { \
      return expression;                            \
    }                                               \
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

// --- one operand ---

#define TANDEM_UNARY(Name, expression)         \
  struct Name {                                \
    template <class C>                         \
    TANDEM_DEVICE auto operator()(C x) const { \
      return expression;                       \
    }                                          \
  }

TANDEM_UNARY(Square, Mul()(x, x));
TANDEM_UNARY(Cube, Mul()(Mul()(x, x), x));
TANDEM_UNARY(Sqrt, prim::sqrt(x));
TANDEM_UNARY(Rsqrt, prim::rsqrt(x));
TANDEM_UNARY(Reciprocal, C{1} / x);
TANDEM_UNARY(Exp, prim::exp(x));
TANDEM_UNARY(Expm1, prim::expm1(x));
TANDEM_UNARY(Log, prim::log(x));
TANDEM_UNARY(Log1p, prim::log1p(x));
TANDEM_UNARY(Sin, prim::sin(x));
TANDEM_UNARY(Cos, prim::cos(x));
TANDEM_UNARY(Tanh, prim::tanh(x));
TANDEM_UNARY(Sigmoid, prim::sigmoid(x));
TANDEM_UNARY(Erf, prim::erf(x));
TANDEM_UNARY(Floor, prim::floor(x));
TANDEM_UNARY(Ceil, prim::ceil(x));
TANDEM_UNARY(Round, prim::nearbyint(x));  // the default rounding mode: halves to even
TANDEM_UNARY(IsNan, x != x);
TANDEM_UNARY(IsFinite, prim::fabs(x) <= std::numeric_limits<C>::max());
TANDEM_UNARY(LogicalNot, !x);

#undef TANDEM_UNARY

// Floating-point negation also changes the sign of zeros and NaNs.
struct Neg {
  template <class C>
  TANDEM_DEVICE C operator()(C x) const {
    if constexpr (std::is_floating_point_v<C>)
      return -x;
    else
      return Sub()(C{0}, x);
  }
};
struct Abs {
  template <class C>
  TANDEM_DEVICE C operator()(C x) const {
    if constexpr (std::is_floating_point_v<C>)
      return prim::fabs(x);
    else if constexpr (std::is_unsigned_v<C>)
      return x;
    else
      return x < C{0} ? Neg()(x) : x;
  }
};
struct Sign {
  template <class C>
  TANDEM_DEVICE C operator()(C x) const {
    if constexpr (std::is_unsigned_v<C>)
      return x > C{0};
    else
      return x != x ? x : static_cast<C>((x > C{0}) - (x < C{0}));
  }
};

}  // namespace TANDEM_SIDE
}  // namespace tandem
