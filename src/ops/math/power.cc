// Powers, floor division and floor modulo.
#include "op/record.h"
#include "ops/formula/functions.h"
#include "ops/math/binary.h"
#include "ops/math/binary_kernel.h"
#include "runtime/dispatch.h"
#include "tandem/creation.h"
#include "tandem/math.h"

namespace tandem {
namespace {

// Common powers, as multiplications.
struct SquarePower {
  template <class C>
  C operator()(C base, C) const {
    return cpu::Square()(base);
  }
};
struct CubePower {
  template <class C>
  C operator()(C base, C) const {
    return cpu::Cube()(base);
  }
};

template <class Op>
void power_kernel(KernelContext& c) {
  scalar_kernel<Op, ScalarSide::kRight, void, kNumeric>(c);
}
void pow_kernel(KernelContext& c) {
  const double exponent = c.attrs<ScalarAttrs>().scalar;
  if (exponent == 2.0)
    power_kernel<SquarePower>(c);
  else if (exponent == 3.0)
    power_kernel<CubePower>(c);
  else
    power_kernel<cpu::Pow>(c);
}

void pow_gradient(GradContext& c) {
  const Tensor &x = c.input(0), &y = c.input(1);
  if (c.needs_grad(0)) {
    // The derivative of 0^0 is 0; computing 0 * 0^-1 would give NaN.
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

const OpDef kPow =
    with_autocast(kAutocastFloat32OnGpus,
                  binary_op<cpu::Pow>("Pow", pow_gradient, {.inputs = 0b11, .outputs = 0b1}));
const OpDef kPowScalar = {.name = "PowScalar",
                          .attrs = attrs_type<ScalarAttrs>,
                          .infer = infer_scalar<cpu::Pow, ScalarSide::kRight, kNumeric>,
                          .gradient = pow_scalar_gradient,
                          .cpu_kernel = pow_kernel,
                          .traits = kElementwise | kInPlace,
                          .autocast = kAutocastFloat32OnGpus,
                          .chain = {ChainOp::kPow, ChainForm::kPower},
                          .saved_inputs = 0b1};
const OpDef kFloorDiv = binary_op<cpu::FloorDiv>("FloorDiv");
const OpDef kFloorMod = binary_op<cpu::FloorMod>("FloorMod", floor_mod_gradient, {.inputs = 0b11});

Tensor pow(const Tensor& a, const Tensor& b) { return run(kPow, {&a, &b}); }
Tensor pow(const Tensor& a, double b) { return run(kPowScalar, {&a}, ScalarAttrs{b}); }
Tensor floor_divide(const Tensor& a, const Tensor& b) { return run(kFloorDiv, {&a, &b}); }
Tensor floor_mod(const Tensor& a, const Tensor& b) { return run(kFloorMod, {&a, &b}); }
Tensor floor_divide(const Tensor& a, double b) {
  return floor_divide(a, full(Shape::scalar(), b, {.dtype = a.dtype()}));
}
Tensor pow(double a, const Tensor& b) { return pow(full(Shape::scalar(), a, b.dtype()), b); }
Tensor floor_mod(const Tensor& a, double b) {
  return floor_mod(a, full(Shape::scalar(), b, {.dtype = a.dtype()}));
}

}  // namespace tandem
