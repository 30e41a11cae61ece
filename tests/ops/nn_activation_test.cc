#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "ops/nn_reference.h"
#include "tandem/autodiff.h"
#include "tandem/device.h"
#include "tandem/nn.h"

namespace tandem::nn_activation_test {
namespace {

using nn::Activation;
using namespace testing;

struct Case {
  const char* name;
  std::function<Tensor(const Tensor&)> op;
  double (*exact)(double);
};

double sigmoid_of(double x) { return 1.0 / (1.0 + std::exp(-x)); }

const std::vector<Case>& cases() {
  static const std::vector<Case> all = {
      {"relu", nn::relu, [](double x) { return std::fmax(x, 0.0); }},
      {"relu6", nn::relu6, [](double x) { return std::fmin(std::fmax(x, 0.0), 6.0); }},
      {"leaky_relu", [](const Tensor& x) { return nn::leaky_relu(x); },
       [](double x) { return x > 0 ? x : 0.2 * x; }},
      {"leaky_relu -0.5", [](const Tensor& x) { return nn::leaky_relu(x, -0.5); },
       [](double x) { return x > 0 ? x : -0.5 * x; }},
      {"elu", [](const Tensor& x) { return nn::elu(x); },
       [](double x) { return x > 0 ? x : std::exp(x) - 1; }},
      {"elu 0.3", [](const Tensor& x) { return nn::elu(x, 0.3); },
       [](double x) { return x > 0 ? x : 0.3 * (std::exp(x) - 1); }},
      {"selu", nn::selu,
       [](double x) {
         return 1.0507009873554805 * (x > 0 ? x : 1.6732632423543772 * (std::exp(x) - 1));
       }},
      {"gelu", [](const Tensor& x) { return nn::gelu(x); },
       [](double x) { return 0.5 * x * std::erfc(-x / std::sqrt(2.0)); }},
      {"gelu tanh", [](const Tensor& x) { return nn::gelu(x, true); },
       [](double x) {
         return 0.5 * x *
                (1 + std::tanh(std::sqrt(2 / 3.14159265358979323846) * (x + 0.044715 * x * x * x)));
       }},
      {"swish", nn::swish, [](double x) { return x * sigmoid_of(x); }},
      {"softplus", nn::softplus,
       [](double x) { return std::fmax(x, 0.0) + std::log1p(std::exp(-std::fabs(x))); }},
  };
  return all;
}

TEST(Activation, AgreesWithItsFormulaInEveryDtype) {
  for (const Case& c : cases())
    for (const DType dtype : testing::kFloatingTypes) {
      SCOPED_TRACE(std::string(c.name) + " " + std::string(name_of(dtype)));
      const Tensor x = random_tensor({37, 7}, 1, -9, 9, dtype);
      std::vector<double> expected;
      for (double value : values_of(x)) expected.push_back(c.exact(value));
      expect_tensor(c.op(x), dtype, {37, 7}, expected, 4 * testing::epsilon_of(dtype));
    }
}

TEST(Activation, HasRightGradients) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(c.name);
    const auto f = [&](const std::vector<Tensor>& in) { return c.op(in[0]); };
    const Tensor x = random_tensor({41}, 2, -8, 8);
    expect_gradients(f, {x});
    expect_second_order(f, {x});
    testing::expect_other_dtypes_like_float64(f, {x});
  }
}

TEST(Activation, KeepsNaN) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const Case& c : cases())
    for (const DType dtype : testing::kFloatingTypes) {
      SCOPED_TRACE(c.name);
      EXPECT_TRUE(
          std::isnan(values_of(c.op(constant(std::vector<double>{nan}, {.dtype = dtype})))[0]));
    }
}

// ReLU of 16-bit numbers is computed on their bits.
template <class T>
void check_relu_of_all_numbers() {
  std::vector<float> all(65536), slopes(all.size());
  for (std::size_t i = 0; i < all.size(); ++i) {
    all[i] = static_cast<float>(std::bit_cast<T>(static_cast<std::uint16_t>(i)));
    slopes[i] = static_cast<float>(i % 251) - 125.0f;
  }
  const Tensor x = constant(all, {.dtype = dtype_of<T>});
  GradientTape tape;
  tape.watch(x);
  const Tensor y = nn::relu(x);
  const Tensor dx =
      tape.gradient(y, x, {.output_gradient = constant(slopes, {.dtype = dtype_of<T>})});
  const std::vector<T> numbers = x.to_vector<T>(), values = y.to_vector<T>(),
                       gradients = dx.to_vector<T>();
  const auto bits = [](T number) { return std::bit_cast<std::uint16_t>(number); };
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (std::isnan(all[i]))
      ASSERT_TRUE(std::isnan(static_cast<float>(values[i]))) << i;
    else
      ASSERT_EQ(bits(values[i]), bits(all[i] < 0.0f ? T(0.0f) : numbers[i])) << i;  // -0 remains
    ASSERT_EQ(bits(gradients[i]), bits(T(all[i] > 0.0f ? slopes[i] : 0.0f))) << i;
  }
}
TEST(Activation, ReluOf16BitNumbersFollowsTheFormulaForAllOfThem) {
  check_relu_of_all_numbers<BFloat16>();
  check_relu_of_all_numbers<Half>();
}

TEST(Activation, HandlesEmptyTensors) {
  for (const Case& c : cases()) expect_tensor(c.op(ones({0, 3})), float32, {0, 3}, {});
}

TEST(Activation, HasNames) {
  EXPECT_EQ(nn::activation_from_name(""), Activation::kLinear);
  EXPECT_EQ(nn::activation_from_name("linear"), Activation::kLinear);
  EXPECT_EQ(nn::activation_from_name("ReLU"), Activation::kRelu);
  EXPECT_EQ(nn::activation_from_name("silu"), nn::activation_from_name("swish"));
  EXPECT_EQ(nn::activation_from_name("softmax"), Activation::kSoftmax);
  expect_error<InvalidArgumentError>([] { nn::activation_from_name("rellu"); },
                                     "[activation] expected one of linear, relu, relu6,");
}

TEST(Activation, ExplainsBadInput) {
  expect_error<InvalidArgumentError>(
      [] {
        nn::relu(constant({1, 2}));
      },
      "[Relu] expected a floating dtype, got int32");
  expect_error<InvalidArgumentError>([] { nn::elu(ones({2}), -1.0); },
                                     "[Elu] expected alpha of 0 or more, got -1");
}

// The gradient finds the branch of a result, even if the result was rounded to 0.
TEST(Activation, EluOfASmallAlphaHasTheSlopeOfItsBranch) {
  for (const DType dtype : testing::kFloatingTypes)
    for (const double alpha : {0.0, 1e-8}) {
      const Tensor x = constant({-1.0, -2.0, 0.0, 3.0}, {.dtype = dtype});
      GradientTape tape;
      tape.watch(x);
      const Tensor y = nn::elu(x, alpha);
      expect_tensor(tape.gradient(y, x), dtype, {4},
                    {alpha * std::exp(-1.0), alpha * std::exp(-2.0), alpha, 1}, 1e-7);
    }
}

// They would slow down the products of a layer before it many times.
// As Keras and PyTorch: zero belongs to alpha * (exp(x) - 1).
TEST(Activation, TheGradientOfEluAtZeroIsAlpha) {
  for (const double alpha : {0.0, 0.3, 1.0, 2.0})
    for (const DType dtype : {float32, float64, float16, bfloat16}) {
      const Variable x(constant({-0.0, 0.0, 1e-4, 1.0}, {.dtype = dtype}));
      GradientTape tape;
      const Tensor y = reduce_sum(nn::elu(x.value(), alpha));
      const std::vector<double> slopes = testing::values_of(tape.gradient(y, x));
      for (std::size_t i = 0; i < 4; ++i)
        EXPECT_NEAR(slopes[i], i < 2 ? alpha : 1.0, 2e-3) << alpha << ' ' << name_of(dtype);
    }
}

TEST(Activation, TheGradientOfGeluHasNoSubnormalNumbers) {
  const DeviceScope cpu("/cpu:0");  // whose operations are slow on subnormal numbers
  std::vector<double> points;
  for (int i = -2000; i <= 2000; ++i) points.push_back(0.01 * i);
  const Tensor x = constant(points, {.dtype = float32});
  GradientTape tape;
  tape.watch(x);
  for (const float each : tape.gradient(nn::gelu(x), x).to_vector<float>())
    EXPECT_TRUE(each == 0.0f || std::fabs(each) >= std::numeric_limits<float>::min()) << each;
}

}  // namespace
}  // namespace tandem::nn_activation_test
