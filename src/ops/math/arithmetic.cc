// The four operations, maximum, minimum and the squared difference, between tensors that broadcast
// and between a tensor and a number. The forms with a number are operations of their own: one
// kernel, no tensor made for the number, and less to keep for the gradient.
#include <limits>

#include "op/record.h"
#include "ops/math/binary.h"
#include "ops/math/binary_kernel.h"
#include "ops/op_list.h"
#include "runtime/dispatch.h"
#include "tandem/creation.h"
#include "tandem/math.h"

namespace tandem {
namespace {

struct Add {
  template <class C>
  static C apply(C a, C b) {
    return wrapping(a, b, [](auto x, auto y) { return x + y; });
  }
};
struct Sub {
  template <class C>
  static C apply(C a, C b) {
    return wrapping(a, b, [](auto x, auto y) { return x - y; });
  }
};
struct Mul {
  template <class C>
  static C apply(C a, C b) {
    return wrapping(a, b, [](auto x, auto y) { return x * y; });
  }
};
struct Div {
  template <class C>
  static C apply(C a, C b) {
    if constexpr (std::signed_integral<C>) {
      // The quotient that overflows wraps, where the processor would trap.
      if (b == -1) return Sub::apply(C{0}, a);
    }
    return static_cast<C>(a / b);
  }
  template <class T>
  static const char* refuses(T b) {
    return b == 0 ? "a non-zero divisor" : nullptr;
  }
};
// NaN wins on either side, as in NumPy.
struct Maximum {
  template <class C>
  static C apply(C a, C b) {
    return a > b || a != a ? a : b;
  }
};
struct Minimum {
  template <class C>
  static C apply(C a, C b) {
    return a < b || a != a ? a : b;
  }
};
struct SquaredDifference {
  template <class C>
  static C apply(C a, C b) {
    const C d = Sub::apply(a, b);
    return Mul::apply(d, d);
  }
};

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

// The whole gradient goes to the winner; to the left operand where both are equal.
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

constexpr std::uint32_t kInPlaceElementwise = kElementwise | kInPlace;

const OpDef kAdd = {.name = "AddV2",
                    .infer = infer_binary<kNumeric>,
                    .gradient = add_gradient,
                    .cpu_kernel = binary_kernel<Add>,
                    .traits = kInPlaceElementwise | kCommutative};
const OpDef kSub = {.name = "Sub",
                    .infer = infer_binary<kNumeric>,
                    .gradient = sub_gradient,
                    .cpu_kernel = binary_kernel<Sub>,
                    .traits = kInPlaceElementwise};
const OpDef kMul = {.name = "Mul",
                    .infer = infer_binary<kNumeric>,
                    .gradient = mul_gradient,
                    .cpu_kernel = binary_kernel<Mul>,
                    .traits = kInPlaceElementwise | kCommutative,
                    .saved_inputs = 0b11};
const OpDef kDiv = {.name = "RealDiv",
                    .infer = infer_binary<kNumeric>,
                    .gradient = div_gradient,
                    .cpu_kernel = binary_kernel<Div>,
                    .traits = kInPlaceElementwise,
                    .saved_inputs = 0b10,
                    .saved_outputs = 0b1};
const OpDef kMaximum = {.name = "Maximum",
                        .infer = infer_binary<kNumeric>,
                        .gradient = maximum_gradient,
                        .cpu_kernel = binary_kernel<Maximum>,
                        .traits = kInPlaceElementwise,
                        .saved_inputs = 0b11};
const OpDef kMinimum = {.name = "Minimum",
                        .infer = infer_binary<kNumeric>,
                        .gradient = minimum_gradient,
                        .cpu_kernel = binary_kernel<Minimum>,
                        .traits = kInPlaceElementwise,
                        .saved_inputs = 0b11};
const OpDef kSquaredDifference = {.name = "SquaredDifference",
                                  .infer = infer_binary<kNumeric>,
                                  .gradient = squared_difference_gradient,
                                  .cpu_kernel = binary_kernel<SquaredDifference>,
                                  .traits = kInPlaceElementwise | kCommutative,
                                  .saved_inputs = 0b11};

const OpDef kAddScalar = {.name = "AddScalar",
                          .attrs = attrs_type<ScalarAttrs>,
                          .infer = infer_scalar<kNumeric>,
                          .gradient = pass_gradient,
                          .cpu_kernel = scalar_kernel<Add>,
                          .traits = kInPlaceElementwise};
const OpDef kSubScalar = {.name = "SubScalar",
                          .attrs = attrs_type<ScalarAttrs>,
                          .infer = infer_scalar<kNumeric>,
                          .gradient = pass_gradient,
                          .cpu_kernel = scalar_kernel<Sub>,
                          .traits = kInPlaceElementwise};
const OpDef kScalarSub = {.name = "ScalarSub",
                          .attrs = attrs_type<ScalarAttrs>,
                          .infer = infer_scalar<kNumeric>,
                          .gradient = scalar_sub_gradient,
                          .cpu_kernel = scalar_kernel<Sub, ScalarSide::kLeft>,
                          .traits = kInPlaceElementwise};
const OpDef kMulScalar = {.name = "MulScalar",
                          .attrs = attrs_type<ScalarAttrs>,
                          .infer = infer_scalar<kNumeric>,
                          .gradient = mul_scalar_gradient,
                          .cpu_kernel = scalar_kernel<Mul>,
                          .traits = kInPlaceElementwise};
const OpDef kDivScalar = {.name = "DivScalar",
                          .attrs = attrs_type<ScalarAttrs>,
                          .infer = infer_right_scalar<Div, kNumeric>,
                          .gradient = div_scalar_gradient,
                          .cpu_kernel = scalar_kernel<Div>,
                          .traits = kInPlaceElementwise};
const OpDef kScalarDiv = {.name = "ScalarDiv",
                          .attrs = attrs_type<ScalarAttrs>,
                          .infer = infer_scalar<kNumeric>,
                          .gradient = scalar_div_gradient,
                          .cpu_kernel = scalar_kernel<Div, ScalarSide::kLeft>,
                          .traits = kInPlaceElementwise,
                          .saved_inputs = 0b1,
                          .saved_outputs = 0b1};
const OpDef kMaximumScalar = {.name = "MaximumScalar",
                              .attrs = attrs_type<ScalarAttrs>,
                              .infer = infer_scalar<kNumeric>,
                              .gradient = maximum_scalar_gradient,
                              .cpu_kernel = scalar_kernel<Maximum>,
                              .traits = kInPlaceElementwise,
                              .saved_inputs = 0b1};
const OpDef kMinimumScalar = {.name = "MinimumScalar",
                              .attrs = attrs_type<ScalarAttrs>,
                              .infer = infer_scalar<kNumeric>,
                              .gradient = minimum_scalar_gradient,
                              .cpu_kernel = scalar_kernel<Minimum>,
                              .traits = kInPlaceElementwise,
                              .saved_inputs = 0b1};

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
