// Powers, and the division that rounds down with the remainder that goes with it.
#include <cmath>

#include "op/record.h"
#include "ops/math/binary.h"
#include "ops/math/binary_kernel.h"
#include "ops/math/whole_power.h"
#include "runtime/dispatch.h"
#include "tandem/creation.h"
#include "tandem/math.h"

namespace tandem {
namespace {

struct Pow {
  template <class C>
  static C apply(C base, C exponent) {
    if constexpr (std::integral<C>) {
      return whole_power(base, exponent);
    } else {
      return std::pow(base, exponent);
    }
  }
  template <class T>
  static const char* refuses(T exponent) {
    if constexpr (std::signed_integral<T>)
      return exponent < 0 ? "an exponent of at least 0" : nullptr;
    return nullptr;
  }
};

// The powers that models use, as loops of multiplications.
struct SquarePower {
  template <class C>
  static C apply(C base, C) {
    return wrapping(base, base, [](auto a, auto b) { return a * b; });
  }
};
struct CubePower {
  template <class C>
  static C apply(C base, C exponent) {
    return wrapping(SquarePower::apply(base, exponent), base, [](auto a, auto b) { return a * b; });
  }
};

struct FloorMod {
  template <class C>
  static C apply(C a, C b) {
    C rest;
    if constexpr (std::signed_integral<C>)
      rest = b == -1 ? C{0} : static_cast<C>(a % b);
    else if constexpr (std::integral<C>)
      rest = static_cast<C>(a % b);
    else
      rest = std::fmod(a, b);
    // The remainder has the divisor's sign.
    if constexpr (!std::unsigned_integral<C>)
      if (rest != C{0} && (rest < C{0}) != (b < C{0})) rest += b;
    return rest;
  }
  template <class T>
  static const char* refuses(T b) {
    return b == 0 ? "a non-zero divisor" : nullptr;
  }
};

// That of Python: a / b may round up to a whole number that is too large, so it starts from the
// remainder.
template <class C>
C floor_quotient(C a, C b) {
  if (b == C{0}) return a / b;
  const C rest = std::fmod(a, b);
  C quotient = (a - rest) / b;
  if (rest != C{0} && (rest < C{0}) != (b < C{0})) quotient -= C{1};
  if (quotient == C{0}) return std::copysign(C{0}, a / b);
  return std::round(quotient);
}

struct FloorDiv {
  template <class C>
  static C apply(C a, C b) {
    if constexpr (std::signed_integral<C>) {
      if (b == -1) return wrapping(C{0}, a, [](auto x, auto y) { return x - y; });
      const C quotient = static_cast<C>(a / b);
      return quotient * b != a && (a < 0) != (b < 0) ? quotient - 1 : quotient;
    } else if constexpr (std::integral<C>) {
      return static_cast<C>(a / b);
    } else {
      return floor_quotient(a, b);
    }
  }
  template <class T>
  static const char* refuses(T b) {
    return FloorMod::refuses(b);
  }
};

void pow_kernel(KernelContext& c) {
  const double exponent = c.attrs<ScalarAttrs>().scalar;
  if (exponent == 2.0)
    scalar_kernel<SquarePower>(c);
  else if (exponent == 3.0)
    scalar_kernel<CubePower>(c);
  else
    scalar_kernel<Pow>(c);
}

void pow_gradient(GradContext& c) {
  const Tensor &x = c.input(0), &y = c.input(1);
  if (c.needs_grad(0)) {
    // 0^0 has the derivative 0; 0 times 0^-1 would be NaN.
    const Tensor both_zero = logical_and(equal(x, 0.0), equal(y, 0.0));
    const Tensor exponent = where(both_zero, ones_like(y), y) - 1.0;
    c.set_grad(0, sum_to_shape(c.grad() * y * pow(x, exponent), x.shape()));
  }
  if (c.needs_grad(1)) {
    // The derivative x^y log(x) is taken as zero where x is not positive, as in TensorFlow.
    const Tensor positive = greater(x, 0.0);
    const Tensor logarithm = log(where(positive, x, ones_like(x)));
    c.set_grad(1, sum_to_shape(c.grad() * c.output(0) * logarithm, y.shape()));
  }
}

void pow_scalar_gradient(GradContext& c) {
  const double exponent = c.attrs<ScalarAttrs>().scalar;
  if (exponent == 0.0)
    c.set_grad(0, zeros_like(c.grad()));
  else
    c.set_grad(0, c.grad() * (pow(c.input(0), exponent - 1.0) * exponent));
}

void floor_mod_gradient(GradContext& c) {
  if (c.needs_grad(0)) c.set_grad(0, sum_to_shape(c.grad(), c.input_spec(0).shape));
  if (c.needs_grad(1))
    c.set_grad(1, negative(sum_to_shape(c.grad() * floor_divide(c.input(0), c.input(1)),
                                        c.input_spec(1).shape)));
}

}  // namespace

const OpDef kPow = {.name = "Pow",
                    .infer = infer_binary<kNumeric>,
                    .gradient = pow_gradient,
                    .cpu_kernel = binary_kernel<Pow>,
                    .traits = kElementwise | kInPlace,
                    .saved_inputs = 0b11,
                    .saved_outputs = 0b1};
const OpDef kPowScalar = {.name = "PowScalar",
                          .attrs = attrs_type<ScalarAttrs>,
                          .infer = infer_right_scalar<Pow, kNumeric>,
                          .gradient = pow_scalar_gradient,
                          .cpu_kernel = pow_kernel,
                          .traits = kElementwise | kInPlace,
                          .saved_inputs = 0b1};
const OpDef kFloorDiv = {.name = "FloorDiv",
                         .infer = infer_binary<kNumeric>,
                         .cpu_kernel = binary_kernel<FloorDiv>,
                         .traits = kElementwise | kInPlace};
const OpDef kFloorMod = {.name = "FloorMod",
                         .infer = infer_binary<kNumeric>,
                         .gradient = floor_mod_gradient,
                         .cpu_kernel = binary_kernel<FloorMod>,
                         .traits = kElementwise | kInPlace,
                         .saved_inputs = 0b11};

Tensor pow(const Tensor& a, const Tensor& b) { return run(kPow, {&a, &b}); }
Tensor pow(const Tensor& a, double b) { return run(kPowScalar, {&a}, ScalarAttrs{b}); }
Tensor floor_divide(const Tensor& a, const Tensor& b) { return run(kFloorDiv, {&a, &b}); }
Tensor floor_mod(const Tensor& a, const Tensor& b) { return run(kFloorMod, {&a, &b}); }

}  // namespace tandem
