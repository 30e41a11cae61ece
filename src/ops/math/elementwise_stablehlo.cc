// Element-wise operations in StableHLO.
#include "ops/lowering_support.h"

namespace tandem::stablehlo {
namespace {

using Unary = Expression (*)(const Expression&);
using Binary = Expression (*)(const Expression&, const Expression&);

bool is_integer(const Expression& x) { return !is_floating(x.element()); }

// Input `index`, widened and repeated to the shape of the output.
Expression operand(Context& c, std::size_t index) {
  return {c.build, c.build.broadcast_to(widened(c, index).value(), c.output().shape)};
}

template <Unary kFormula>
void lower_unary(Context& c) {
  finish(c, kFormula(operand(c, 0)));
}
template <Binary kFormula>
void lower_binary(Context& c) {
  finish(c, kFormula(operand(c, 0), operand(c, 1)));
}
// The number is the right operand, or the left one.
template <Binary kFormula, bool kLeft = false>
void lower_scalar(Context& c) {
  const Expression x = operand(c, 0), number = x.like(c.real("scalar"));
  finish(c, kLeft ? kFormula(number, x) : kFormula(x, number));
}

// --- one operand ---

#define TANDEM_NAMED_UNARY(Function, operation) \
  Expression Function(const Expression& x) { return x.unary(operation); }
TANDEM_NAMED_UNARY(negative, "negate")
TANDEM_NAMED_UNARY(cosine, "cosine")
TANDEM_NAMED_UNARY(sine, "sine")
TANDEM_NAMED_UNARY(floor, "floor")
TANDEM_NAMED_UNARY(ceil, "ceil")
TANDEM_NAMED_UNARY(round, "round_nearest_even")
TANDEM_NAMED_UNARY(logical_not, "not")
#undef TANDEM_NAMED_UNARY

Expression rsqrt(const Expression& x) { return 1.0 / sqrt(x); }
Expression reciprocal(const Expression& x) { return 1.0 / x; }
Expression erf(const Expression& x) { return x.unary("chlo.erf"); }
Expression absolute(const Expression& x) { return x.element() == Element::kU8 ? x : abs(x); }
Expression sign(const Expression& x) {
  return x.element() == Element::kU8 ? (x > 0.0).as(Element::kU8) : x.unary("sign");
}
Expression is_nan(const Expression& x) { return x.compare("NE", x); }
void lower_is_finite(Context& c) {
  const Value& x = c.input(0);
  c.result(c.build.add("is_finite", {&x, 1}, "", {Element::kBool, x.shape()}));
}

// --- two operands ---

Expression add(const Expression& a, const Expression& b) { return a + b; }
Expression subtract(const Expression& a, const Expression& b) { return a - b; }
Expression multiply(const Expression& a, const Expression& b) { return a * b; }
Expression divide(const Expression& a, const Expression& b) { return a / b; }
Expression maximum(const Expression& a, const Expression& b) { return a.binary("maximum", b); }
Expression minimum(const Expression& a, const Expression& b) { return a.binary("minimum", b); }
Expression power(const Expression& a, const Expression& b) { return a.binary("power", b); }
Expression squared_difference(const Expression& a, const Expression& b) { return square(a - b); }
Expression tanh_grad(const Expression& y, const Expression& g) { return g * (1.0 - y * y); }
Expression sigmoid_grad(const Expression& y, const Expression& g) { return g * (y * (1.0 - y)); }

// The rest of the truncated division, and whether it has the other sign than the divisor.
struct Rest {
  Expression rest, crosses;
  Rest(const Expression& a, const Expression& b)
      : rest(a.binary("remainder", b)),
        crosses(
            rest.compare("NE", rest.like(0)).binary("and", (rest < 0.0).compare("NE", b < 0.0))) {}
};
Expression floor_mod(const Expression& a, const Expression& b) {
  if (a.element() == Element::kU8) return a.binary("remainder", b);
  const Rest r(a, b);
  return (r.rest + b).where(r.crosses, r.rest);
}
Expression floor_div(const Expression& a, const Expression& b) {
  if (a.element() == Element::kU8) return a / b;
  const Rest r(a, b);
  if (is_integer(a)) {
    const Expression quotient = a / b;
    return (quotient - 1.0).where(r.crosses, quotient);
  }
  // As the kernel: from the remainder, because a / b may be rounded up to a whole number.
  const Expression whole = (a - r.rest) / b;
  const Expression floored = round((whole - 1.0).where(r.crosses, whole));
  return (a / b).where(b.compare("EQ", b.like(0.0)), floored);
}

#define TANDEM_COMPARISON(Function, direction) \
  Expression Function(const Expression& a, const Expression& b) { return a.compare(direction, b); }
TANDEM_COMPARISON(equal, "EQ")
TANDEM_COMPARISON(not_equal, "NE")
TANDEM_COMPARISON(less, "LT")
TANDEM_COMPARISON(less_equal, "LE")
TANDEM_COMPARISON(greater, "GT")
TANDEM_COMPARISON(greater_equal, "GE")
#undef TANDEM_COMPARISON
Expression logical_and(const Expression& a, const Expression& b) { return a.binary("and", b); }
Expression logical_or(const Expression& a, const Expression& b) { return a.binary("or", b); }

// --- others ---

void lower_pow_scalar(Context& c) {
  const Expression x = operand(c, 0);
  const double exponent = c.real("scalar");
  if (exponent == 2.0)
    finish(c, x * x);
  else if (exponent == 3.0)
    finish(c, x * x * x);
  else
    finish(c, power(x, x.like(exponent)));
}

void lower_clip(Context& c) {
  const Expression x = operand(c, 0);
  const Expression low = x.like(c.real("low")), high = x.like(c.real("high"));
  const Expression raised = low.where(x < low, x);
  finish(c, high.where(raised > high, raised));
}

void lower_add_n(Context& c) {
  Expression sum = operand(c, 0);
  for (std::size_t i = 1; i < c.num_inputs(); ++i) sum = sum + operand(c, i);
  finish(c, sum);
}

void lower_select(Context& c) {
  const auto repeated = [&](std::size_t index) {
    return c.build.broadcast_to(c.input(index), c.output().shape);
  };
  c.result(c.build.select(repeated(0), repeated(1), repeated(2)));
}

void lower_cast(Context& c) {
  const Value& x = c.input(0);
  const Element to = element_of(c.output().dtype);
  const bool narrow =
      to == Element::kU8 || to == Element::kI8 || to == Element::kI16 || to == Element::kU16;
  const bool wraps = is_floating(x.element()) && narrow;  // as the kernels do
  c.result(c.build.convert(wraps ? c.build.convert(x, Element::kI32) : x, to));
}

void lower_fill(Context& c) { c.result(c.build.constant(c.real("value"), c.output())); }

void lower_element_count(Context& c) {
  std::int64_t count = 1;
  for (const std::int64_t size : c.integers("sizes")) count = dim::product(count, size);
  c.result(c.build.size(count, c.output()));
}

void lower_eye(Context& c) {
  const Type index(Element::kI64, c.output().shape);
  const Value on_diagonal = c.build.compare("EQ", c.build.iota(index, 0), c.build.iota(index, 1));
  c.result(c.build.convert(on_diagonal, element_of(c.output().dtype)));
}

void lower_identity(Context& c) { c.result(c.input(0)); }
void lower_ensure_shape(Context& c) {
  const Shape &given = c.input(0).shape(), &shape = c.output().shape;
  const auto expected = c.integers("expected");
  const std::string message = fmt::format("{} ({})", std::string(expected.begin(), expected.end()),
                                          dim::text(shape.words().span(), ", "));
  for (int axis = 0; axis < shape.rank(); ++axis)
    if (given.word(axis) != shape.word(axis))
      c.build.require_equal(given.word(axis), shape.word(axis), message);
  const Value same{c.input(0).name, {c.input(0).element(), shape}};
  const bool one_text = same.type.text() == c.input(0).type.text();
  c.result(one_text ? same : c.build.reshape(c.input(0), shape));
}
void lower_reshape(Context& c) { c.result(c.build.reshape(c.input(0), c.output().shape)); }

constexpr Lowering kElementwiseLowerings[] = {
    {"Abs", lower_unary<absolute>},
    {"AddN", lower_add_n},
    {"AddScalar", lower_scalar<add>},
    {"AddV2", lower_binary<add>},
    {"Cast", lower_cast},
    {"CastStorage", lower_cast},
    {"Ceil", lower_unary<ceil>},
    {"ClipByValue", lower_clip},
    {"Cos", lower_unary<cosine>},
    {"DivScalar", lower_scalar<divide>},
    {"ElementCount", lower_element_count},
    {"EnsureShape", lower_ensure_shape},
    {"Equal", lower_binary<equal>},
    {"EqualScalar", lower_scalar<equal>},
    {"Erf", lower_unary<erf>},
    {"Exp", lower_unary<exp>},
    {"ExpandDims", lower_reshape},
    {"Expm1", lower_unary<expm1>},
    {"Eye", lower_eye},
    {"Fill", lower_fill},
    {"Floor", lower_unary<floor>},
    {"FloorDiv", lower_binary<floor_div>},
    {"FloorMod", lower_binary<floor_mod>},
    {"Greater", lower_binary<greater>},
    {"GreaterEqual", lower_binary<greater_equal>},
    {"GreaterEqualScalar", lower_scalar<greater_equal>},
    {"GreaterScalar", lower_scalar<greater>},
    {"Identity", lower_identity},
    {"IsFinite", lower_is_finite},
    {"IsNan", lower_unary<is_nan>},
    {"Less", lower_binary<less>},
    {"LessEqual", lower_binary<less_equal>},
    {"LessEqualScalar", lower_scalar<less_equal>},
    {"LessScalar", lower_scalar<less>},
    {"Log", lower_unary<log>},
    {"Log1p", lower_unary<log1p>},
    {"LogicalAnd", lower_binary<logical_and>},
    {"LogicalNot", lower_unary<logical_not>},
    {"LogicalOr", lower_binary<logical_or>},
    {"Maximum", lower_binary<maximum>},
    {"MaximumScalar", lower_scalar<maximum>},
    {"Minimum", lower_binary<minimum>},
    {"MinimumScalar", lower_scalar<minimum>},
    {"Mul", lower_binary<multiply>},
    {"MulScalar", lower_scalar<multiply>},
    {"Neg", lower_unary<negative>},
    {"NotEqual", lower_binary<not_equal>},
    {"Pow", lower_binary<power>},
    {"PowScalar", lower_pow_scalar},
    {"RealDiv", lower_binary<divide>},
    {"Reciprocal", lower_unary<reciprocal>},
    {"Reshape", lower_reshape},
    {"Round", lower_unary<round>},
    {"Rsqrt", lower_unary<rsqrt>},
    {"ScalarDiv", lower_scalar<divide, true>},
    {"ScalarSub", lower_scalar<subtract, true>},
    {"SelectV2", lower_select},
    {"Sigmoid", lower_unary<sigmoid>},
    {"SigmoidGrad", lower_binary<sigmoid_grad>},
    {"Sign", lower_unary<sign>},
    {"Sin", lower_unary<sine>},
    {"Sqrt", lower_unary<sqrt>},
    {"Square", lower_unary<square>},
    {"SquaredDifference", lower_binary<squared_difference>},
    {"Squeeze", lower_reshape},
    {"StopGradient", lower_identity},
    {"Sub", lower_binary<subtract>},
    {"SubScalar", lower_scalar<subtract>},
    {"Tanh", lower_unary<tanh>},
    {"TanhGrad", lower_binary<tanh_grad>},
};

}  // namespace

LoweringList elementwise_lowerings() { return kElementwiseLowerings; }

}  // namespace tandem::stablehlo
