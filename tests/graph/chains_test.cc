// Chains of element-wise operations in programs give the results of the unfused operations.
#include <gtest/gtest.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "graph/graph_support.h"
#include "graph/passes/passes.h"
#include "support/errors.h"
#include "support/gpus.h"

namespace tandem::chains_test {
namespace {

using testing::error_of;

using Tensors = std::vector<Tensor>;
using Names = std::vector<std::string>;
using Body = std::function<Tensors(const Tensors&)>;

Names fused_names(const Body& body, const Tensors& inputs) {
  Block block = block_of(inputs, body);
  fuse_elementwise(block);
  return names_of(block);
}

void expect_the_same(const Body& body, const Tensors& inputs) {
  const Tensors fused = Program(block_of(inputs, body)).run(inputs), alone = body(inputs);
  ASSERT_EQ(fused.size(), alone.size());
  for (std::size_t i = 0; i < alone.size(); ++i) {
    ASSERT_EQ(fused[i].dtype(), alone[i].dtype()) << i;
    const auto bits = [&](const Tensor& x) { return cast(x, float32).to_vector<float>(); };
    const auto a = bits(fused[i]), b = bits(alone[i]);
    for (std::size_t k = 0; k < b.size(); ++k)
      ASSERT_TRUE(a[k] == b[k] || (a[k] != a[k] && b[k] != b[k]))
          << i << ", element " << k << ": " << a[k] << " and " << b[k];
  }
}

class Chains : public ::testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(DTypes, Chains, ::testing::Values(float32, float16, bfloat16, float64),
                         [](const auto& info) { return std::string(name_of(info.param)); });

Tensor random_values(const Shape& shape, DType dtype, double scale = 3.0) {
  return cast(random::normal(shape) * scale, dtype);
}

// The operations that follow each form a chain with it.
TEST_P(Chains, FusedOperationsEqualUnfusedOnes) {
  using Unary = Tensor (*)(const Tensor&);
  const std::vector<Unary> unary = {
      [](const Tensor& x) { return negative(x); },
      [](const Tensor& x) { return abs(x); },
      [](const Tensor& x) { return sign(x); },
      [](const Tensor& x) { return square(x); },
      [](const Tensor& x) { return sqrt(abs(x)); },
      [](const Tensor& x) { return rsqrt(abs(x)); },
      [](const Tensor& x) { return reciprocal(x); },
      [](const Tensor& x) { return exp(x); },
      [](const Tensor& x) { return expm1(x); },
      [](const Tensor& x) { return sin(x); },
      [](const Tensor& x) { return cos(x); },
      [](const Tensor& x) { return pow(x, 2.0); },
      [](const Tensor& x) { return pow(x, 3.0); },
      [](const Tensor& x) { return pow(abs(x), 1.7); },
      [](const Tensor& x) { return log(abs(x)); },
      [](const Tensor& x) { return log1p(abs(x)); },
      [](const Tensor& x) { return tanh(x); },
      [](const Tensor& x) { return sigmoid(x); },
      [](const Tensor& x) { return erf(x); },
      [](const Tensor& x) { return floor(x); },
      [](const Tensor& x) { return ceil(x); },
      [](const Tensor& x) { return round(x); },
      [](const Tensor& x) { return cast(is_finite(reciprocal(floor(x))), x.dtype()); },
      [](const Tensor& x) { return x + 0.7; },
      [](const Tensor& x) { return x - 0.7; },
      [](const Tensor& x) { return 0.7 - x; },
      [](const Tensor& x) { return x / 0.7; },
      [](const Tensor& x) { return 0.7 / x; },
      [](const Tensor& x) { return maximum(x, 0.7); },
      [](const Tensor& x) { return minimum(x, 0.7); },
      [](const Tensor& x) { return clip_by_value(x, -1.1, 0.7); },
      [](const Tensor& x) { return nn::relu(x); },
      [](const Tensor& x) { return nn::relu6(x); },
      [](const Tensor& x) { return nn::leaky_relu(x); },
      [](const Tensor& x) { return nn::elu(x); },
      [](const Tensor& x) { return nn::selu(x); },
      [](const Tensor& x) { return nn::softplus(x); },
      [](const Tensor& x) { return nn::swish(x); },
      [](const Tensor& x) { return nn::gelu(x); },
      [](const Tensor& x) { return nn::gelu(x, true); }};
  using Binary = Tensor (*)(const Tensor&, const Tensor&);
  const std::vector<Binary> binary = {
      [](const Tensor& x, const Tensor& y) { return x + y; },
      [](const Tensor& x, const Tensor& y) { return x - y; },
      [](const Tensor& x, const Tensor& y) { return x * y; },
      [](const Tensor& x, const Tensor& y) { return x / y; },
      [](const Tensor& x, const Tensor& y) { return maximum(x, y); },
      [](const Tensor& x, const Tensor& y) { return minimum(x, y); },
      [](const Tensor& x, const Tensor& y) { return squared_difference(x, y); },
      [](const Tensor& x, const Tensor& y) { return pow(abs(x), y); },
      [](const Tensor& x, const Tensor& y) { return floor_divide(x, y); },
      [](const Tensor& x, const Tensor& y) { return floor_mod(x, y); },
      [](const Tensor& x, const Tensor& y) { return nn::sigmoid_cross_entropy(x, y); },
      [](const Tensor& x, const Tensor& y) { return where(equal(x, y), x, y); },
      [](const Tensor& x, const Tensor& y) { return where(less(x, y), x, -y); },
      [](const Tensor& x, const Tensor& y) { return where(less_equal(x, y), x, -y); },
      [](const Tensor& x, const Tensor& y) { return where(greater_equal(x, y), x, -y); },
      [](const Tensor& x, const Tensor& y) { return where(not_equal(x, y), x, -y); },
      [](const Tensor& x, const Tensor& y) {
        return where(logical_and(greater(x, 0.0), logical_not(greater(y, 0.0))), x, -y);
      },
      [](const Tensor& x, const Tensor& y) {
        return where(logical_or(less(x, 0.0), less_equal(y, 0.5)), x, x);
      }};
  const Tensors inputs = {random_values({3, 1003}, GetParam()),
                          random_values({3, 1003}, GetParam())};
  expect_the_same(
      [&](const Tensors& in) {
        Tensors results;
        for (const Unary each : unary) results.push_back(each(in[0]) * 0.5);
        for (const Binary each : binary) results.push_back(each(in[0], in[1]) * 0.5);
        return results;
      },
      inputs);
  if (GetParam() == float64) return;  // not supported in CUDA's chains
  for (std::size_t i = 0; i < unary.size(); ++i) {
    const Body alone = [&](const Tensors& in) -> Tensors { return {unary[i](in[0]) * 0.5}; };
    EXPECT_EQ(fused_names(alone, inputs), (Names{"_FusedElementwise"})) << i;
  }
}

TEST_P(Chains, ExcludeUnsupportedDTypes) {
  expect_the_same(
      [](const Tensors& in) -> Tensors {
        return {cast(cast(in[0] * 0.5, int32) * 3, GetParam()) + 1.0};
      },
      {random_values({3, 1003}, GetParam())});
}

TEST_P(Chains, FusedGradientsOfActivationsEqualUnfusedOnes) {
  using Unary = Tensor (*)(const Tensor&);
  const std::vector<Unary> activations = {[](const Tensor& x) { return nn::relu(x); },
                                          [](const Tensor& x) { return nn::relu6(x); },
                                          [](const Tensor& x) { return nn::leaky_relu(x); },
                                          [](const Tensor& x) { return nn::elu(x); },
                                          [](const Tensor& x) { return nn::selu(x); },
                                          [](const Tensor& x) { return nn::softplus(x); },
                                          [](const Tensor& x) { return nn::swish(x); },
                                          [](const Tensor& x) { return nn::gelu(x); },
                                          [](const Tensor& x) { return nn::gelu(x, true); },
                                          [](const Tensor& x) { return tanh(x); },
                                          [](const Tensor& x) { return sigmoid(x); }};
  const Tensors inputs = {random_values({3, 1003}, GetParam()),
                          random_values({3, 1003}, GetParam())};
  for (const Unary activation : activations)
    expect_the_same(
        [&](const Tensors& in) -> Tensors {
          GradientTape tape;
          tape.watch(in[0]);
          const Tensor y = activation(in[0] * 0.5) * in[1];
          return {tape.gradient(y, {in[0]})[0]};
        },
        inputs);
}

TEST_P(Chains, HandleScalarsAndRepeatedOperands) {
  const Tensors inputs = {random_values({129}, GetParam()), random_values({}, GetParam()),
                          random_values({129}, GetParam())};
  const Body body = [](const Tensors& in) -> Tensors {
    return {tanh((in[0] + in[1]) * in[0] - in[2] * in[2])};
  };
  expect_the_same(body, inputs);
  if (GetParam() != float64) {
    EXPECT_EQ(fused_names(body, inputs), (Names{"_FusedElementwise"}));
  }
}

// Two branches that join: the result of the first is kept until the second is computed.
TEST_P(Chains, TreesOfOperationsAreOneChain) {
  const Tensors inputs = {random_values({1000}, GetParam()), random_values({1000}, GetParam())};
  const Body body = [](const Tensors& in) -> Tensors {
    const Tensor a = tanh(in[0] * 0.5) + 1.0, b = nn::relu(in[1] - 0.25) * 3.0;
    const Tensor c = exp(in[0] - 4.0), d = square(in[1]) - 1.0;
    return {(a - b) * (c - d) + add_n({in[0] * 2.0, in[1] * 3.0, abs(in[0])})};
  };
  expect_the_same(body, inputs);
  if (GetParam() != float64) {
    EXPECT_EQ(fused_names(body, inputs), (Names{"_FusedElementwise"}));
  }
}

// More operations and operands than a kernel supports.
TEST_P(Chains, MayBeLong) {
  Tensors inputs;
  for (int i = 0; i < 20; ++i) inputs.push_back(random_values({77}, GetParam(), 1.0));
  expect_the_same(
      [](const Tensors& in) -> Tensors {
        Tensor x = in[0];
        for (int round = 0; round < 3; ++round)
          for (const Tensor& each : in) x = (x + each) * 0.5;
        return {x};
      },
      inputs);
}

TEST(ChainsOfDTypes, GoThroughCastsAndConditions) {
  const Tensors inputs = {random_values({2, 501}, float32), random_values({2, 501}, bfloat16),
                          greater(random_values({2, 501}, float32), 0.0)};
  const Body body = [](const Tensors& in) -> Tensors {
    const Tensor wide = cast(in[1] * 3.0, float32) + in[0];
    return {cast(where(logical_not(in[2]), wide, negative(in[0])), float16),
            greater(cast(in[0] * 1.7, bfloat16), 0.3), cast(cast(in[0], bool_), float32) - 1.0};
  };
  expect_the_same(body, inputs);
  EXPECT_EQ(fused_names(body, inputs), (Names(3, "_FusedElementwise")));
}

// CUDA's chains compute in float, so they do not support integers.
TEST(ChainsOfDTypes, IntegersStayExact) {
  const Tensors inputs = {constant(std::vector<std::int32_t>{16777217, -16777219, 5}),
                          constant(std::vector<std::int32_t>{3, 1, -2})};
  const Body body = [](const Tensors& in) -> Tensors { return {(in[0] + in[1]) * in[1] - in[0]}; };
  const Tensors fused = Program(block_of(inputs, body)).run(inputs);
  EXPECT_EQ(fused[0].to_vector<std::int32_t>(), body(inputs)[0].to_vector<std::int32_t>());
}

// The error is that of the first invalid element, as in eager mode, for any number of threads.
TEST(ChainsOfDTypes, ErrorsNameTheElement) {
  testing::use_gpus(0);
  config::set_intra_op_parallelism_threads(3);
  constexpr std::int64_t kCount = 100'000;
  std::vector<std::int32_t> divisors(kCount, 2);
  for (const std::size_t at : {70'001, 50'000, 99'999}) divisors[at] = 0;
  const Tensors inputs = {ones({kCount}, {.dtype = int32}), constant(divisors)};
  for (const bool modulo : {false, true}) {
    const Body body = [&](const Tensors& in) -> Tensors {
      const Tensor twice = in[0] + in[0];
      return {(modulo ? floor_mod(twice, in[1]) : floor_divide(twice, in[1])) * in[0]};
    };
    const std::string expected = error_of<InvalidArgumentError>([&] { body(inputs); });
    EXPECT_NE(expected.find("at element 50000"), std::string::npos) << expected;
    EXPECT_EQ(fused_names(body, inputs), Names{"_FusedElementwise"});
    Program program(block_of(inputs, body));
    for (int again = 0; again < 10; ++again)
      EXPECT_EQ(error_of<InvalidArgumentError>([&] { program.run(inputs); }), expected);
  }
}

TEST(Chains, OfEmptyTensorsAreEmpty) {
  const Tensor nothing = zeros({0, 4});
  expect_the_same([](const Tensors& in) -> Tensors { return {tanh(in[0] * 2.0) + 1.0}; },
                  {nothing});
}

}  // namespace
}  // namespace tandem::chains_test
