// Inverse trigonometric functions, the gamma function and its relatives, and windows of signals.
#include "tandem/special.h"

#include <array>
#include <cmath>
#include <limits>
#include <numbers>
#include <span>

#include "core/dim.h"
#include "core/status.h"
#include "tandem/array.h"
#include "tandem/autograd.h"
#include "tandem/elementary.h"
#include "tandem/math.h"

namespace tandem {
namespace {

constexpr double kTau = 2.0 * std::numbers::pi, kEndless = std::numeric_limits<double>::infinity();

void expect_floats(const char* what, const Tensor& x) {
  if (!is_floating(x.dtype()))
    fail<DTypeError>("[{}] expected a floating dtype, got {}", what, name_of(x.dtype()));
}

// The sum of coefficients times powers of x, of which the highest comes first.
Tensor polynomial(const Tensor& x, std::span<const double> coefficients) {
  Tensor y = x * coefficients[0] + coefficients[1];
  for (const double c : coefficients.subspan(2)) y = y * x + c;
  return y;
}

// A function F::value(x) in float32 (of 16 bits) or in double precision, with the derivative
// F::slope(x), which is a function itself.
template <class F>
struct Smooth : autograd::Function<Smooth<F>> {
  static Tensor forward(autograd::Context* context, const Tensor& x) {
    context->save_for_backward({x});
    return F::value(x);
  }
  static std::vector<Tensor> backward(autograd::Context* context,
                                      const std::vector<Tensor>& gradients) {
    return {gradients[0] * F::slope(context->saved_tensors()[0])};
  }
};

template <class F>
Tensor smooth(const char* name, const Tensor& x, bool in_double) {
  expect_floats(name, x);
  const DType dtype = in_double ? float64 : size_of(x.dtype()) == 2 ? float32 : x.dtype();
  return cast(Smooth<F>::apply(cast(x, dtype)), x.dtype());
}

// --- angles ---

// atan(t) / t as a polynomial of t^2 up to tan(pi / 8), by Remez' algorithm.
constexpr std::array kAtanFloat = {-0.060263052276584591, 0.10569828806414448,
                                   -0.14239532669648975,  0.19998183041083206,
                                   -0.33333306893048513,  0.99999999937122816};
constexpr std::array kAtanDouble = {0.015113765096600925,
                                    -0.033387824501211952,
                                    0.04499500728984032,
                                    -0.052173125740615910,
                                    0.058768340046141607,
                                    -0.066662052599765262,
                                    0.076922810999377433,
                                    -0.090909080590311910,
                                    0.11111111085322109,
                                    -0.14285714285329708,
                                    0.19999999999997014,
                                    -0.33333333333333324,
                                    1.0};

Tensor angle_of(const Tensor& y, const Tensor& x) {
  const Tensor a = abs(y), b = abs(x), larger = maximum(a, b), smaller = minimum(a, b);
  const Tensor equal_sizes = equal(larger, smaller);  // also 0 and infinite ones
  const Tensor ratio = where(equal_sizes, cast(not_equal(larger, 0.0), x.dtype()),
                             smaller / where(equal_sizes, 1.0, larger));
  const Tensor beyond = greater(ratio, std::numbers::sqrt2 - 1.0);
  const Tensor t = where(beyond, (ratio - 1.0) / (ratio + 1.0), ratio);
  const std::span<const double> coefficients =
      x.dtype() == float64 ? std::span<const double>(kAtanDouble) : kAtanFloat;
  Tensor angle = polynomial(square(t), coefficients) * t + cast(beyond, x.dtype()) * (kTau / 8.0);
  angle = where(greater(a, b), kTau / 4.0 - angle, angle);
  return copysign(where(signbit(x), kTau / 2.0 - angle, angle), y);
}

Tensor cosine_of_sine(const Tensor& x) { return sqrt((1.0 - x) * (x + 1.0)); }

struct Asin {
  static Tensor value(const Tensor& x) { return angle_of(x, cosine_of_sine(x)); }
  static Tensor slope(const Tensor& x) { return rsqrt((1.0 - x) * (x + 1.0)); }
};
struct Acos {
  static Tensor value(const Tensor& x) { return angle_of(cosine_of_sine(x), x); }
  static Tensor slope(const Tensor& x) { return negative(Asin::slope(x)); }
};
struct Atan {
  static Tensor value(const Tensor& x) { return angle_of(x, ones_like(x)); }
  static Tensor slope(const Tensor& x) { return reciprocal(square(x) + 1.0); }
};

struct Atan2 : autograd::Function<Atan2> {
  static Tensor forward(autograd::Context* context, const Tensor& y, const Tensor& x) {
    context->save_for_backward({y, x});
    return angle_of(y, x);
  }
  static std::vector<Tensor> backward(autograd::Context* context,
                                      const std::vector<Tensor>& gradients) {
    const std::vector<Tensor> saved = context->saved_tensors();
    const Tensor &y = saved[0], &x = saved[1];
    const Tensor squares = square(x) + square(y), none = equal(squares, 0.0);
    const Tensor part = where(none, 0.0, gradients[0] / where(none, 1.0, squares));
    return {part * x, negative(part * y)};
  }
};

Shape broadcast_shape(const char* what, const Tensor& a, const Tensor& b) {
  Dims sizes;
  for (int i = std::max(a.rank(), b.rank()); i > 0; --i) {
    const std::int64_t from_a = i <= a.rank() ? a.shape().word(a.rank() - i) : 1,
                       from_b = i <= b.rank() ? b.shape().word(b.rank() - i) : 1;
    if (!dim::may_broadcast(from_a, from_b))
      fail<ShapeError>("[{}] expected shapes that broadcast together, got {} and {}", what,
                       a.shape().to_string(), b.shape().to_string());
    sizes.push_back(dim::broadcast(from_a, from_b));
  }
  return Shape(sizes);
}

// --- the gamma function: by Stirling's series of numbers from kFar on, which recurrences reach ---

constexpr double kFar = 10.0;
constexpr int kSteps = 10;

struct Far {
  explicit Far(const Tensor& x)
      : near(less(x, kFar)), here(where(near, x, 1.0)), there(where(near, x + kFar, x)) {}
  Tensor near, here, there;  // `here`: the number if it is near, else 1
};

// B(2 k) / (2 k (2 k - 1)), and B(2 k) / (2 k): the first ones, the highest power first.
constexpr std::array kStirling = {1.0 / 156,  -691.0 / 360360, 1.0 / 1188, -1.0 / 1680,
                                  1.0 / 1260, -1.0 / 360,      1.0 / 12};
constexpr std::array kDigamma = {1.0 / 12,  -691.0 / 32760, 1.0 / 132, -1.0 / 240,
                                 1.0 / 252, -1.0 / 120,     1.0 / 12};

// sin(pi x) and tan(pi x) but for their signs, and their zeros exactly.
Tensor distance_from_integer(const Tensor& x) { return (x - round(x)) * (kTau / 2.0); }

Tensor lgamma_above(const Tensor& x) {
  const Far far(x);
  Tensor product = far.here;
  for (int k = 1; k < kSteps; ++k) product = product * (far.here + static_cast<double>(k));
  const Tensor& w = far.there;
  const Tensor r = reciprocal(w);
  const Tensor series = polynomial(square(r), kStirling) * r;
  // (w - 1/2) (log w - 1) - 1/2 + log(2 pi) / 2, which is infinite at infinity.
  const Tensor sum = (w - 0.5) * (log(w) - 1.0) + (series + (0.5 * std::log(kTau) - 0.5));
  return where(far.near, sum - log(product), sum);
}

Tensor digamma_above(const Tensor& x) {
  const Far far(x);
  Tensor sum = reciprocal(far.here);
  for (int k = 1; k < kSteps; ++k) sum = sum + reciprocal(far.here + static_cast<double>(k));
  const Tensor r = reciprocal(far.there), s = square(r);
  const Tensor there = log(far.there) - r * 0.5 - polynomial(s, kDigamma) * s;
  return where(far.near, there - sum, there);
}

// The sum of 1 / (x + k)^power for all k from 0 on.
Tensor zeta_above(std::int64_t power, const Tensor& x) {
  const Far far(x);
  const auto p = static_cast<double>(power);
  Tensor sum = pow(far.here, -p);
  for (int k = 1; k < kSteps; ++k) sum = sum + pow(far.here + static_cast<double>(k), -p);
  const Tensor r = reciprocal(far.there), s = square(r), last = pow(far.there, -p);
  // Euler and Maclaurin: B(2 j) / (2 j)! * p (p + 1) ... (p + 2 j - 2).
  static constexpr double kBernoulli[] = {1.0 / 6,  -1.0 / 30,     1.0 / 42, -1.0 / 30,
                                          5.0 / 66, -691.0 / 2730, 7.0 / 6,  -3617.0 / 510};
  std::vector<double> coefficients;
  double factor = p / 2.0;
  for (int j = 1; j <= 8; ++j) {
    coefficients.insert(coefficients.begin(), kBernoulli[j - 1] * factor);
    factor *= (p + 2.0 * j - 1.0) * (p + 2.0 * j) / ((2.0 * j + 1.0) * (2.0 * j + 2.0));
  }
  const Tensor there = last * (far.there / (p - 1.0) + 0.5 + polynomial(s, coefficients) * r);
  return where(far.near, sum + there, there);
}

// The n-th derivative of the cotangent as a polynomial of it, the highest power first.
std::vector<double> derivative_of_cotangent(std::int64_t n) {
  std::vector<double> powers = {0.0, 1.0};  // the lowest first
  for (std::int64_t i = 0; i < n; ++i) {
    std::vector<double> next(powers.size() + 1, 0.0);
    for (std::size_t k = 1; k < powers.size(); ++k) {  // of c^k: -k c^(k - 1) (1 + c^2)
      next[k - 1] -= static_cast<double>(k) * powers[k];
      next[k + 1] -= static_cast<double>(k) * powers[k];
    }
    powers = next;
  }
  return {powers.rbegin(), powers.rend()};
}

struct Polygamma : autograd::Function<Polygamma> {
  static Tensor forward(autograd::Context* context, const Tensor& x, std::int64_t n) {
    context->save_for_backward({x});
    context->saved_data["n"] = n;
    return value(x, n);
  }
  static std::vector<Tensor> backward(autograd::Context* context,
                                      const std::vector<Tensor>& gradients) {
    const std::int64_t n = context->saved_data["n"].toInt();
    return {gradients[0] * polygamma(n + 1, context->saved_tensors()[0]), Tensor()};
  }

 private:
  static Tensor value(const Tensor& x, std::int64_t n) {
    const Tensor below = less_equal(x, 0.0), from = where(below, 1.0 - x, x);
    const double factor = (n % 2 == 0 ? -1.0 : 1.0) * std::tgamma(static_cast<double>(n) + 1.0);
    const Tensor above = n == 0 ? digamma_above(from) : zeta_above(n + 1, from) * factor;
    // By reflection: pi^(n + 1) times the n-th derivative of the cotangent.
    const Tensor at = distance_from_integer(x), zero = equal(at, 0.0);
    const Tensor cotangent = cos(at) / where(zero, 1.0, sin(at));
    const Tensor derivative = polynomial(cotangent, derivative_of_cotangent(n)) *
                              std::pow(kTau / 2.0, static_cast<double>(n) + 1.0);
    const Tensor reflected = (n % 2 == 0 ? above : negative(above)) - derivative;
    const Tensor nan = full(Shape::scalar(), std::numeric_limits<double>::quiet_NaN(), x.dtype());
    const Tensor endless = full(x.shape(), n == 0 ? kEndless : factor * kEndless, x.dtype());
    const Tensor pole =
        n == 0 ? where(equal(x, 0.0), copysign(endless, negative(x)), nan) : endless;
    return where(below, where(zero, pole, reflected), above);
  }
};

struct Lgamma {
  static Tensor value(const Tensor& x) {
    const Tensor below = less_equal(x, 0.0);
    const Tensor above = lgamma_above(where(below, 1.0 - x, x));
    const Tensor size = abs(sin(distance_from_integer(x)));
    const Tensor reflected = std::log(kTau / 2.0) - log(size) - above;
    return where(equal(abs(x), kEndless), kEndless, where(below, reflected, above));
  }
  static Tensor slope(const Tensor& x) { return digamma(x); }
};

// --- the inverse of erf() ---

struct Erfinv {
  // Giles, "Approximating the erfinv function" (2010), and two steps of Newton's method.
  static Tensor value(const Tensor& x) {
    static constexpr std::array kCenter = {2.81022636e-08,  3.43273939e-07, -3.5233877e-06,
                                           -4.39150654e-06, 0.00021858087,  -0.00125372503,
                                           -0.00417768164,  0.246640727,    1.50140941};
    static constexpr std::array kTail = {-0.000200214257, 0.000100950558, 0.00134934322,
                                         -0.00367342844,  0.00573950773,  -0.0076224613,
                                         0.00943887047,   1.00167406,     2.83297682};
    const Tensor inside = less(abs(x), 1.0), p = where(inside, x, 0.0);
    const Tensor w = negative(log((1.0 - p) * (p + 1.0)));
    Tensor y =
        p * where(less(w, 5.0), polynomial(w - 2.5, kCenter), polynomial(sqrt(w) - 3.0, kTail));
    for (int step = 0; step < 2; ++step)
      y = y - (erf(y) - p) * exp(square(y)) * (0.5 / std::numbers::inv_sqrtpi);
    const Tensor end = full(Shape::scalar(), kEndless, x.dtype());
    const Tensor outside =
        where(equal(abs(x), 1.0), copysign(end, x),
              full(Shape::scalar(), std::numeric_limits<double>::quiet_NaN(), x.dtype()));
    return where(inside, y, outside);
  }
  static Tensor slope(const Tensor& x) {
    return exp(square(erfinv(x))) * (0.5 / std::numbers::inv_sqrtpi);
  }
};

}  // namespace

Tensor asin(const Tensor& x) { return smooth<Asin>("asin", x, false); }
Tensor acos(const Tensor& x) { return smooth<Acos>("acos", x, false); }
Tensor atan(const Tensor& x) { return smooth<Atan>("atan", x, false); }
Tensor atan2(const Tensor& y, const Tensor& x) {
  expect_floats("atan2", y);
  if (x.dtype() != y.dtype())
    fail<InvalidArgumentError>("[atan2] expected tensors of one dtype, got {} and {}",
                               name_of(y.dtype()), name_of(x.dtype()));
  const Shape shape = broadcast_shape("atan2", y, x);
  const DType dtype = size_of(x.dtype()) == 2 ? float32 : x.dtype();
  const auto prepared = [&](const Tensor& part) { return cast(broadcast_to(part, shape), dtype); };
  return cast(Atan2::apply(prepared(y), prepared(x)), x.dtype());
}

Tensor erfinv(const Tensor& x) { return smooth<Erfinv>("erfinv", x, true); }
Tensor lgamma(const Tensor& x) { return smooth<Lgamma>("lgamma", x, true); }
Tensor digamma(const Tensor& x) { return polygamma(0, x); }
Tensor polygamma(std::int64_t n, const Tensor& x) {
  expect_floats("polygamma", x);
  if (n < 0) fail<InvalidArgumentError>("[polygamma] expected an order of 0 or more, got {}", n);
  return cast(Polygamma::apply(cast(x, float64), n), x.dtype());
}
Tensor mvlgamma(const Tensor& x, std::int64_t p) {
  if (p < 1) fail<InvalidArgumentError>("[mvlgamma] expected a dimension of 1 or more, got {}", p);
  const auto dimension = static_cast<double>(p);
  Tensor sum;
  for (std::int64_t j = 0; j < p; ++j) {
    const Tensor part = lgamma(x - 0.5 * static_cast<double>(j));
    sum = sum.defined() ? sum + part : part;
  }
  return sum + dimension * (dimension - 1.0) / 4.0 * std::log(kTau / 2.0);
}

namespace windows {
namespace {

// The values of a function of a point's number and of the number of steps.
template <class F>
Tensor window(const char* name, std::int64_t size, const WindowOptions& options, const F& f) {
  if (size < 0) fail<InvalidArgumentError>("[{}] expected a size of 0 or more, got {}", name, size);
  if (!is_floating(options.dtype))
    fail<DTypeError>("[{}] expected a floating dtype, got {}", name, name_of(options.dtype));
  const auto steps = static_cast<double>(options.sym ? size - 1 : size);
  std::vector<double> values;
  for (std::int64_t i = 0; i < size; ++i)
    values.push_back(size == 1 ? 1.0 : f(static_cast<double>(i), steps));
  return constant(values, {.dtype = options.dtype});
}

}  // namespace

Tensor general_cosine(std::int64_t size, const std::vector<double>& a,
                      const WindowOptions& options) {
  return window("general_cosine", size, options, [&a](double i, double steps) {
    double sum = 0.0, sign = 1.0;
    for (std::size_t k = 0; k < a.size(); ++k, sign = -sign)
      sum += sign * a[k] * std::cos(kTau * static_cast<double>(k) * i / steps);
    return sum;
  });
}
Tensor general_hamming(std::int64_t size, double alpha, const WindowOptions& options) {
  return general_cosine(size, {alpha, 1.0 - alpha}, options);
}
Tensor hamming(std::int64_t size, const WindowOptions& options) {
  return general_hamming(size, 0.54, options);
}
Tensor hann(std::int64_t size, const WindowOptions& options) {
  return general_hamming(size, 0.5, options);
}
Tensor blackman(std::int64_t size, const WindowOptions& options) {
  return general_cosine(size, {0.42, 0.5, 0.08}, options);
}
Tensor nuttall(std::int64_t size, const WindowOptions& options) {
  return general_cosine(size, {0.3635819, 0.4891775, 0.1365995, 0.0106411}, options);
}
Tensor bartlett(std::int64_t size, const WindowOptions& options) {
  return window("bartlett", size, options,
                [](double i, double steps) { return 1.0 - std::abs(2.0 * i / steps - 1.0); });
}
Tensor cosine(std::int64_t size, const WindowOptions& options) {
  return window("cosine", size, options, [](double i, double steps) {
    return std::sin(kTau / 2.0 * (i + 0.5) / (steps + 1.0));
  });
}
Tensor exponential(std::int64_t size, double tau, const WindowOptions& options) {
  if (!(tau > 0.0))
    fail<InvalidArgumentError>("[exponential] expected a positive tau, got {}", tau);
  return window("exponential", size, options, [tau](double i, double steps) {
    return std::exp(-std::abs(i - steps / 2.0) / tau);
  });
}
Tensor gaussian(std::int64_t size, double deviation, const WindowOptions& options) {
  if (!(deviation > 0.0))
    fail<InvalidArgumentError>("[gaussian] expected a positive deviation, got {}", deviation);
  return window("gaussian", size, options, [deviation](double i, double steps) {
    const double at = (i - steps / 2.0) / deviation;
    return std::exp(-0.5 * at * at);
  });
}
Tensor kaiser(std::int64_t size, double beta, const WindowOptions& options) {
  if (!(beta >= 0.0))
    fail<InvalidArgumentError>("[kaiser] expected a beta of 0 or more, got {}", beta);
  return window("kaiser", size, options, [beta](double i, double steps) {
    const double u = 2.0 * i / steps - 1.0;
    return std::cyl_bessel_i(0.0, beta * std::sqrt(std::max(0.0, 1.0 - u * u))) /
           std::cyl_bessel_i(0.0, beta);
  });
}

}  // namespace windows

}  // namespace tandem
