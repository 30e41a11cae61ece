// Element-wise functions of one tensor.
#include <cmath>
#include <numbers>

#include "core/vector_math.h"
#include "op/record.h"
#include "ops/math/binary.h"
#include "ops/math/binary_kernel.h"
#include "ops/math/unary_kernel.h"
#include "ops/op_list.h"
#include "runtime/dispatch.h"
#include "tandem/creation.h"
#include "tandem/math.h"

namespace tandem {
namespace {

// C++ spelling of "a type whose apply(x) is this expression".
#define TANDEM_UNARY(Name, expression) \
  struct Name {                        \
    template <class C>                 \
    static auto apply(C x) {           \
      return expression;               \
    }                                  \
  }

TANDEM_UNARY(Sign, static_cast<C>(x != x ? x : static_cast<C>((x > C{0}) - (x < C{0}))));
TANDEM_UNARY(Square, wrapping(x, x, [](auto a, auto b) { return a * b; }));
TANDEM_UNARY(Sqrt, std::sqrt(x));
TANDEM_UNARY(Rsqrt, C{1} / std::sqrt(x));
TANDEM_UNARY(Reciprocal, C{1} / x);
TANDEM_UNARY(Exp, vec::exp(x));
TANDEM_UNARY(Expm1, vec::expm1(x));
TANDEM_UNARY(Log, vec::log(x));
TANDEM_UNARY(Log1p, vec::log1p(x));
TANDEM_UNARY(Sin, std::sin(x));
TANDEM_UNARY(Cos, std::cos(x));
TANDEM_UNARY(Tanh, vec::tanh(x));
TANDEM_UNARY(Sigmoid, vec::sigmoid(x));
TANDEM_UNARY(Erf, vec::erf(x));
TANDEM_UNARY(Floor, std::floor(x));
TANDEM_UNARY(Ceil, std::ceil(x));
TANDEM_UNARY(Round, std::nearbyint(x));  // the default rounding mode: halves to even
TANDEM_UNARY(IsNan, x != x);
TANDEM_UNARY(IsFinite, std::fabs(x) <= std::numeric_limits<C>::max());

#undef TANDEM_UNARY

struct Neg {
  template <class C>
  static C apply(C x) {
    if constexpr (std::floating_point<C>)
      return -x;
    else
      return wrapping(C{0}, x, [](auto a, auto b) { return a - b; });
  }
};
struct Abs {
  template <class C>
  static C apply(C x) {
    if constexpr (std::floating_point<C>)
      return std::fabs(x);
    else
      return x < C{0} ? Neg::apply(x) : x;
  }
};

// Of the results y and the gradient g that arrives.
struct TanhGrad {
  template <class C>
  static C apply(C y, C g) {
    return g * (C{1} - y * y);
  }
};
struct SigmoidGrad {
  template <class C>
  static C apply(C y, C g) {
    return g * (y * (C{1} - y));
  }
};

void neg_gradient(GradContext& c) { c.set_grad(0, negative(c.grad())); }
void abs_gradient(GradContext& c) { c.set_grad(0, c.grad() * sign(c.input(0))); }
// As in TensorFlow, where rounding has no gradient at all, and sign one of zeros.
void sign_gradient(GradContext& c) { c.set_grad(0, zeros_like(c.grad())); }
void square_gradient(GradContext& c) { c.set_grad(0, c.grad() * (c.input(0) * 2.0)); }
void sqrt_gradient(GradContext& c) { c.set_grad(0, c.grad() / (c.output(0) * 2.0)); }
void rsqrt_gradient(GradContext& c) { c.set_grad(0, c.grad() * (pow(c.output(0), 3.0) * -0.5)); }
void reciprocal_gradient(GradContext& c) {
  c.set_grad(0, negative(c.grad() * square(c.output(0))));
}
void exp_gradient(GradContext& c) { c.set_grad(0, c.grad() * c.output(0)); }
void expm1_gradient(GradContext& c) { c.set_grad(0, c.grad() * (c.output(0) + 1.0)); }
void log_gradient(GradContext& c) { c.set_grad(0, c.grad() / c.input(0)); }
void log1p_gradient(GradContext& c) { c.set_grad(0, c.grad() / (c.input(0) + 1.0)); }
void sin_gradient(GradContext& c) { c.set_grad(0, c.grad() * cos(c.input(0))); }
void cos_gradient(GradContext& c) { c.set_grad(0, negative(c.grad() * sin(c.input(0)))); }
void erf_gradient(GradContext& c) {
  const double scale = 2.0 * std::numbers::inv_sqrtpi;
  c.set_grad(0, c.grad() * (exp(negative(square(c.input(0)))) * scale));
}

Tensor tanh_grad(const Tensor& y, const Tensor& g) { return run(kTanhGrad, {&y, &g}); }
Tensor sigmoid_grad(const Tensor& y, const Tensor& g) { return run(kSigmoidGrad, {&y, &g}); }

void tanh_gradient(GradContext& c) { c.set_grad(0, tanh_grad(c.output(0), c.grad())); }
void tanh_grad_gradient(GradContext& c) {
  const Tensor &y = c.input(0), &g = c.input(1);
  if (c.needs_grad(0)) c.set_grad(0, c.grad() * g * (y * -2.0));
  if (c.needs_grad(1)) c.set_grad(1, tanh_grad(y, c.grad()));
}
void sigmoid_gradient(GradContext& c) { c.set_grad(0, sigmoid_grad(c.output(0), c.grad())); }
void sigmoid_grad_gradient(GradContext& c) {
  const Tensor &y = c.input(0), &g = c.input(1);
  if (c.needs_grad(0)) c.set_grad(0, c.grad() * g * (1.0 - y * 2.0));
  if (c.needs_grad(1)) c.set_grad(1, sigmoid_grad(y, c.grad()));
}

enum Saves : std::uint8_t { kNothing, kInput, kOutput };

template <class Op, DTypeSet kDTypes>
constexpr OpDef unary_op(std::string_view name, GradFn gradient = nullptr, Saves saves = kNothing) {
  return {.name = name,
          .infer = infer_unary<kDTypes>,
          .gradient = gradient,
          .cpu_kernel = unary_kernel<Op, kDTypes>,
          .traits = kElementwise | kInPlace,
          .saved_inputs = saves == kInput ? 0b1u : 0u,
          .saved_outputs = saves == kOutput ? 0b1u : 0u};
}

const OpDef kNeg = unary_op<Neg, kSigned>("Neg", neg_gradient);
const OpDef kAbs = unary_op<Abs, kNumeric>("Abs", abs_gradient, kInput);
const OpDef kSign = unary_op<Sign, kNumeric>("Sign", sign_gradient);
const OpDef kSquare = unary_op<Square, kNumeric>("Square", square_gradient, kInput);
const OpDef kSqrt = unary_op<Sqrt, kFloating>("Sqrt", sqrt_gradient, kOutput);
const OpDef kRsqrt = unary_op<Rsqrt, kFloating>("Rsqrt", rsqrt_gradient, kOutput);
const OpDef kReciprocal =
    unary_op<Reciprocal, kFloating>("Reciprocal", reciprocal_gradient, kOutput);
const OpDef kExp = unary_op<Exp, kFloating>("Exp", exp_gradient, kOutput);
const OpDef kExpm1 = unary_op<Expm1, kFloating>("Expm1", expm1_gradient, kOutput);
const OpDef kLog = unary_op<Log, kFloating>("Log", log_gradient, kInput);
const OpDef kLog1p = unary_op<Log1p, kFloating>("Log1p", log1p_gradient, kInput);
const OpDef kSin = unary_op<Sin, kFloating>("Sin", sin_gradient, kInput);
const OpDef kCos = unary_op<Cos, kFloating>("Cos", cos_gradient, kInput);
const OpDef kTanh = unary_op<Tanh, kFloating>("Tanh", tanh_gradient, kOutput);
const OpDef kSigmoid = unary_op<Sigmoid, kFloating>("Sigmoid", sigmoid_gradient, kOutput);
const OpDef kErf = unary_op<Erf, kFloating>("Erf", erf_gradient, kInput);
const OpDef kFloor = unary_op<Floor, kFloating>("Floor");
const OpDef kCeil = unary_op<Ceil, kFloating>("Ceil");
const OpDef kRound = unary_op<Round, kFloating>("Round");
const OpDef kIsNan = {.name = "IsNan",
                      .infer = infer_unary<kFloating, bool_>,
                      .cpu_kernel = unary_kernel<IsNan, kFloating, bool>,
                      .traits = kElementwise};
const OpDef kIsFinite = {.name = "IsFinite",
                         .infer = infer_unary<kFloating, bool_>,
                         .cpu_kernel = unary_kernel<IsFinite, kFloating, bool>,
                         .traits = kElementwise};

}  // namespace

const OpDef kTanhGrad = {.name = "TanhGrad",
                         .infer = infer_binary<kFloating>,
                         .gradient = tanh_grad_gradient,
                         .cpu_kernel = binary_kernel<TanhGrad, void, kFloating>,
                         .traits = kElementwise | kInPlace,
                         .saved_inputs = 0b11};
const OpDef kSigmoidGrad = {.name = "SigmoidGrad",
                            .infer = infer_binary<kFloating>,
                            .gradient = sigmoid_grad_gradient,
                            .cpu_kernel = binary_kernel<SigmoidGrad, void, kFloating>,
                            .traits = kElementwise | kInPlace,
                            .saved_inputs = 0b11};

Tensor negative(const Tensor& x) { return run(kNeg, {&x}); }
Tensor abs(const Tensor& x) { return run(kAbs, {&x}); }
Tensor sign(const Tensor& x) { return run(kSign, {&x}); }
Tensor square(const Tensor& x) { return run(kSquare, {&x}); }
Tensor sqrt(const Tensor& x) { return run(kSqrt, {&x}); }
Tensor rsqrt(const Tensor& x) { return run(kRsqrt, {&x}); }
Tensor reciprocal(const Tensor& x) { return run(kReciprocal, {&x}); }
Tensor exp(const Tensor& x) { return run(kExp, {&x}); }
Tensor expm1(const Tensor& x) { return run(kExpm1, {&x}); }
Tensor log(const Tensor& x) { return run(kLog, {&x}); }
Tensor log1p(const Tensor& x) { return run(kLog1p, {&x}); }
Tensor sin(const Tensor& x) { return run(kSin, {&x}); }
Tensor cos(const Tensor& x) { return run(kCos, {&x}); }
Tensor tanh(const Tensor& x) { return run(kTanh, {&x}); }
Tensor sigmoid(const Tensor& x) { return run(kSigmoid, {&x}); }
Tensor erf(const Tensor& x) { return run(kErf, {&x}); }
Tensor floor(const Tensor& x) { return run(kFloor, {&x}); }
Tensor ceil(const Tensor& x) { return run(kCeil, {&x}); }
Tensor round(const Tensor& x) { return run(kRound, {&x}); }
Tensor is_nan(const Tensor& x) { return run(kIsNan, {&x}); }
Tensor is_finite(const Tensor& x) { return run(kIsFinite, {&x}); }

OpList unary_ops() {
  return list_of<kNeg, kAbs, kSign, kSquare, kSqrt, kRsqrt, kReciprocal, kExp, kExpm1, kLog, kLog1p,
                 kSin, kCos, kTanh, kSigmoid, kErf, kFloor, kCeil, kRound, kIsNan, kIsFinite>();
}

}  // namespace tandem
