// Element-wise operations on one tensor.
#include <limits>
#include <numbers>

#include "op/record.h"
#include "ops/formula/functions.h"
#include "ops/math/binary.h"
#include "ops/math/binary_kernel.h"
#include "ops/math/unary_kernel.h"
#include "ops/op_list.h"
#include "runtime/dispatch.h"
#include "tandem/creation.h"
#include "tandem/math.h"

namespace tandem {
namespace {

void neg_gradient(GradContext& c) { c.set_grad(0, negative(c.grad())); }
void abs_gradient(GradContext& c) { c.set_grad(0, c.grad() * sign(c.input(0))); }
// As in TensorFlow: rounding has no gradient, and the gradient of sign is zeros.
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

constexpr SavedTensors kInput = {.inputs = 0b1}, kOutput = {.outputs = 0b1};

const OpDef kNeg = unary_op<cpu::Neg, kSigned>("Neg", neg_gradient);
const OpDef kAbs = unary_op<cpu::Abs, kNumeric>("Abs", abs_gradient, kInput);
const OpDef kSign = unary_op<cpu::Sign, kNumeric>("Sign", sign_gradient);
const OpDef kSquare = unary_op<cpu::Square, kNumeric>("Square", square_gradient, kInput);
const OpDef kSqrt = unary_op<cpu::Sqrt, kFloating>("Sqrt", sqrt_gradient, kOutput);
const OpDef kRsqrt = with_autocast(
    kAutocastFloat32OnGpus, unary_op<cpu::Rsqrt, kFloating>("Rsqrt", rsqrt_gradient, kOutput));
const OpDef kReciprocal =
    with_autocast(kAutocastFloat32OnGpus,
                  unary_op<cpu::Reciprocal, kFloating>("Reciprocal", reciprocal_gradient, kOutput));
const OpDef kExp = with_autocast(kAutocastFloat32OnGpus,
                                 unary_op<cpu::Exp, kFloating>("Exp", exp_gradient, kOutput));
const OpDef kExpm1 = with_autocast(
    kAutocastFloat32OnGpus, unary_op<cpu::Expm1, kFloating>("Expm1", expm1_gradient, kOutput));
const OpDef kLog = with_autocast(kAutocastFloat32OnGpus,
                                 unary_op<cpu::Log, kFloating>("Log", log_gradient, kInput));
const OpDef kLog1p = with_autocast(
    kAutocastFloat32OnGpus, unary_op<cpu::Log1p, kFloating>("Log1p", log1p_gradient, kInput));
const OpDef kSin = unary_op<cpu::Sin, kFloating>("Sin", sin_gradient, kInput);
const OpDef kCos = unary_op<cpu::Cos, kFloating>("Cos", cos_gradient, kInput);
const OpDef kTanh = unary_op<cpu::Tanh, kFloating>("Tanh", tanh_gradient, kOutput);
const OpDef kSigmoid = unary_op<cpu::Sigmoid, kFloating>("Sigmoid", sigmoid_gradient, kOutput);
const OpDef kErf = unary_op<cpu::Erf, kFloating>("Erf", erf_gradient, kInput);
const OpDef kFloor = unary_op<cpu::Floor, kFloating>("Floor");
const OpDef kCeil = unary_op<cpu::Ceil, kFloating>("Ceil");
const OpDef kRound = unary_op<cpu::Round, kFloating>("Round");
const OpDef kIsNan = unary_op<cpu::IsNan, kFloating, bool_>("IsNan");
const OpDef kIsFinite = unary_op<cpu::IsFinite, kFloating, bool_>("IsFinite");

}  // namespace

const OpDef kTanhGrad =
    binary_op<cpu::TanhGrad, kFloating>("TanhGrad", tanh_grad_gradient, {.inputs = 0b11});
const OpDef kSigmoidGrad =
    binary_op<cpu::SigmoidGrad, kFloating>("SigmoidGrad", sigmoid_grad_gradient, {.inputs = 0b11});

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

Tensor log2(const Tensor& x) { return divide(log(x), std::numbers::ln2); }
Tensor log10(const Tensor& x) { return divide(log(x), std::numbers::ln10); }
Tensor tan(const Tensor& x) { return divide(sin(x), cos(x)); }
Tensor is_inf(const Tensor& x) { return equal(abs(x), std::numeric_limits<double>::infinity()); }

}  // namespace tandem
