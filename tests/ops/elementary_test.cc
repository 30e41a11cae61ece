// Elementary functions, scans, products and searches against plain loops in double.
#include "tandem/elementary.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "ops/expect_values.h"
#include "support/gradient_check.h"
#include "support/tensors.h"
#include "tandem/creation.h"
#include "tandem/function.h"

namespace tandem::elementary_test {
namespace {

using namespace testing;
using Values = std::vector<double>;
constexpr double kInfinity = std::numeric_limits<double>::infinity();
const double kNan = std::numeric_limits<double>::quiet_NaN();

struct Case {
  const char* name;
  std::function<Tensor(const Tensor&)> function;
  double (*formula)(double);
  Values points;  // besides numbers around 0
};

const std::vector<Case>& cases() {
  static const std::vector<Case> all = {
      {"sinh",
       [](const Tensor& x) { return sinh(x); },
       [](double x) { return std::sinh(x); },
       {1e-9, 30.0, -30.0, kInfinity, -kInfinity}},
      {"cosh",
       [](const Tensor& x) { return cosh(x); },
       [](double x) { return std::cosh(x); },
       {30.0, -kInfinity}},
      {"asinh",
       [](const Tensor& x) { return asinh(x); },
       [](double x) { return std::asinh(x); },
       {0.0, 1e-9, -1e-9, 1e12, -1e30, kInfinity, -kInfinity}},
      {"acosh",
       [](const Tensor& x) { return acosh(x); },
       [](double x) { return std::acosh(x); },
       {1.0, 1.0 + 1e-6, 1e12, 1e30, kInfinity}},
      {"atanh",
       [](const Tensor& x) { return atanh(x); },
       [](double x) { return std::atanh(x); },
       {1e-9, -1e-9, 1.0, -1.0, 0.999, 2.0}},
      {"exp2",
       [](const Tensor& x) { return exp2(x); },
       [](double x) { return std::exp2(x); },
       {20.0, -20.0, -kInfinity}},
      {"sinc",
       [](const Tensor& x) { return sinc(x); },
       [](double x) { return x == 0.0 ? 1.0 : std::sin(M_PI * x) / (M_PI * x); },
       {0.0}},
      {"logit",
       [](const Tensor& x) { return logit(x); },
       [](double x) { return std::log(x / (1.0 - x)); },
       {0.0, 1.0, 0.3}},
      {"logit with eps",
       [](const Tensor& x) { return logit(x, 0.1); },
       [](double x) {
         const double p = std::min(std::max(x, 0.1), 0.9);
         return std::log(p / (1.0 - p));
       },
       {0.0, 1.0, 0.3}},
      {"trunc",
       [](const Tensor& x) { return trunc(x); },
       [](double x) { return std::trunc(x); },
       {2.0, -2.0, kInfinity}},
      {"frac",
       [](const Tensor& x) { return frac(x); },
       [](double x) { return x - std::trunc(x); },
       {2.0, -2.5}},
      {"nan_to_num",
       [](const Tensor& x) { return nan_to_num(x, 3.0, 5.0, -7.0); },
       [](double x) { return std::isnan(x)   ? 3.0
                             : std::isinf(x) ? (x > 0.0 ? 5.0 : -7.0)
                                             : x; },
       {kInfinity, -kInfinity}},
  };
  return all;
}

TEST(Elementary, EqualTheirFormulas) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(c.name);
    Values points = c.points, expected, inner;
    for (int i = -12; i <= 12; ++i) points.push_back(i * 0.23 + 0.011);
    points.push_back(kNan);
    for (const double point : points) expected.push_back(c.formula(point));
    const Tensor x = constant(points, {.dtype = float64});
    expect_values(c.function(x), expected, 1e-13);
    const Tensor single = cast(x, float32);
    Values rounded;
    for (const double point : values_of(cast(single, float64))) rounded.push_back(c.formula(point));
    expect_values(c.function(single), rounded, 3e-6);
    const auto traced = function(c.function, {.input_signature = {{Shape{-1}, float64}}});
    expect_values(traced(x), values_of(c.function(x)), 0.0);
    for (const double point : {-0.71, -0.2, 0.13, 0.44, 0.83, 1.7, 2.9})
      if (std::isfinite(c.formula(point))) inner.push_back(point);
    if (std::string(c.name) != "trunc")  // has none
      expect_gradients([&](const std::vector<Tensor>& in) { return c.function(in[0]); },
                       {constant(inner, {.dtype = float64})});
    expect_error<DTypeError>([&] { static_cast<void>(c.function(constant({1, 2}))); }, "floating");
  }
  EXPECT_EQ(nan_to_num(constant({kInfinity}, {.dtype = bfloat16})).to(float64).item<double>(),
            0x1.FEp127);
  EXPECT_EQ(nan_to_num(constant({-kInfinity}, {.dtype = float16})).to(float64).item<double>(),
            -65504.0);
  // The derivative at 0.
  GradientTape tape;
  const Tensor zero = zeros({1}, float64);
  tape.watch(zero);
  expect_tensor(tape.gradient(asinh(zero) + atanh(zero), zero), float64, {1}, {2.0}, 1e-14);
  const Tensor halves = constant({300.0, -700.0}, {.dtype = float16});
  expect_tensor(cast(asinh(halves), float32), float32, {2}, {std::asinh(300.0), -std::asinh(700.0)},
                0.01);
}

TEST(Elementary, OfTwoTensors) {
  const Tensor a = random_tensor({3, 4}, 1, -2.0, 2.0), b = random_tensor({4}, 2, 0.2, 3.0);
  const Values x = values_of(a), y = values_of(b);
  const struct {
    const char* name;
    std::function<Tensor(const Tensor&, const Tensor&)> function;
    double (*formula)(double, double);
  } two[] = {
      {"hypot", [](const Tensor& p, const Tensor& q) { return hypot(p, q); },
       [](double p, double q) { return std::hypot(p, q); }},
      {"logaddexp", [](const Tensor& p, const Tensor& q) { return logaddexp(p, q); },
       [](double p, double q) { return std::log(std::exp(p) + std::exp(q)); }},
      {"logaddexp2", [](const Tensor& p, const Tensor& q) { return logaddexp2(p, q); },
       [](double p, double q) { return std::log2(std::exp2(p) + std::exp2(q)); }},
      {"xlogy", [](const Tensor& p, const Tensor& q) { return xlogy(p, q); },
       [](double p, double q) { return p * std::log(q); }},
      {"fmod", [](const Tensor& p, const Tensor& q) { return fmod(p, q); },
       [](double p, double q) { return std::fmod(p, q); }},
      {"lerp", [](const Tensor& p, const Tensor& q) { return lerp(p, q, q * 0.3); },
       [](double p, double q) { return p + (q - p) * q * 0.3; }},
      {"addcmul", [](const Tensor& p, const Tensor& q) { return addcmul(p, p, q, 0.5); },
       [](double p, double q) { return p + 0.5 * p * q; }},
      {"addcdiv", [](const Tensor& p, const Tensor& q) { return addcdiv(p, p, q, 0.5); },
       [](double p, double q) { return p + 0.5 * p / q; }},
  };
  for (const auto& c : two) {
    SCOPED_TRACE(c.name);
    Values expected;
    for (std::size_t i = 0; i < x.size(); ++i) expected.push_back(c.formula(x[i], y[i % 4]));
    expect_tensor(c.function(a, b), float64, {3, 4}, expected, 1e-13);
    expect_gradients([&](const std::vector<Tensor>& in) { return c.function(in[0], in[1]); },
                     {a, b});
  }
  expect_values(hypot(constant({0.0, 3e30, kInfinity, 1e-30}), constant({0.0, 4e30, 1.0, 0.0})),
                {0.0, 5e30, kInfinity, 1e-30}, 1e-6);
  expect_values(logaddexp(constant({kInfinity, -kInfinity, 1e4, -kInfinity}),
                          constant({kInfinity, -kInfinity, 1e4, 2.0})),
                {kInfinity, -kInfinity, 1e4 + std::log(2.0), 2.0}, 1e-6);
  expect_values(xlogy(constant({0.0, 0.0, 0.0, 2.0}), constant({0.0, kInfinity, kNan, 0.0})),
                {0.0, 0.0, kNan, -kInfinity}, 0.0);
  expect_values(fmod(constant({-5.0, 5.0, -5.5}), constant({3.0, -3.0, 2.0})), {-2.0, 2.0, -1.5},
                0.0);
  expect_tensor(logical_xor(constant({true, true, false}), constant({true, false, false})), bool_,
                {3}, {0, 1, 0});
  expect_tensor(isclose(constant({1.0, 1.0, kInfinity, kInfinity, kNan}),
                        constant({1.000001, 1.1, kInfinity, 1.0, kNan})),
                bool_, {5}, {1, 0, 1, 0, 0});
  expect_error<InvalidArgumentError>([&] { static_cast<void>(isclose(a, a, -1.0)); },
                                     "[isclose] expected tolerances of 0 or more");
  // Equal numbers share the gradient.
  GradientTape tape;
  const Tensor p = constant({1.5}), q = constant({1.5});
  tape.watch(p);
  tape.watch(q);
  const std::vector<Tensor> slopes = tape.gradient(logaddexp(p, q), {p, q});
  EXPECT_NEAR(slopes[0].item<float>(), 0.5, 1e-6);
  EXPECT_NEAR(slopes[1].item<float>(), 0.5, 1e-6);
}

TEST(Scans, CombineElementsSoFar) {
  for (const std::int64_t size : {1, 2, 7, 8}) {
    const Tensor x = random_tensor({2, size, 3}, 1, -1.5, 1.5);
    const Values in = values_of(x);
    Values product(in.size()), sum(in.size()), most(in.size()), least(in.size());
    const auto at = [&](std::int64_t i, std::int64_t j, std::int64_t k) {
      return static_cast<std::size_t>((i * size + j) * 3 + k);
    };
    for (std::int64_t i = 0; i < 2; ++i)
      for (std::int64_t k = 0; k < 3; ++k) {
        double times = 1.0, exps = 0.0, high = -kInfinity, low = kInfinity;
        for (std::int64_t j = 0; j < size; ++j) {
          const std::size_t here = at(i, j, k);
          product[here] = times *= in[here];
          exps += std::exp(in[here]);
          sum[here] = std::log(exps);
          most[here] = high = std::max(high, in[here]);
          least[here] = low = std::min(low, in[here]);
        }
      }
    const Shape shape{2, size, 3};
    expect_tensor(cumprod(x, 1), float64, shape, product, 1e-13);
    expect_tensor(logcumsumexp(x, -2), float64, shape, sum, 1e-13);
    expect_tensor(cummax(x, 1).values, float64, shape, most);
    expect_tensor(cummin(x, 1).values, float64, shape, least);
    expect_tensor(take_along_axis(x, cummin(x, 1).indices, 1), float64, shape, least);
    const FunctionOptions unknown{.input_signature = {{Shape{-1, size, 3}, float64}}};
    expect_tensor(function([](const Tensor& t) { return cumprod(t, 1); }, unknown)(x), float64,
                  shape, product, 1e-13);
    expect_tensor(function([](const Tensor& t) { return cummax(t, 1).values; }, unknown)(x),
                  float64, shape, most);
    expect_gradients([](const std::vector<Tensor>& t) { return cumprod(t[0], 1); }, {x});
    expect_gradients([](const std::vector<Tensor>& t) { return logcumsumexp(t[0], 1); }, {x});
    expect_gradients([](const std::vector<Tensor>& t) { return cummax(t[0], 1).values; }, {x});
  }
  // The last of equal elements, and the first NaN.
  expect_tensor(cummax(constant({1.0, 3.0, 2.0, 3.0}), 0).indices, int64, {4}, {0, 1, 1, 3});
  expect_tensor(cummin(constant({1.0, kNan, 0.0, kNan}), 0).indices, int64, {4}, {0, 1, 1, 1});
  // Zeros have a gradient: that of the other factors.
  GradientTape tape;
  const Tensor x = constant({2.0, 0.0, 3.0});
  tape.watch(x);
  expect_tensor(tape.gradient(cumprod(x, 0), x), float32, {3}, {1.0, 2.0 + 6.0, 0.0});
  expect_tensor(diff(constant({1.0, 4.0, 9.0, 16.0})), float32, {3}, {3, 5, 7});
  expect_tensor(diff(constant({{1.0, 4.0}, {9.0, 16.0}, {1.0, 1.0}}), 2, 0), float32, {1, 2},
                {-16, -27});
  expect_error<InvalidArgumentError>([&] { static_cast<void>(diff(x, -1)); }, "[diff] expected a");
}

TEST(Products, OfTensors) {
  const Tensor a = random_tensor({2, 3, 4}, 1), b = random_tensor({4, 3, 5}, 2);
  const Values x = values_of(a), y = values_of(b);
  Values expected;
  for (int i = 0; i < 2; ++i)
    for (int n = 0; n < 5; ++n) {
      double sum = 0.0;
      for (int j = 0; j < 3; ++j)
        for (int k = 0; k < 4; ++k)
          sum += x[static_cast<std::size_t>((i * 3 + j) * 4 + k)] *
                 y[static_cast<std::size_t>((k * 3 + j) * 5 + n)];
      expected.push_back(sum);
    }
  expect_tensor(tensordot(a, b, {1, -1}, {1, 0}), float64, {2, 5}, expected, 1e-13);
  expect_tensor(tensordot(a, transpose(b, {1, 0, 2})), float64, {2, 5}, expected, 1e-13);
  expect_tensor(tensordot(a[0][0], b[0][0], 0), float64, {4, 5},
                values_of(expand_dims(a[0][0], 1) * expand_dims(b[0][0], 0)), 1e-14);
  expect_gradients(
      [](const std::vector<Tensor>& in) {
        return tensordot(in[0], in[1], {1, 2}, {1, 0});
      },
      {a, b});
  const Tensor p = random_tensor({2, 3}, 3), q = random_tensor({2}, 4);
  Values blocks;
  for (std::size_t i = 0; i < 2; ++i)
    for (std::size_t j = 0; j < 6; ++j)
      blocks.push_back(values_of(p)[i * 3 + j / 2] * values_of(q)[j % 2]);
  expect_tensor(kron(p, q), float64, {2, 6}, blocks, 1e-14);
  expect_gradients([](const std::vector<Tensor>& in) { return kron(in[0], in[1]); }, {p, q});
  expect_tensor(cross(constant({{1.0, 2.0, 3.0}, {0.0, 0.0, 1.0}}), constant({{4.0, 5.0, 6.0}})),
                float32, {2, 3}, {-3, 6, -3, -5, 4, 0});
  expect_gradients([](const std::vector<Tensor>& in) { return cross(in[0], in[1]); },
                   {random_tensor({2, 3}, 1), random_tensor({2, 3}, 2)});
  expect_error<InvalidArgumentError>(
      [&] {
        static_cast<void>(tensordot(a, b, {1}, {1, 0}));
      },
      "[tensordot] expected as many axes");
  expect_error<InvalidArgumentError>(
      [&] {
        static_cast<void>(tensordot(a, b, {1, 1}, {1, 0}));
      },
      "each axis once, got 1 twice");
  expect_error<ShapeError>([&] { static_cast<void>(tensordot(a, b, {0}, {0})); }, "equal sizes");
  expect_error<InvalidArgumentError>([&] { static_cast<void>(tensordot(a, b, 4)); }, "got 4");
  expect_error<ShapeError>([&] { static_cast<void>(cross(p, p, 0)); }, "[cross] expected a size");
}

TEST(Products, DistancesOfRows) {
  const Tensor a = random_tensor({2, 3, 4}, 1), b = random_tensor({5, 4}, 2);
  const Values x = values_of(a), y = values_of(b);
  for (const double p : {1.0, 2.0, 3.0, kInfinity}) {
    Values expected;
    for (std::size_t row = 0; row < 6; ++row)
      for (std::size_t other = 0; other < 5; ++other) {
        double sum = 0.0, most = 0.0;
        for (std::size_t i = 0; i < 4; ++i) {
          const double d = std::abs(x[row * 4 + i] - y[other * 4 + i]);
          sum += std::pow(d, p);
          most = std::max(most, d);
        }
        expected.push_back(std::isinf(p) ? most : std::pow(sum, 1.0 / p));
      }
    expect_tensor(cdist(a, b, p), float64, {2, 3, 5}, expected, 1e-13);
    expect_gradients([&](const std::vector<Tensor>& in) { return cdist(in[0], in[1], p); }, {a, b});
  }
  GradientTape tape;
  const Tensor same = ones({2, 3});
  tape.watch(same);
  expect_tensor(tape.gradient(cdist(same, ones({1, 3}), 3.0), same), float32, {2, 3},
                {0, 0, 0, 0, 0, 0});
  expect_error<InvalidArgumentError>([&] { static_cast<void>(cdist(a, b, 0.0)); }, "a positive p");
  expect_error<ShapeError>([&] { static_cast<void>(cdist(a, ones({4}))); }, "[cdist] expected");
}

TEST(Positions, DiagonalsRepeatsAndSearches) {
  const Tensor x = constant({{1.0, 2.0}, {3.0, kNan}});
  expect_values(diag_embed(x), {1, 0, 0, 2, 3, 0, 0, kNan}, 0.0);
  expect_tensor(diag_embed(constant({1.0, 2.0}), 1), float32, {3, 3}, {0, 1, 0, 0, 0, 2, 0, 0, 0});
  expect_tensor(diag_embed(constant({1.0, 2.0}), -1), float32, {3, 3}, {0, 0, 0, 1, 0, 0, 0, 2, 0});
  expect_tensor(repeat_interleave(constant({{1, 2}, {3, 4}}), 2, 1), int32, {2, 4},
                {1, 1, 2, 2, 3, 3, 4, 4});
  expect_tensor(repeat_interleave(constant({{1, 2}, {3, 4}}), 2, 0), int32, {4, 2},
                {1, 2, 1, 2, 3, 4, 3, 4});
  expect_gradients([](const std::vector<Tensor>& in) { return repeat_interleave(in[0], 3, 0); },
                   {random_tensor({2, 2}, 1)});
  expect_gradients([](const std::vector<Tensor>& in) { return diag_embed(in[0], 1); },
                   {random_tensor({2, 3}, 1)});
  for (const std::size_t size : {std::size_t{1}, std::size_t{5}, std::size_t{8}}) {
    Values sorted, wanted = {-kInfinity, 0.0, 0.5, 1.0, 2.0, 2.5, 3.0, 4.0, 9.0, kInfinity};
    for (std::size_t i = 0; i < size; ++i) sorted.push_back(static_cast<double>(i * 2 / 3));
    Values left, right;
    for (const double value : wanted) {
      left.push_back(static_cast<double>(std::lower_bound(sorted.begin(), sorted.end(), value) -
                                         sorted.begin()));
      right.push_back(static_cast<double>(std::upper_bound(sorted.begin(), sorted.end(), value) -
                                          sorted.begin()));
    }
    const Tensor in = constant(sorted), values = constant(wanted, {.shape = {2, 5}});
    expect_tensor(searchsorted(in, values), int64, {2, 5}, left);
    expect_tensor(searchsorted(in, values, true), int64, {2, 5}, right);
    const auto traced = function([&](const Tensor& v) { return searchsorted(in, v); },
                                 {.input_signature = {{Shape{-1, -1}, float64}}});
    expect_tensor(traced(values), int64, {2, 5}, left);
  }
  expect_tensor(searchsorted(zeros({0}), ones({2})), int64, {2}, {0, 0});
  for (const bool right : {false, true})
    expect_tensor(searchsorted(constant({1.0, 2.0}), constant({NAN, 1.5}), right), int64, {2},
                  {2, 1});
  expect_error<ShapeError>(
      [] {
        static_cast<void>(searchsorted(ones({1, 2}), ones({2})));
      },
      "[searchsorted] expected a sorted vector");
  const Tensor sum = index_add(ones({2, 3}), 1, constant({2, 0, 2}),
                               constant({{1.0, 2.0, 4.0}, {8.0, 16.0, 32.0}}));
  expect_tensor(sum, float32, {2, 3}, {3, 1, 6, 17, 1, 41});
  expect_gradients(
      [](const std::vector<Tensor>& in) {
        return index_add(in[0], 1, constant({1, 1}), in[1]);
      },
      {random_tensor({2, 3}, 1), random_tensor({2, 2}, 2)});
  expect_error<ShapeError>(
      [] {
        static_cast<void>(index_add(ones({2, 3}), 1, constant({0}), ones({2, 2})));
      },
      "[index_add] expected a vector of positions");
  expect_error<InvalidArgumentError>([] { static_cast<void>(repeat_interleave(ones({2}), -1, 0)); },
                                     "0 repeats or more");
}

TEST(Elementary, TakeSignsAndNumbers) {
  const Tensor a = constant({1.0, kNan, 3.0, kNan}, float64),
               b = constant({2.0, 5.0, kNan, kNan}, float64);
  expect_values(fmax(a, b), {2.0, 5.0, 3.0, kNan}, 0.0);
  expect_values(fmin(a, b), {1.0, 5.0, 3.0, kNan}, 0.0);
  expect_tensor(fmax(constant({1, 4}), constant({2, 3})), int32, {2}, {2, 4});
  const Tensor signs = constant({-0.0, 0.0, -3.0, kInfinity}, float64);
  EXPECT_EQ(signbit(signs).to_vector<bool>(), (std::vector<bool>{true, false, true, false}));
  expect_values(copysign(constant({1.0, -2.0, 3.0, -4.0}, float64), signs), {-1.0, 2.0, -3.0, 4.0},
                0.0);
  expect_values(heaviside(signs, full({4}, 0.5, float64)), {0.5, 0.5, 0.0, 1.0}, 0.0);
  EXPECT_EQ(isneginf(-signs).to_vector<bool>(), (std::vector<bool>{false, false, false, true}));
  EXPECT_EQ(isposinf(signs).to_vector<bool>(), (std::vector<bool>{false, false, false, true}));
  expect_values(rad2deg(deg2rad(constant({90.0, -45.0}, float64))), {90.0, -45.0}, 1e-14);
  expect_values(ldexp(constant({1.5, -3.0}, float64), constant({3, -1})), {12.0, -1.5}, 0.0);
  expect_tensor(float_power(constant({2, 3}), constant({-1.0, 2.0})), float64, {2}, {0.5, 9.0});
  expect_values(xlog1py(constant({0.0, 2.0, 0.0}, float64), constant({-1.0, 1.0, kNan}, float64)),
                {0.0, 2.0 * std::log(2.0), kNan}, 1e-15);
  expect_values(entr(constant({0.0, -1.0, 0.5}, float64)), {0.0, -kInfinity, 0.5 * std::log(2.0)},
                1e-15);
  expect_values(round(constant({1.2345, -1.5, 1250.0}, float64), 2), {1.23, -1.5, 1250.0}, 1e-15);
  expect_values(round(constant({1.2345, -1.5, 1251.0}, float64), -2), {0.0, 0.0, 1300.0}, 1e-15);
  expect_gradients(
      [](const std::vector<Tensor>& in) {
        return copysign(in[0], stop_gradient(in[1])) * fmax(in[0], in[1]);
      },
      {random_tensor({5}, 1), random_tensor({5}, 2)});
}

TEST(AddedProducts, ScaleBothParts) {
  const Tensor a = random_tensor({2, 3}, 1), b = random_tensor({3, 4}, 2),
               x = random_tensor({4}, 3);
  EXPECT_EQ(values_of(addmm(x, a, b, 2.0, 3.0)), values_of(x * 2.0 + matmul(a, b) * 3.0));
  EXPECT_EQ(values_of(addmm(x / 0.0, a, b, 0.0)), values_of(matmul(a, b)));
  EXPECT_EQ(values_of(addmv(ones({2}, float64), a, b.slice(1, 0, 1).reshape({3}))),
            values_of(matmul(a, b.slice(1, 0, 1).reshape({3})) + 1.0));
  EXPECT_EQ(values_of(addr(zeros({4, 4}, float64), x, x)), values_of(expand_dims(x, 1) * x));
  const Tensor batch = random_tensor({2, 3, 4}, 4), other = random_tensor({2, 4, 1}, 5);
  EXPECT_EQ(values_of(baddbmm(ones({1}, float64), batch, other)),
            values_of(matmul(batch, other) + 1.0));
  EXPECT_EQ(values_of(addbmm(zeros({3, 1}, float64), batch, other)),
            values_of(reduce_sum(matmul(batch, other), 0)));
  expect_gradients(
      [](const std::vector<Tensor>& in) { return addmm(in[0], in[1], in[2], 0.5, 2.0); },
      {x, a, b});
  expect_error<ShapeError>(
      [&] {
        static_cast<void>(addmm(zeros({3, 2, 4}, float64), a, b, 1.0));
      },
      "[addmm] expected a tensor that broadcasts to shape (2, 4)");
  expect_error<ShapeError>([&] { static_cast<void>(addmv(x, a, b)); },
                           "[addmv] expected tensors of 2 and 1 axes");
  EXPECT_EQ(values_of(inner(a, a)), values_of(matmul(a, a, {.transpose_b = true})));
  EXPECT_EQ(values_of(inner(constant(2.0, float64), x)), values_of(x * 2.0));
}

}  // namespace
}  // namespace tandem::elementary_test
