// Elementary functions that are made of others.
#include "tandem/elementary.h"

#include <cmath>
#include <limits>

#include "core/status.h"
#include "tandem/creation.h"

namespace tandem {
namespace {

constexpr double kLog2 = 0.69314718055994530942, kPi = 3.14159265358979323846;

// The largest number of a floating dtype.
double largest(DType dtype) {
  if (dtype == float64) return std::numeric_limits<double>::max();
  if (dtype == float16) return 65504.0;
  if (dtype == bfloat16) return 0x1.FEp127;
  return static_cast<double>(std::numeric_limits<float>::max());
}

void expect_floating(const char* what, const Tensor& x) {
  if (!is_floating(x.dtype()))
    fail<DTypeError>("[{}] expected a floating dtype, got {}", what, name_of(x.dtype()));
}

// Where log(2 x) is asinh(x) and acosh(x) to the last bit, and squares do not overflow.
double far(DType dtype) { return dtype == float16 ? 200.0 : 1e9; }

// -1 for negative numbers, else 1.
Tensor signs(const Tensor& x) { return 1.0 - cast(less(x, 0.0), x.dtype()) * 2.0; }

}  // namespace

Tensor sinh(const Tensor& x) { return (expm1(x) - expm1(negative(x))) * 0.5; }
Tensor cosh(const Tensor& x) { return (exp(x) + exp(negative(x))) * 0.5; }

Tensor asinh(const Tensor& x) {
  expect_floating("asinh", x);
  const Tensor sign = signs(x), size = x * sign, limit = minimum(size, far(x.dtype()));
  const Tensor square_of = square(limit);
  const Tensor near = log1p(limit + square_of / (sqrt(square_of + 1.0) + 1.0));
  const Tensor beyond = greater(size, far(x.dtype()));
  return where(beyond, log(where(beyond, size, 1.0)) + kLog2, near) * sign;
}

Tensor acosh(const Tensor& x) {
  expect_floating("acosh", x);
  const Tensor more = minimum(x, far(x.dtype())) - 1.0;
  const Tensor beyond = greater(x, far(x.dtype()));
  return where(beyond, log(where(beyond, x, 1.0)) + kLog2, log1p(more + sqrt(more * (more + 2.0))));
}

Tensor atanh(const Tensor& x) {
  expect_floating("atanh", x);
  const Tensor sign = signs(x), size = x * sign;
  return log1p(size * 2.0 / (1.0 - size)) * sign * 0.5;
}

Tensor exp2(const Tensor& x) {
  expect_floating("exp2", x);
  return pow(2.0, x);
}

Tensor sinc(const Tensor& x) {
  expect_floating("sinc", x);
  // A rounded angle of 16 bits has another sine.
  const Tensor wide = size_of(x.dtype()) == 2 ? cast(x, float32) : x;
  const Tensor zero = equal(wide, 0.0);
  const Tensor angle = where(zero, 1.0, wide) * kPi;
  const Tensor y = where(zero, 1.0, sin(angle) / angle);
  return y.dtype() == x.dtype() ? y : cast(y, x.dtype());
}

Tensor logit(const Tensor& x, std::optional<double> eps) {
  expect_floating("logit", x);
  const Tensor p = eps ? clip_by_value(x, *eps, 1.0 - *eps) : x;
  return log(p / (1.0 - p));
}

Tensor trunc(const Tensor& x) {
  expect_floating("trunc", x);
  return where(less(x, 0.0), ceil(x), floor(x));
}
Tensor frac(const Tensor& x) { return x - trunc(x); }

Tensor hypot(const Tensor& a, const Tensor& b) {
  expect_floating("hypot", a);
  const Tensor largest_of = maximum(abs(a), abs(b));
  const Tensor usual = logical_and(greater(largest_of, 0.0), is_finite(largest_of));
  const Tensor scale = stop_gradient(where(usual, largest_of, 1.0));
  return sqrt(square(a / scale) + square(b / scale)) * scale;
}

Tensor logaddexp(const Tensor& a, const Tensor& b) {
  expect_floating("logaddexp", a);
  const Tensor first = greater_equal(a, b);
  const Tensor high = where(first, a, b), low = where(first, b, a);
  // A constant, so that all derivatives are those of the formula, also of equal numbers. Infinite
  // ones would leave NaN.
  const Tensor most = stop_gradient(where(is_finite(high), high, 0.0));
  return log1p(expm1(high - most) + exp(low - most)) + most;
}
Tensor logaddexp2(const Tensor& a, const Tensor& b) {
  return logaddexp(a * kLog2, b * kLog2) / kLog2;
}

Tensor xlogy(const Tensor& a, const Tensor& b) {
  expect_floating("xlogy", a);
  const Tensor infinite = logical_or(less_equal(b, 0.0), is_inf(b));
  return a * log(where(logical_and(equal(a, 0.0), infinite), 1.0, b));
}

Tensor fmod(const Tensor& a, const Tensor& b) {
  expect_floating("fmod", a);
  const Tensor sign = signs(a);
  return floor_mod(a * sign, b * signs(b)) * sign;
}

Tensor nan_to_num(const Tensor& x, double nan, std::optional<double> posinf,
                  std::optional<double> neginf) {
  expect_floating("nan_to_num", x);
  const double most = largest(x.dtype());
  const Tensor finite = where(is_nan(x), nan, x);
  const Tensor infinite = is_inf(x);
  const Tensor limit =
      where(greater(finite, 0.0), full(Shape::scalar(), posinf.value_or(most), x.dtype()),
            full(Shape::scalar(), neginf.value_or(-most), x.dtype()));
  return where(infinite, limit, finite);
}

namespace {

// Where there is one number and one NaN, the number.
Tensor of_numbers(const Tensor& a, const Tensor& b, const Tensor& chosen) {
  if (!is_floating(a.dtype())) return chosen;
  return where(is_nan(a), b, where(is_nan(b), a, chosen));
}

}  // namespace

Tensor fmax(const Tensor& a, const Tensor& b) { return of_numbers(a, b, maximum(a, b)); }
Tensor fmin(const Tensor& a, const Tensor& b) { return of_numbers(a, b, minimum(a, b)); }

Tensor signbit(const Tensor& x) {
  const Tensor negative_number = less(x, 0.0);
  if (!is_floating(x.dtype())) return negative_number;
  const Tensor zero = equal(x, 0.0);  // whose reciprocal has its sign
  return logical_or(negative_number, less(reciprocal(where(zero, x, 1.0)), 0.0));
}

Tensor copysign(const Tensor& a, const Tensor& b) {
  expect_floating("copysign", a);
  const Tensor size = abs(a);
  return where(signbit(b), negative(size), size);
}

Tensor heaviside(const Tensor& x, const Tensor& values) {
  return where(equal(x, 0.0), values, cast(greater(x, 0.0), x.dtype()));
}

Tensor deg2rad(const Tensor& x) {
  expect_floating("deg2rad", x);
  return x * (kPi / 180.0);
}
Tensor rad2deg(const Tensor& x) {
  expect_floating("rad2deg", x);
  return x * (180.0 / kPi);
}
Tensor isposinf(const Tensor& x) { return equal(x, std::numeric_limits<double>::infinity()); }
Tensor isneginf(const Tensor& x) { return equal(x, -std::numeric_limits<double>::infinity()); }

Tensor ldexp(const Tensor& x, const Tensor& exponent) {
  expect_floating("ldexp", x);
  return x * exp2(cast(exponent, x.dtype()));
}
Tensor float_power(const Tensor& a, const Tensor& b) {
  return pow(cast(a, float64), cast(b, float64));
}

Tensor xlog1py(const Tensor& a, const Tensor& b) {
  expect_floating("xlog1py", a);
  const Tensor infinite = logical_or(less_equal(b, -1.0), is_inf(b));
  return a * log1p(where(logical_and(equal(a, 0.0), infinite), 0.0, b));
}
Tensor entr(const Tensor& x) {
  expect_floating("entr", x);
  return where(less(x, 0.0), -std::numeric_limits<double>::infinity(), negative(xlogy(x, x)));
}

Tensor round(const Tensor& x, std::int64_t decimals) {
  const double scale = std::pow(10.0, std::abs(static_cast<double>(decimals)));
  return decimals < 0 ? round(x / scale) * scale : round(x * scale) / scale;
}

Tensor lerp(const Tensor& a, const Tensor& b, const Tensor& weight) { return a + (b - a) * weight; }
Tensor addcmul(const Tensor& x, const Tensor& a, const Tensor& b, double value) {
  const Tensor product = a * b;
  return x + (value == 1.0 ? product : product * value);
}
Tensor addcdiv(const Tensor& x, const Tensor& a, const Tensor& b, double value) {
  const Tensor quotient = a / b;
  return x + (value == 1.0 ? quotient : quotient * value);
}

Tensor logical_xor(const Tensor& a, const Tensor& b) {
  return logical_and(logical_or(a, b), logical_not(logical_and(a, b)));
}

Tensor isclose(const Tensor& a, const Tensor& b, double rtol, double atol) {
  if (!(rtol >= 0.0 && atol >= 0.0))
    fail<InvalidArgumentError>("[isclose] expected tolerances of 0 or more, got {} and {}", rtol,
                               atol);
  expect_floating("isclose", a);
  const Tensor near = less_equal(abs(a - b), abs(b) * rtol + atol);
  return logical_or(equal(a, b), logical_and(near, is_finite(b)));
}

}  // namespace tandem
