// Activations and their gradients in StableHLO. Inputs of gradients: the gradient of the result,
// and what the forward operation saved.
#include <numbers>

#include "ops/lowering_support.h"
#include "ops/nn/activation.h"
#include "ops/nn/activation_formulas.h"

namespace tandem::stablehlo {
namespace {

using Value1 = Expression (*)(const Expression& x, double alpha);
using Gradient = Expression (*)(const Expression& dy, const Expression& saved, double alpha);

template <Value1 kFormula>
void lower_value(Context& c) {
  finish(c, kFormula(widened(c, 0), c.attrs<ActivationAttrs>().alpha));
}
template <Gradient kFormula>
void lower_gradient(Context& c) {
  finish(c, kFormula(widened(c, 0), widened(c, 1), c.attrs<ActivationAttrs>().alpha));
}

Expression zero_like(const Expression& x) { return x.like(0.0); }

Expression relu_value(const Expression& x, double) { return relu(x); }
Expression relu_grad(const Expression& dy, const Expression& y, double) {
  return dy.where(y > 0.0, zero_like(dy));
}

Expression relu6_value(const Expression& x, double) { return relu6(x); }
Expression relu6_grad(const Expression& dy, const Expression& y, double) {
  return dy.where((y > 0.0).binary("and", y < 6.0), zero_like(dy));
}

Expression leaky_relu(const Expression& x, double alpha) { return x.where(x > 0.0, alpha * x); }
Expression leaky_relu_grad(const Expression& dy, const Expression& x, double alpha) {
  return dy.where(x > 0.0, alpha * dy);
}

Expression elu_grad(const Expression& dy, const Expression& y, double alpha) {
  return (dy * (y + alpha)).where(y.compare("LE", zero_like(y)), dy);
}

constexpr double kSeluScale = 1.0507009873554804934193349852946;
constexpr double kSeluAlpha = 1.6732632423543772848170429916717;
Expression selu(const Expression& x, double) { return kSeluScale * elu(x, kSeluAlpha); }
Expression selu_grad(const Expression& dy, const Expression& y, double) {
  return (dy * (y + kSeluScale * kSeluAlpha)).where(y < 0.0, dy * kSeluScale);
}

Expression softplus_value(const Expression& x, double) { return softplus(x); }
Expression softplus_grad(const Expression& dy, const Expression& y, double) {
  return dy * -expm1(-y);
}

Expression swish(const Expression& x, double) { return x * sigmoid(x); }
Expression swish_grad(const Expression& dy, const Expression& x, double) {
  const Expression s = sigmoid(x);
  return dy * (s + x * s * (1.0 - s));
}

// 1 - Phi(u), without cancellation for large u.
Expression normal_tail(const Expression& u) {
  return 0.5 * (u * (1.0 / std::numbers::sqrt2)).unary("chlo.erfc");
}
Expression gelu(const Expression& x, double) {
  const Expression a = abs(x);
  return relu(x) - a * normal_tail(a);
}
Expression gelu_grad(const Expression& dy, const Expression& x, double) {
  constexpr double kDensity = std::numbers::inv_sqrtpi / std::numbers::sqrt2;
  const Expression tail = normal_tail(abs(x));
  const Expression phi = tail.where(x < 0.0, 1.0 - tail);
  return dy * (phi + x * kDensity * exp(-0.5 * x * x));
}

constexpr double kTanhScale = 2.0 * std::numbers::inv_sqrtpi / std::numbers::sqrt2;
constexpr double kTanhCubic = 0.044715;
Expression gelu_tanh_inner(const Expression& x) {
  return tanh(kTanhScale * x * (1.0 + kTanhCubic * x * x));
}
Expression gelu_tanh(const Expression& x, double) { return 0.5 * x * (1.0 + gelu_tanh_inner(x)); }
Expression gelu_tanh_grad(const Expression& dy, const Expression& x, double) {
  const Expression t = gelu_tanh_inner(x);
  const Expression inner = kTanhScale * (1.0 + 3.0 * kTanhCubic * x * x);
  return dy * 0.5 * (1.0 + t + x * (1.0 - t * t) * inner);
}

Expression elu_value(const Expression& x, double alpha) { return elu(x, alpha); }

constexpr Lowering kActivationLowerings[] = {
    {"Elu", lower_value<elu_value>},
    {"EluGrad", lower_gradient<elu_grad>},
    {"Gelu", lower_value<gelu>},
    {"GeluGrad", lower_gradient<gelu_grad>},
    {"GeluTanh", lower_value<gelu_tanh>},
    {"GeluTanhGrad", lower_gradient<gelu_tanh_grad>},
    {"LeakyRelu", lower_value<leaky_relu>},
    {"LeakyReluGrad", lower_gradient<leaky_relu_grad>},
    {"Relu", lower_value<relu_value>},
    {"Relu6", lower_value<relu6_value>},
    {"Relu6Grad", lower_gradient<relu6_grad>},
    {"ReluGrad", lower_gradient<relu_grad>},
    {"Selu", lower_value<selu>},
    {"SeluGrad", lower_gradient<selu_grad>},
    {"Softplus", lower_value<softplus_value>},
    {"SoftplusGrad", lower_gradient<softplus_grad>},
    {"Swish", lower_value<swish>},
    {"SwishGrad", lower_gradient<swish_grad>},
};

}  // namespace

LoweringList activation_lowerings() { return kActivationLowerings; }

}  // namespace tandem::stablehlo
