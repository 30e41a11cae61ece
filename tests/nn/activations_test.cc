// Activations against their formulas in double, as functions, layers and PyTorch's modules.
#include "tandem/activations.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <string>

#include "support/gradient_check.h"
#include "support/tensors.h"
#include "tandem/tandem.h"

namespace tandem::activations_test {
namespace {

using namespace testing;
using Formula = std::function<double(double)>;

double clipped(double x, double low, double high) { return std::min(std::max(x, low), high); }
double sigmoid_of(double x) { return 1.0 / (1.0 + std::exp(-x)); }

struct Case {
  const char* name;  // of the activation; null: it has none
  std::function<Tensor(const Tensor&)> function;
  Formula formula;
};

const std::vector<Case>& cases() {
  static const std::vector<Case> all = {
      {"hard_sigmoid", [](const Tensor& x) { return nn::hard_sigmoid(x); },
       [](double x) { return clipped(x / 6.0 + 0.5, 0.0, 1.0); }},
      {"hard_swish", [](const Tensor& x) { return nn::hard_swish(x); },
       [](double x) { return x * clipped(x / 6.0 + 0.5, 0.0, 1.0); }},
      {"hard_tanh", [](const Tensor& x) { return nn::hard_tanh(x); },
       [](double x) { return clipped(x, -1.0, 1.0); }},
      {nullptr, [](const Tensor& x) { return nn::functional::hardtanh(x, -2.0, 0.5); },
       [](double x) { return clipped(x, -2.0, 0.5); }},
      {"mish", [](const Tensor& x) { return nn::mish(x); },
       [](double x) { return x * std::tanh(std::log1p(std::exp(x))); }},
      {"softsign", [](const Tensor& x) { return nn::softsign(x); },
       [](double x) { return x / (1.0 + std::abs(x)); }},
      {"log_sigmoid", [](const Tensor& x) { return nn::log_sigmoid(x); },
       [](double x) { return -std::log1p(std::exp(-x)); }},
      {"celu", [](const Tensor& x) { return nn::celu(x); },
       [](double x) { return std::max(x, 0.0) + std::min(0.0, std::expm1(x)); }},
      {nullptr, [](const Tensor& x) { return nn::celu(x, 0.5); },
       [](double x) { return std::max(x, 0.0) + std::min(0.0, 0.5 * std::expm1(x / 0.5)); }},
      {"squareplus", [](const Tensor& x) { return nn::squareplus(x); },
       [](double x) { return (x + std::sqrt(x * x + 4.0)) / 2.0; }},
      {"sparse_plus", [](const Tensor& x) { return nn::sparse_plus(x); },
       [](double x) { return x <= -1.0  ? 0.0
                             : x >= 1.0 ? x
                                        : (x + 1.0) * (x + 1.0) / 4.0; }},
      {"sparse_sigmoid", [](const Tensor& x) { return nn::sparse_sigmoid(x); },
       [](double x) { return clipped((x + 1.0) / 2.0, 0.0, 1.0); }},
      {"tanh_shrink", [](const Tensor& x) { return nn::tanh_shrink(x); },
       [](double x) { return x - std::tanh(x); }},
      {"hard_shrink", [](const Tensor& x) { return nn::hard_shrink(x); },
       [](double x) { return std::abs(x) > 0.5 ? x : 0.0; }},
      {"soft_shrink", [](const Tensor& x) { return nn::soft_shrink(x); },
       [](double x) { return x > 0.5    ? x - 0.5
                             : x < -0.5 ? x + 0.5
                                        : 0.0; }},
      {nullptr, [](const Tensor& x) { return nn::threshold(x, 0.25, -7.0); },
       [](double x) { return x > 0.25 ? x : -7.0; }},
      {nullptr, [](const Tensor& x) { return nn::functional::softplus(x, 2.0, 3.0); },
       [](double x) { return 2.0 * x > 3.0 ? x : std::log1p(std::exp(2.0 * x)) / 2.0; }},
      {nullptr, [](const Tensor& x) { return nn::functional::gelu(x, "tanh"); },
       [](double x) {
         return 0.5 * x * (1.0 + std::tanh(std::sqrt(2.0 / M_PI) * (x + 0.044715 * x * x * x)));
       }},
      {nullptr, [](const Tensor& x) { return nn::functional::rrelu(x, 0.1, 0.3); },
       [](double x) { return x > 0.0 ? x : 0.2 * x; }},
      {"exponential", [](const Tensor& x) { return exp(x); }, [](double x) { return std::exp(x); }},
  };
  return all;
}

TEST(MoreActivations, EqualTheirFormulas) {
  std::vector<double> points;
  for (int i = -40; i <= 40; ++i) points.push_back(i * 0.21 + 0.013);
  const Tensor x = constant(points, {.dtype = float32});
  const Tensor few = constant({-4.1, -1.7, -0.9, -0.31, 0.17, 0.44, 0.83, 1.6, 3.7});
  for (std::size_t i = 0; i < cases().size(); ++i) {
    const Case& c = cases()[i];
    SCOPED_TRACE(c.name ? c.name : "case " + std::to_string(i));
    std::vector<double> expected;
    for (const double point : points) expected.push_back(c.formula(point));
    const Tensor y = c.function(constant(points, {.dtype = float64}));
    expect_tensor(y, float64, {81}, expected, 1e-12);
    expect_tensor(c.function(x), float32, {81}, expected, 2e-6);
    for (const DType dtype : {float16, bfloat16})
      expect_tensor(cast(c.function(cast(x, dtype)), float64), float64, {81},
                    values_of(c.function(cast(cast(x, dtype), float64))), 0.04);
    const auto of_one = [&](const std::vector<Tensor>& in) { return c.function(in[0]); };
    expect_gradients(of_one, {cast(few, float64)});
    const auto traced = function(c.function, {.input_signature = {{Shape{-1}, float64}}});
    expect_tensor(traced(cast(x, float64)), float64, {81}, values_of(c.function(cast(x, float64))));
    if (!c.name) continue;
    const nn::Activation named = nn::activation_from_name(c.name);
    expect_tensor(nn::activate(y, named), float64, {81}, values_of(c.function(y)));
    const layers::Activation layer(c.name);
    expect_tensor(layer(x), float32, {81}, values_of(c.function(x)));
    EXPECT_EQ(layers::Dense(3, c.name)(ones({2, 4})).shape(), Shape({2, 3}));
  }
}

TEST(MoreActivations, AreNotNaNFarFromZero) {
  const Tensor x = constant({-1e4, 1e4});
  expect_tensor(nn::log_sigmoid(x), float32, {2}, {-1e4, 0});
  expect_tensor(nn::mish(x), float32, {2}, {0, 1e4});
  expect_tensor(nn::celu(x), float32, {2}, {-1, 1e4});
  const Tensor nan = constant({std::numeric_limits<double>::quiet_NaN()}, {.dtype = float32});
  for (const Case& c : cases())
    EXPECT_TRUE(std::isnan(c.function(nan).item<float>())) << (c.name ? c.name : "");
}

TEST(MoreActivations, HaveNoSlopeAtTheLimits) {
  GradientTape tape(GradientTapeOptions{.persistent = true});
  const Tensor x = constant({-3.0, 3.0}, {.dtype = bfloat16});
  tape.watch(x);
  const Tensor sigmoid = nn::hard_sigmoid(x), swish = nn::hard_swish(x);
  expect_tensor(cast(tape.gradient(sigmoid, x), float32), float32, {2}, {0, 0});
  expect_tensor(cast(tape.gradient(swish, x), float32), float32, {2}, {0, 1});
}

TEST(MoreActivations, OverAnAxis) {
  const Tensor x = random_tensor({3, 4}, 1, -2.0, 2.0);
  const std::vector<double> values = values_of(x);
  std::vector<double> expected;
  for (std::size_t row = 0; row < 3; ++row)
    for (std::size_t i = 0; i < 2; ++i)
      expected.push_back(values[row * 4 + i] * sigmoid_of(values[row * 4 + i + 2]));
  expect_tensor(nn::glu(x), float64, {3, 2}, expected, 1e-14);
  expect_tensor(nn::glu(transpose(x), 0), float64, {2, 3}, values_of(transpose(nn::glu(x))));
  expect_gradients([](const std::vector<Tensor>& in) { return nn::glu(in[0]); }, {x});
  expect_tensor(nn::softmin(x, 0), float64, {3, 4}, values_of(nn::softmax(negative(x), 0)));
  expect_tensor(nn::activate(x, nn::Activation::kGlu), float64, {3, 2}, expected, 1e-14);
  expect_tensor(nn::activate(x, nn::activation_from_name("log_softmax")), float64, {3, 4},
                values_of(nn::log_softmax(x)));
  expect_error<ShapeError>(
      [] {
        nn::glu(ones({2, 3}));
      },
      "[glu] expected an even size of axis -1, got shape (2, 3)");
}

TEST(MoreActivations, RefuseOtherArguments) {
  const Tensor x = ones({2}), integers = constant({1, 2});
  for (const Case& c : cases())
    if (c.name && std::string(c.name) != "hard_tanh") {  // which limits integers, too
      SCOPED_TRACE(c.name);
      expect_error<DTypeError>([&] { static_cast<void>(c.function(integers)); }, "floating");
    }
  expect_error<InvalidArgumentError>([&] { nn::celu(x, 0.0); }, "[celu] expected a positive alpha");
  expect_error<InvalidArgumentError>([&] { nn::squareplus(x, -1.0); }, "[squareplus] expected a b");
  expect_error<InvalidArgumentError>([&] { nn::soft_shrink(x, -1.0); }, "[soft_shrink] expected");
  expect_error<InvalidArgumentError>([&] { nn::functional::softplus(x, 0.0); },
                                     "[softplus] expected a positive beta");
  expect_error<InvalidArgumentError>([] { nn::GELU("erf"); },
                                     "expected the approximation 'none' or 'tanh', got 'erf'");
  expect_error<InvalidArgumentError>([&] { nn::functional::rrelu(x, 1.0, 0.5); },
                                     "[rrelu] expected a lower limit of at most the upper one");
  expect_error<InvalidArgumentError>([] { nn::RReLU(1.0, 0.5); }, "[rrelu]");
  expect_error<InvalidArgumentError>([] { nn::PReLU({.num_parameters = 0}); }, "1 weight or more");
  expect_error<InvalidArgumentError>([] { nn::AlphaDropout(1.0); },
                                     "[alpha_dropout] expected a probability in [0, 1), got 1");
  expect_error<ShapeError>(
      [&] {
        nn::functional::prelu(ones({2, 3}), ones({2}));
      },
      "[prelu] expected one weight per element of axis 1 of shape (2, 3)");
  expect_error<ShapeError>(
      [&] {
        nn::functional::prelu(x, ones({2, 1}));
      },
      "[prelu] expected a vector of weights");
  expect_error<InvalidArgumentError>([] { layers::ReLU({.max_value = -1.0}); },
                                     "[relu] expected max_value, negative_slope and threshold");
}

TEST(ReluLayer, HasKerasOptions) {
  const Tensor x = constant({-3.0, -0.5, 0.25, 0.75, 2.0, 9.0});
  const auto expect = [&](const layers::ReLUOptions& options, const Formula& formula) {
    std::vector<double> expected;
    for (const double value : values_of(x)) expected.push_back(formula(value));
    expect_tensor(layers::ReLU(options)(x), float32, {6}, expected, 1e-6);
  };
  expect({}, [](double v) { return std::max(v, 0.0); });
  expect({.max_value = 6.0}, [](double v) { return clipped(v, 0.0, 6.0); });
  expect({.max_value = 1.5, .negative_slope = 0.1}, [](double v) {
    return v >= 1.5 ? 1.5 : v >= 0.0 ? v : 0.1 * v;
  });
  expect({.negative_slope = 0.5, .threshold = 0.5},
         [](double v) { return v >= 0.5 ? v : 0.5 * (v - 0.5); });
  expect({.max_value = 2.5, .threshold = 0.5}, [](double v) {
    return v >= 2.5 ? 2.5 : v >= 0.5 ? v : 0.0;
  });
  const Tensor m = random_tensor({2, 3, 4}, 1);
  expect_tensor(layers::Softmax({.axis = 1, .dtype = "float64"})(m), float64, {2, 3, 4},
                values_of(nn::softmax(m, 1)));
}

TEST(ActivationNames, StandForTheFunctions) {
  const Tensor x = random_tensor({2, 4}, 1, -2.0, 2.0);
  using layers::ActivationName;
  EXPECT_EQ(ActivationName(nn::mish), "mish");
  EXPECT_EQ(ActivationName(nn::hard_swish), "hard_swish");
  EXPECT_EQ(ActivationName(nn::celu), "celu");
  EXPECT_EQ(ActivationName(nn::soft_shrink), "soft_shrink");
  EXPECT_EQ(ActivationName(nn::log_softmax), "log_softmax");
  EXPECT_EQ(nn::activation_from_name("hard_silu"), nn::Activation::kHardSwish);
}

TEST(ActivationModules, EqualTheFunctions) {
  const Tensor x = random_tensor({3, 4, 6}, 2, -4.0, 4.0);
  const auto expect = [&](const auto& made, const Tensor& y) {
    expect_tensor(made(x), float64, y.shape(), values_of(y));
  };
  expect(nn::ReLU6(), nn::relu6(x));
  expect(nn::SELU(), nn::selu(x));
  expect(nn::CELU(0.5), nn::celu(x, 0.5));
  expect(nn::Mish(), nn::mish(x));
  expect(nn::Hardswish(), nn::hard_swish(x));
  expect(nn::Hardsigmoid(), nn::hard_sigmoid(x));
  expect(nn::Hardtanh(-2.0, 2.0), nn::hard_tanh(x, -2.0, 2.0));
  expect(nn::Hardshrink(1.0), nn::hard_shrink(x, 1.0));
  expect(nn::Softshrink(1.0), nn::soft_shrink(x, 1.0));
  expect(nn::Tanhshrink(), nn::tanh_shrink(x));
  expect(nn::Softsign(), nn::softsign(x));
  expect(nn::LogSigmoid(), nn::log_sigmoid(x));
  expect(nn::Threshold(0.1, 20.0), nn::threshold(x, 0.1, 20.0));
  expect(nn::GLU(1), nn::glu(x, 1));
  expect(nn::Softmin(1), nn::softmin(x, 1));
  expect(nn::Softplus(2.0), nn::functional::softplus(x, 2.0));
  expect(nn::GELU("tanh"), nn::gelu(x, true));
  expect(nn::GELU(), nn::gelu(x));
}

TEST(ActivationModules, PReLULearnsSlopes) {
  const Tensor x = random_tensor({3, 4, 6}, 2, -4.0, 4.0);
  const Tensor slopes = constant({0.1, 0.2, 0.3, 0.4}, {.dtype = float64});
  const Tensor y = nn::functional::prelu(x, slopes);
  for (int channel = 0; channel < 4; ++channel) {
    const Tensor part = x(Slice{}, channel);
    expect_tensor(y(Slice{}, channel), float64, {3, 6},
                  values_of(nn::leaky_relu(part, 0.1 * (channel + 1))), 1e-14);
  }
  expect_gradients(
      [](const std::vector<Tensor>& in) { return nn::functional::prelu(in[0], in[1]); },
      {x, slopes});
  nn::PReLU one, each({.num_parameters = 4, .init = 0.5});
  EXPECT_EQ(one->weight.shape(), Shape({1}));
  EXPECT_EQ(each->weight.shape(), Shape({4}));
  const Tensor f = cast(x, float32);
  expect_tensor(one(f), float32, {3, 4, 6}, values_of(nn::leaky_relu(f, 0.25)), 1e-6);
  expect_tensor(each(f), float32, {3, 4, 6}, values_of(nn::leaky_relu(f, 0.5)), 1e-6);
  EXPECT_EQ(one.parameters().size(), 1u);
}

TEST(ActivationModules, RReLUAndAlphaDropoutAreRandomInTraining) {
  random::set_seed(3);
  nn::RReLU random_slopes(0.25, 0.5);
  const Tensor x = full({1000}, -1.0);
  const Tensor y = random_slopes(x);
  EXPECT_GT(y.max().item(), -0.26);
  EXPECT_LT(y.min().item(), -0.49);
  EXPECT_NEAR(y.mean().item(), -0.375, 0.01);
  EXPECT_EQ(random_slopes(ones({2})).sum().item(), 2.0);
  random_slopes.eval();
  expect_tensor(random_slopes(full({1}, -1.0)), float32, {1}, {-0.375}, 1e-7);

  nn::AlphaDropout drop(0.3);
  const Tensor normal = random::normal({100'000});
  const Tensor dropped = drop(normal);
  EXPECT_NEAR(dropped.mean().item(), 0.0, 0.02);
  EXPECT_NEAR(dropped.std().item(), 1.0, 0.02);
  const double lowest = -1.7580993408473766;
  const double value = lowest * 0.7 / std::sqrt(0.7 * (1.0 + 0.3 * lowest * lowest));
  EXPECT_NEAR(less(abs(dropped - value), 1e-5).to(float32).mean().item(), 0.3, 0.02);
  drop.eval();
  EXPECT_TRUE(allclose(drop(normal), normal, 0.0, 0.0));
}

}  // namespace
}  // namespace tandem::activations_test
