// Addition, subtraction, multiplication, division, maximum, minimum and squared difference, of two
// tensors that broadcast and of a tensor and a number. The forms with a number are separate
// operations: they need no tensor for the number, and their gradients keep less.
#include "op/record.h"
#include "ops/formula/functions.h"
#include "ops/math/binary.h"
#include "ops/math/binary_kernel.h"
#include "ops/op_list.h"
#include "runtime/dispatch.h"
#include "tandem/creation.h"
#include "tandem/math.h"

namespace tandem {
namespace {

const Shape& shape_of_input(const GradContext& c, int i) { return c.input_spec(i).shape; }

void add_gradient(GradContext& c) {
  for (int i = 0; i < c.num_inputs(); ++i)
    if (c.needs_grad(i)) c.set_grad(i, sum_to_shape(c.grad(), shape_of_input(c, i)));
}

void sub_gradient(GradContext& c) {
  if (c.needs_grad(0)) c.set_grad(0, sum_to_shape(c.grad(), shape_of_input(c, 0)));
  if (c.needs_grad(1)) c.set_grad(1, negative(sum_to_shape(c.grad(), shape_of_input(c, 1))));
}

void mul_gradient(GradContext& c) {
  for (int i = 0; i < 2; ++i)
    if (c.needs_grad(i))
      c.set_grad(i, sum_to_shape(c.grad() * c.input(1 - i), shape_of_input(c, i)));
}

void div_gradient(GradContext& c) {
  const Tensor quotient = c.grad() / c.input(1);
  if (c.needs_grad(0)) c.set_grad(0, sum_to_shape(quotient, shape_of_input(c, 0)));
  if (c.needs_grad(1))
    c.set_grad(1, negative(sum_to_shape(quotient * c.output(0), shape_of_input(c, 1))));
}

Tensor zero(DType dtype) { return full(Shape::scalar(), 0.0, {.dtype = dtype}); }

// The gradient goes to the selected operand; to the left one if both are equal.
void extremum_gradient(GradContext& c, const Tensor& left_wins) {
  const Tensor none = zero(c.grad().dtype());
  if (c.needs_grad(0))
    c.set_grad(0, sum_to_shape(where(left_wins, c.grad(), none), shape_of_input(c, 0)));
  if (c.num_inputs() > 1 && c.needs_grad(1))
    c.set_grad(1, sum_to_shape(where(left_wins, none, c.grad()), shape_of_input(c, 1)));
}
void maximum_gradient(GradContext& c) {
  extremum_gradient(c, greater_equal(c.input(0), c.input(1)));
}
void minimum_gradient(GradContext& c) { extremum_gradient(c, less_equal(c.input(0), c.input(1))); }

void squared_difference_gradient(GradContext& c) {
  const Tensor slope = c.grad() * ((c.input(0) - c.input(1)) * 2.0);
  if (c.needs_grad(0)) c.set_grad(0, sum_to_shape(slope, shape_of_input(c, 0)));
  if (c.needs_grad(1)) c.set_grad(1, negative(sum_to_shape(slope, shape_of_input(c, 1))));
}

double scalar_of(const GradContext& c) { return c.attrs<ScalarAttrs>().scalar; }

void pass_gradient(GradContext& c) { c.set_grad(0, c.grad()); }
void scalar_sub_gradient(GradContext& c) { c.set_grad(0, negative(c.grad())); }
void mul_scalar_gradient(GradContext& c) { c.set_grad(0, c.grad() * scalar_of(c)); }
void div_scalar_gradient(GradContext& c) { c.set_grad(0, c.grad() / scalar_of(c)); }
void scalar_div_gradient(GradContext& c) {
  c.set_grad(0, negative(c.grad() / c.input(0) * c.output(0)));
}
void maximum_scalar_gradient(GradContext& c) {
  extremum_gradient(c, greater_equal(c.input(0), scalar_of(c)));
}
void minimum_scalar_gradient(GradContext& c) {
  extremum_gradient(c, less_equal(c.input(0), scalar_of(c)));
}

const OpDef kAdd = binary_op<cpu::Add>("AddV2", add_gradient, {}, kCommutative);
const OpDef kSub = binary_op<cpu::Sub>("Sub", sub_gradient);
const OpDef kMul = binary_op<cpu::Mul>("Mul", mul_gradient, {.inputs = 0b11}, kCommutative);
const OpDef kDiv = binary_op<cpu::Div>("RealDiv", div_gradient, {.inputs = 0b10, .outputs = 0b1});
const OpDef kMaximum = binary_op<cpu::Maximum>("Maximum", maximum_gradient, {.inputs = 0b11});
const OpDef kMinimum = binary_op<cpu::Minimum>("Minimum", minimum_gradient, {.inputs = 0b11});
const OpDef kSquaredDifference = binary_op<cpu::SquaredDifference>(
    "SquaredDifference", squared_difference_gradient, {.inputs = 0b11}, kCommutative);

using enum ScalarSide;
const OpDef kAddScalar = scalar_op<cpu::Add>("AddScalar", pass_gradient);
const OpDef kSubScalar = scalar_op<cpu::Sub>("SubScalar", pass_gradient);
const OpDef kScalarSub = scalar_op<cpu::Sub, kLeft>("ScalarSub", scalar_sub_gradient);
const OpDef kMulScalar = scalar_op<cpu::Mul>("MulScalar", mul_scalar_gradient);
const OpDef kDivScalar = scalar_op<cpu::Div>("DivScalar", div_scalar_gradient);
const OpDef kScalarDiv =
    scalar_op<cpu::Div, kLeft>("ScalarDiv", scalar_div_gradient, {.inputs = 0b1, .outputs = 0b1});
const OpDef kMaximumScalar =
    scalar_op<cpu::Maximum>("MaximumScalar", maximum_scalar_gradient, {.inputs = 0b1});
const OpDef kMinimumScalar =
    scalar_op<cpu::Minimum>("MinimumScalar", minimum_scalar_gradient, {.inputs = 0b1});

}  // namespace

Tensor add(const Tensor& a, const Tensor& b) { return run(kAdd, {&a, &b}); }
Tensor subtract(const Tensor& a, const Tensor& b) { return run(kSub, {&a, &b}); }
Tensor multiply(const Tensor& a, const Tensor& b) { return run(kMul, {&a, &b}); }
Tensor divide(const Tensor& a, const Tensor& b) { return run(kDiv, {&a, &b}); }
Tensor maximum(const Tensor& a, const Tensor& b) { return run(kMaximum, {&a, &b}); }
Tensor minimum(const Tensor& a, const Tensor& b) { return run(kMinimum, {&a, &b}); }
Tensor squared_difference(const Tensor& a, const Tensor& b) {
  return run(kSquaredDifference, {&a, &b});
}

Tensor add(const Tensor& a, double b) { return run(kAddScalar, {&a}, ScalarAttrs{b}); }
Tensor subtract(const Tensor& a, double b) { return run(kSubScalar, {&a}, ScalarAttrs{b}); }
Tensor subtract(double a, const Tensor& b) { return run(kScalarSub, {&b}, ScalarAttrs{a}); }
Tensor multiply(const Tensor& a, double b) { return run(kMulScalar, {&a}, ScalarAttrs{b}); }
Tensor divide(const Tensor& a, double b) { return run(kDivScalar, {&a}, ScalarAttrs{b}); }
Tensor divide(double a, const Tensor& b) { return run(kScalarDiv, {&b}, ScalarAttrs{a}); }
Tensor maximum(const Tensor& a, double b) { return run(kMaximumScalar, {&a}, ScalarAttrs{b}); }
Tensor minimum(const Tensor& a, double b) { return run(kMinimumScalar, {&a}, ScalarAttrs{b}); }

OpList binary_ops() {
  return list_of<kAdd, kSub, kMul, kDiv, kMaximum, kMinimum, kSquaredDifference, kAddScalar,
                 kSubScalar, kScalarSub, kMulScalar, kDivScalar, kScalarDiv, kMaximumScalar,
                 kMinimumScalar, kAddN, kPow, kPowScalar, kFloorDiv, kFloorMod, kTanhGrad,
                 kSigmoidGrad, kClipByValue>();
}

}  // namespace tandem
