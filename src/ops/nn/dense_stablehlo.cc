// Dense layers in StableHLO.
#include "ops/lowering_support.h"
#include "ops/nn/activation_formulas.h"
#include "ops/nn/dense.h"

namespace tandem::stablehlo {
namespace {

// `bias`, one number per element of the last axis, added to `x`.
Expression with_bias(Context& c, const Expression& x, std::size_t bias) {
  return x + x.repeat(widened(c, bias).value());
}

void lower_product(Context& c, nn::Activation activation) {
  const Value& x = c.input(0);
  const DotAxes axes{.contracted_a = {x.rank() - 1}, .contracted_b = {0}};
  Expression product(c.build, c.build.dot(x, c.input(1), axes, compute_element(x.element())));
  if (c.num_inputs() == 3) product = with_bias(c, product, 2);
  finish(c, activated(product, activation));
}

void lower_fused_matmul(Context& c) { lower_product(c, c.attrs<FusedMatMulAttrs>().activation); }
void lower_matmul_bias_add(Context& c) { lower_product(c, nn::Activation::kLinear); }
void lower_bias_add(Context& c) { finish(c, with_bias(c, widened(c, 0), 1)); }
void lower_bias_add_grad(Context& c) {
  finish(c, c.build.sum(c.input(0), leading_axes(c.input(0).shape())));
}

constexpr Lowering kDenseLowerings[] = {
    {"BiasAdd", lower_bias_add},
    {"BiasAddGrad", lower_bias_add_grad},
    {"FusedMatMul", lower_fused_matmul},
    {"MatMulBiasAdd", lower_matmul_bias_add},
};

}  // namespace

LoweringList dense_lowerings() { return kDenseLowerings; }

}  // namespace tandem::stablehlo
