// Lowerings to StableHLO where the benchmark cases do not reach: integers, numbers that are not
// finite, tensors without elements, indices, and random numbers.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "op/lowered_run.h"
#include "ops/nn/all_finite.h"
#include "tandem/tandem.h"

namespace tandem::stablehlo_math_test {
namespace {

using testing::expect_lowered, testing::LoweredCase, testing::LoweredOptions, testing::Tensors;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Calls of functions with one and two arguments.
template <class F>
auto of_one(const F& call) {
  return [call](const Tensors& in) { return call(in[0]); };
}
template <class F>
auto of_two(const F& call) {
  return [call](const Tensors& in) { return call(in[0], in[1]); };
}
#define TANDEM_X(expression) of_one([](const Tensor& x) { return expression; })
#define TANDEM_XY(expression)                                                     \
  of_two([]([[maybe_unused]] const Tensor& x, [[maybe_unused]] const Tensor& y) { \
    return expression;                                                            \
  })

class LoweredSlow : public ::testing::Test {
 protected:
  void SetUp() override {
    TANDEM_REQUIRE(!testing::first_plugin().empty(), "pjrt");
    random::set_seed(17);
  }
};

using Calls = std::vector<std::pair<const char*, std::function<Tensor(const Tensors&)>>>;

void expect_calls(const std::string& of, const Tensors& inputs, const Calls& calls,
                  const LoweredOptions& options = {}) {
  std::vector<LoweredCase> cases;
  for (const auto& [name, call] : calls)
    cases.push_back({fmt::format("{} {}", of, name), inputs, call, options});
  expect_lowered(cases);
}

// --- integers ---

// Each is computed in its own type, and wraps.
const Calls kIntegerCalls = {
    {"add", TANDEM_XY(x + y)},
    {"subtract", TANDEM_XY(x - y)},
    {"multiply", TANDEM_XY(x* y)},
    {"floor_divide", TANDEM_XY(floor_divide(x, y))},
    {"floor_mod", TANDEM_XY(floor_mod(x, y))},
    {"maximum", TANDEM_XY(maximum(x, y))},
    {"minimum", TANDEM_XY(minimum(x, y))},
    {"squared_difference", TANDEM_XY(squared_difference(x, y))},
    {"pow", TANDEM_XY(pow(x, abs(y)))},
    {"cube", TANDEM_X(pow(x, 3.0))},
    {"abs", TANDEM_X(abs(x))},
    {"sign", TANDEM_X(sign(x))},
    {"less", TANDEM_XY(less(x, y))},
    {"equal", TANDEM_X(equal(x, 7.0))},
    {"divide", TANDEM_XY(x / y)},
    {"subtract from", TANDEM_X(3.0 - x)},
    {"clip", TANDEM_X(clip_by_value(x, 1, 6))},
    {"add_n", TANDEM_XY(add_n({x, y, x}))},
    {"sum", TANDEM_X(reduce_sum(x))},
    {"prod", TANDEM_X(reduce_prod(x))},
    {"max", TANDEM_X(reduce_max(x))},
    {"min", TANDEM_X(reduce_min(x))},
    {"argmax", TANDEM_X(argmax(x, 0))},
    {"argmin", TANDEM_X(argmin(x, 0))},
    {"cumsum", TANDEM_X(cumsum(x))},
    {"to bool", TANDEM_X(cast(x, bool_))},
    {"to float16", TANDEM_X(cast(x, float16))},
    {"to uint8", TANDEM_X(cast(x, uint8))},
    {"to int32", TANDEM_X(cast(x, int32))},
    {"where", TANDEM_XY(where(less(x, y), x, y))},
    {"tile", TANDEM_X(tile(x, {3}))},
    {"pad", TANDEM_X(pad(x, {{1, 2}}, 3.0))},
};

TEST_F(LoweredSlow, IntegersOfSigns) {
  const std::vector<std::int64_t> a = {-7, 7, -6, 6, 0, -1, 2147483647, -2147483647};
  const std::vector<std::int64_t> b = {2, -2, 3, -3, 5, 7, 2, 3};
  for (const DType dtype : {int32, int64})
    expect_calls(std::string(name_of(dtype)), {cast(constant(a), dtype), cast(constant(b), dtype)},
                 kIntegerCalls);
}

TEST_F(LoweredSlow, IntegersOfBytes) {
  const std::vector<std::int64_t> a = {0, 1, 7, 200, 255, 13, 100, 3},
                                  b = {3, 2, 2, 7, 255, 5, 9, 3};
  expect_calls("uint8", {cast(constant(a), uint8), cast(constant(b), uint8)}, kIntegerCalls);
}

// --- floating numbers ---

const Calls kFloatCalls = {
    {"add", TANDEM_XY(x + y)},
    {"divide", TANDEM_XY(x / y)},
    {"floor_divide", TANDEM_XY(floor_divide(x, y))},
    {"floor_mod", TANDEM_XY(floor_mod(x, y))},
    {"maximum", TANDEM_XY(maximum(x, y))},
    {"minimum", TANDEM_XY(minimum(x, y))},
    {"pow", TANDEM_XY(pow(x, y))},
    {"pow -1", TANDEM_X(pow(x, -1.0))},
    {"pow 0.5", TANDEM_X(pow(x, 0.5))},
    {"maximum 0", TANDEM_X(maximum(x, 0.0))},
    {"equal", TANDEM_XY(equal(x, y))},
    {"not_equal", TANDEM_XY(not_equal(x, y))},
    {"less", TANDEM_XY(less(x, y))},
    {"exp", TANDEM_X(exp(x))},
    {"expm1", TANDEM_X(expm1(x))},
    {"log", TANDEM_X(log(x))},
    {"log1p", TANDEM_X(log1p(x))},
    {"sqrt", TANDEM_X(sqrt(x))},
    {"rsqrt", TANDEM_X(rsqrt(x))},
    {"sin", TANDEM_X(sin(x))},
    {"tanh", TANDEM_X(tanh(stop_gradient(x)))},
    {"sigmoid", TANDEM_X(sigmoid(x))},
    {"erf", TANDEM_X(erf(x))},
    {"sign", TANDEM_X(sign(x))},
    {"round", TANDEM_X(round(x))},
    {"floor", TANDEM_X(floor(x))},
    {"ceil", TANDEM_X(ceil(x))},
    {"is_nan", TANDEM_X(is_nan(x))},
    {"is_finite", TANDEM_X(is_finite(x))},
    {"clip", TANDEM_X(clip_by_value(x, -1.0, 2.0))},
    {"relu", TANDEM_X(nn::relu(x))},
    {"relu6", TANDEM_X(nn::relu6(x))},
    {"leaky_relu", TANDEM_X(nn::leaky_relu(x))},
    {"elu", TANDEM_X(nn::elu(x))},
    {"selu", TANDEM_X(nn::selu(x))},
    {"swish", TANDEM_X(nn::swish(x))},
    {"softplus", TANDEM_X(nn::softplus(x))},
    {"softmax", TANDEM_X(nn::softmax(x))},
    {"sum", TANDEM_X(reduce_sum(x))},
    {"max", TANDEM_X(reduce_max(stop_gradient(x)))},  // XLA's 0 * NaN may be 0
    {"min", TANDEM_X(reduce_min(stop_gradient(x)))},
    {"argmax", TANDEM_X(argmax(x, 0))},
    {"argmin", TANDEM_X(argmin(x, 0))},
    {"to bool", TANDEM_X(cast(x, bool_))},
    {"to float16", TANDEM_X(cast(x, float16))},
    {"to bfloat16", TANDEM_X(cast(x, bfloat16))},
    {"all_finite", TANDEM_XY(all_finite({x, y}))},
    {"all_finite of finite ones", TANDEM_X(all_finite({slice(x, {3}, {4}), zeros({2})}))},
};

// The elements differ too much in size to bound errors by the largest one. The gradient of tanh
// cancels, and amplifies the errors of XLA's.
TEST_F(LoweredSlow, NumbersThatAreNotFinite) {
  const std::vector<double> numbers = {-kInfinity, kInfinity, std::nan(""), 0.0,  -0.0, 1.0,  -1.0,
                                       0.5,        1.5,       2.5,          -0.5, -1.5, -2.5, 3.7,
                                       -3.7,       1e-3,      65504.0,      1e-7, 20.0, -20.0};
  for (const DType dtype : {float32, float64, float16, bfloat16}) {
    const Tensor x = cast(constant(numbers), dtype);
    expect_calls(std::string(name_of(dtype)), {x, reverse(x, {0})}, kFloatCalls,
                 {.ulps = size_of(dtype) == 2 ? 2.0 : 64.0, .sums = 0.0});
  }
}

TEST_F(LoweredSlow, NumbersAsIntegers) {
  const Tensor x = constant(std::vector<double>{0.0, -0.9, 1.9, 255.0, -1.0, -255.5, 100.7});
  expect_calls("cast", {x},
               {{"int32", TANDEM_X(cast(x, int32))},
                {"int64", TANDEM_X(cast(x, int64))},
                {"uint8", TANDEM_X(cast(x, uint8))}});
}

// --- tensors without elements ---

TEST_F(LoweredSlow, ReductionsOfNothing) {
  expect_calls("of (0, 3)", {zeros({0, 3})},
               {{"sum", TANDEM_X(reduce_sum(x))},
                {"sum of rows", TANDEM_X(reduce_sum(x, {.axis = {1}}))},
                {"sum of columns", TANDEM_X(reduce_sum(x, {.axis = {0}}))},
                {"mean", TANDEM_X(reduce_mean(x))},
                {"prod", TANDEM_X(reduce_prod(x, {.axis = {0}}))},
                {"max", TANDEM_X(reduce_max(x))},
                {"any", TANDEM_X(reduce_any(less(x, 0.0)))},
                {"variance", TANDEM_X(reduce_variance(x, {.axis = {0}}))},
                {"norm", TANDEM_X(norm(x))},
                {"argmax", TANDEM_X(argmax(x, 1))},
                {"cumsum", TANDEM_X(cumsum(x, 1))},
                {"all_finite", TANDEM_X(all_finite({x}))}});
}

TEST_F(LoweredSlow, ArraysOfNothing) {
  const Tensor nothing = zeros({0, 3}), columns = zeros({3, 0});
  expect_calls("of (0, 3) and (3, 0)", {nothing, columns},
               {{"product", TANDEM_XY(matmul(x, y))},
                {"product over nothing", TANDEM_XY(matmul(y, x))},
                {"softmax", TANDEM_XY(nn::softmax(y))},
                {"concat", TANDEM_X(concat({x, ones({2, 3})}, 0))},
                {"stack", TANDEM_X(stack({x, x}))},
                {"pad", TANDEM_X(pad(x, {{1, 0}, {0, 1}}, 2.0))},
                {"tile", TANDEM_X(tile(x, {2, 2}))},
                {"reverse", TANDEM_X(reverse(x, {0, 1}))},
                {"transpose", TANDEM_X(transpose(x))},
                {"gather", TANDEM_XY(gather(y, zeros({0}, {.dtype = int64})))},
                {"one_hot", TANDEM_X(one_hot(cast(x, int32), 3))},
                {"dropout", TANDEM_X(nn::dropout(x, 0.5))},
                {"range", TANDEM_X(x + reshape(range(0.0, 0.0), {0, 1}))},
                {"linspace", TANDEM_X(x + reshape(linspace(0.0, 1.0, 0), {0, 1}))},
                {"uniform", TANDEM_X(x + random::uniform({0, 3}))}});
  expect_calls(
      "of (2, 3)", {ones({2, 3})},
      {{"slice", TANDEM_X(slice(x, {1, 0}, {0, 3}))}, {"tile", TANDEM_X(tile(x, {0, 2}))}});
}

// --- indices ---

TEST_F(LoweredSlow, Indices) {
  const auto indices = [](const std::vector<std::int64_t>& of, const Shape& shape = {}) {
    return constant(of, {.shape = shape});
  };
  for (const DType dtype : {float32, bfloat16}) {
    const Tensor x = cast(random::normal({5, 4, 6}), dtype);
    expect_calls(
        std::string(name_of(dtype)), {x},
        {{"gather",
          [=](const Tensors& in) {
            return gather(in[0], indices({0, 4, 4, 2}, {2, 2}));
          }},
         {"gather along axis 1",
          [=](const Tensors& in) {
            return gather(in[0], indices({0, 3, 3}), 1);
          }},
         {"gather along the last axis by int32",
          [=](const Tensors& in) {
            return gather(in[0], cast(indices({5, 0}), int32), -1);
          }},
         {"embedding_lookup",
          [=](const Tensors& in) {
            return nn::embedding_lookup(in[0], indices({4, 4, 4, 1}));
          }},
         {"one_hot of indices out of range",
          [=](const Tensors&) {
            return one_hot(indices({-1, 0, 3, 9}), 4, OneHotOptions{.on = 2.0, .off = -1.0});
          }},
         {"slice", TANDEM_X(slice(x, {1, 0, 2}, {3, 4, 2}))},
         {"slice_rows", TANDEM_X(slice_rows(x, 1, 4))},
         {"split", TANDEM_X(split(x, std::vector<std::int64_t>{1, 3, 2}, -1)[1])},
         {"unstack", TANDEM_X(unstack(x, 1)[2] * unstack(x, 1)[3])},
         {"stack", TANDEM_X(stack({x, x}, -1))},
         {"transpose", TANDEM_X(transpose(x, {2, 0, 1}))},
         {"reverse", TANDEM_X(reverse(x, {-1, 0}))},
         {"max of equal ones", TANDEM_X(reduce_max(round(x), {.axis = {1, 2}}))},
         {"products with zeros", TANDEM_X(reduce_prod(round(x), {.axis = {0, 2}}))}});
  }
}

// Sequences and means depend on them.
TEST_F(LoweredSlow, SizesThatTheTraceDoesNotKnow) {
  expect_lowered("sizes",
                 [](const Tensors& in) {
                   const Dim rows = in[0].dim(0);
                   return Tensors{range(rows), range(rows, {.dtype = float32}), zeros({rows, 2}),
                                  reduce_mean(in[0]), nn::dropout(in[0], 0.4)};
                 },
                 {random::normal({7, 3})}, {.traces_sizes = true});
}

TEST_F(LoweredSlow, Sequences) {
  expect_lowered("sequences",
                 [](const Tensors&) {
                   return Tensors{range(-3.0, 4.0, 0.3),
                                  range(-3.0, 4.0, 0.3, {.dtype = bfloat16}),
                                  range(200.0, 0.0, -7.0, {.dtype = uint8}),
                                  range(5'000'000'000.0, 5'000'000'004.0, 1.0, {.dtype = int64}),
                                  linspace(0.0, 1.0, 1),
                                  linspace(0.1, 0.7, 2),
                                  linspace(-1.0, 0.7, 3000),
                                  linspace(-1.0, 0.7, 30, {.dtype = float64})};
                 },
                 {});
}

// --- random numbers ---

// The random bits are the same. Numbers differ by functions of the plug-in, whose errors are
// largest relative to results that cancel.
TEST_F(LoweredSlow, RandomNumbers) {
  for (const DType dtype : {float32, float64, float16, bfloat16})
    for (const Shape& shape : {Shape{}, Shape{1}, Shape{63}, Shape{5, 129}})
      expect_lowered(fmt::format("{} {}", name_of(dtype), shape.to_string()),
                     [&](const Tensors&) {
                       const random::Options of{.dtype = dtype};
                       return Tensors{random::uniform(shape, -3.0, 0.25, of),
                                      random::uniform(shape, 1.0, 1.0078125, of),
                                      random::normal(shape, 1.0, 2.0, of),
                                      random::truncated_normal(shape, 1.0, 2.0, of),
                                      random::bernoulli(shape, 0.3, of),
                                      random::bernoulli(shape, 0.0, of),
                                      random::bernoulli(shape, 1.0, of),
                                      nn::dropout(ones(shape, {.dtype = dtype}), 0.3)};
                     },
                     {}, {.ulps = 2.0, .sums = 2.0, .runs = 2});
}

TEST_F(LoweredSlow, RandomIntegers) {
  constexpr std::int64_t kFar = 9'000'000'000'000'000'000;
  expect_lowered("integers",
                 [](const Tensors&) {
                   return Tensors{
                       random::uniform_int({5, 129}, 0, 200, {.dtype = uint8}),
                       random::uniform_int({33}, -2'000'000'000, 2'000'000'000, {.dtype = int32}),
                       random::uniform_int({33}, -kFar, 3, {.dtype = int64}),
                       random::uniform_int({33}, -(1LL << 40), kFar, {.dtype = int64}),
                       random::permutation(0),
                       random::permutation(1),
                       random::permutation(2),
                       random::permutation(1000),
                       random::shuffle(range(40))};
                 },
                 {}, {.runs = 2});
}

}  // namespace
}  // namespace tandem::stablehlo_math_test
