// The contract of td::function: variables, signatures and where it may be called.
#include <gtest/gtest.h>

#include <cmath>
#include <sstream>
#include <utility>

#include "support/tensors.h"
#include "tandem/tandem.h"

namespace tandem::function_contract_test {
namespace {

using testing::expect_error;

TEST(FunctionContract, VariablesMayBeCreatedInTheFirstCall) {
  Variable v;
  const auto step = function([&](const Tensor& x) {
    if (!v.defined()) v = Variable(multiply(ones({2}), 3.0), {.name = "v"});
    v.assign_add(x);
    return v.value();
  });
  EXPECT_EQ(step(constant({1.0f, 2.0f})).to_vector<float>(), (std::vector<float>{4, 5}));
  EXPECT_EQ(step(constant({1.0f, 2.0f})).to_vector<float>(), (std::vector<float>{5, 7}));
}

TEST(FunctionContract, CreatingVariablesInEachCallThrows) {
  const auto step = function([](const Tensor& x) {
    const Variable v(zeros({2}), {.name = "mine"});
    return x + v;
  });
  expect_error<InvalidArgumentError>(
      [&] {
        step(constant({1.0f, 2.0f}));
      },
      "tf.function-decorated function tried to create variables on non-first call.");
  Variable late;
  bool make = false;
  const auto other = function([&](const Tensor& x) {
    if (make) late = Variable(zeros({2}), {.name = "late"});
    return x;
  });
  other(constant({1.0f, 2.0f}));
  make = true;
  expect_error<InvalidArgumentError>([&] { other(constant({1.0f})); }, "'late'");
}

TEST(FunctionContract, AnInitialValueMayNotDependOnTheArguments) {
  Variable v;
  const auto step = function([&](const Tensor& x) {
    if (!v.defined()) v = Variable(x * 2.0, {.name = "v"});
    return v.value();
  });
  expect_error<InvalidArgumentError>([&] { step(constant({1.0f})); },
                                     "depends on the arguments of the function");
}

TEST(FunctionContract, LayersAreBuiltInTheFirstCallAsInEagerMode) {
  const Tensor x = ones({2, 3});
  const auto run = [&](bool traced) {
    random::set_seed(4);
    Sequential model({layers::Dense(4, {.activation = "relu"}), layers::Dense(2)});
    const auto forward = [&](const Tensor& input) { return model(input); };
    const auto replayed = function(forward);
    return (traced ? replayed(x) : forward(x)).to_vector<float>();
  };
  EXPECT_EQ(run(true), run(false));
}

TEST(FunctionContract, OneTraceServesEverySizeOfItsSignature) {
  int traced = 0;
  const Variable w(constant({1.0f, 2.0f, 3.0f}));
  const auto apply = function(
      [&](const Tensor& x) {
        ++traced;
        return reduce_sum(x * w, {.axis = Dims{1}}) + 1.0;
      },
      {.input_signature = {{.shape = {-1, 3}}}});
  EXPECT_EQ(apply(ones({2, 3})).to_vector<float>(), (std::vector<float>{7, 7}));
  EXPECT_EQ(apply(ones({1, 3})).to_vector<float>(), (std::vector<float>{7}));
  EXPECT_EQ(apply(ones({4, 3})).shape(), Shape({4}));
  EXPECT_EQ(traced, 1);
  expect_error<InvalidArgumentError>(
      [&] {
        apply(ones({2, 4}));
      },
      "expected shape (?, 3) and dtype float32, got (2, 4)");
  expect_error<InvalidArgumentError>(
      [&] {
        apply(ones({2, 3}, {.dtype = float64}));
      },
      "does not suit input_signature");
}

// Trains on batches of several sizes, traced for each or once for all.
std::vector<float> train(const Sequential& model, const Shape& example, bool free_sizes) {
  int traced = 0;
  Sequential trained = model;
  optimizers::Optimizer optimizer = optimizers::SGD({.learning_rate = 0.05});
  FunctionOptions options;
  if (free_sizes)
    options.input_signature = {{.shape = example.with_leading(-1)},
                               {.shape = {-1}, .dtype = int32}};
  const auto step = function(
      [&](const Tensor& x, const Tensor& y) {
        ++traced;
        const Tensor losses = nn::sparse_softmax_cross_entropy(y, trained(x, {.training = true}));
        const Tensor loss = reduce_mean(losses) + nn::compute_average_loss(losses);
        optimizer.minimize(loss, trained.trainable_variables());
        return loss;
      },
      options);
  std::vector<float> results;
  for (std::int64_t size : {4, 7, 4, 1, 9, 7}) {
    random::set_seed(static_cast<std::uint64_t>(size));
    const Tensor x = random::normal(example.with_leading(size));
    results.push_back(step(x, random::uniform_int({size}, 0, 3)).item<float>());
  }
  EXPECT_EQ(traced, free_sizes ? 1 : 4);
  for (const Variable& variable : trained.variables())
    for (float value : variable.value().to_vector<float>()) results.push_back(value);
  return results;
}

void expect_close(const std::vector<float>& a, const std::vector<float>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i)
    EXPECT_NEAR(a[i], b[i], 1e-5f * std::max(1.0f, std::abs(b[i])));
}

TEST(FunctionContract, APerceptronTrainsWithOneTraceForEverySize) {
  const auto make = [] {
    random::set_seed(3);
    return Sequential({layers::Flatten({.input_shape = {2, 4}}),
                       layers::Dense(8, {.activation = "relu"}), layers::Dropout(0.2),
                       layers::BatchNormalization(), layers::Dense(3)});
  };
  expect_close(train(make(), {2, 4}, true), train(make(), {2, 4}, false));
}

TEST(FunctionContract, AConvolutionalNetTrainsWithOneTraceForEverySize) {
  const auto make = [] {
    random::set_seed(3);
    return Sequential({layers::Conv2D(4, 3, {.activation = "relu", .input_shape = {8, 8, 1}}),
                       layers::BatchNormalization(), layers::MaxPooling2D(2), layers::Flatten(),
                       layers::Dense(3)});
  };
  expect_close(train(make(), {8, 8, 1}, true), train(make(), {8, 8, 1}, false));
}

// The size of a concat is the sum of its inputs, also if these are unknown.
TEST(FunctionContract, JoinedTensorsOfAnySizeHaveGradients) {
  int traced = 0;
  const auto slopes = [&](const Tensor& x, const Tensor& y) {
    ++traced;
    GradientTape tape({.persistent = true});
    tape.watch(x);
    tape.watch(y);
    const Tensor joined = concat({x, y, x * 2.0}, 0);
    const Tensor twice = concat({joined, joined * 3.0}, 0);
    const Tensor loss = reduce_sum(square(twice));
    return std::pair(tape.gradient(loss, x), tape.gradient(loss, y));
  };
  const auto replayed =
      function(slopes, {.input_signature = {{.shape = {-1, 2}}, {.shape = {-1, 2}}}});
  for (const auto& [a, b] : std::vector<std::pair<std::int64_t, std::int64_t>>{{2, 3}, {4, 1}}) {
    const Tensor x = full({a, 2}, 1.5), y = full({b, 2}, -0.5);
    const auto [dx, dy] = replayed(x, y);
    EXPECT_EQ(dx.to_vector<float>(),
              std::vector<float>(static_cast<std::size_t>(2 * a), 2 * 1.5f * 5 * 10));
    EXPECT_EQ(dy.to_vector<float>(),
              std::vector<float>(static_cast<std::size_t>(2 * b), 2 * -0.5f * 10));
  }
  EXPECT_EQ(traced, 1);
}

TEST(FunctionContract, GradientsCanBeComputedOutsideTheCall) {
  const Variable w(constant({2.0f, 3.0f}));
  const auto loss = function([&](const Tensor& x) { return reduce_sum(square(x * w)); });
  const Tensor x = constant({1.0f, -1.0f});
  EXPECT_EQ(loss(x).item<float>(), 13.0f);
  GradientTape tape;
  EXPECT_EQ(tape.gradient(loss(x), w).to_vector<float>(), (std::vector<float>{4, 6}));
  Tensor marked = constant({1.0f, -1.0f});
  marked.set_requires_grad();
  loss(marked).backward();
  EXPECT_EQ(marked.grad().to_vector<float>(), (std::vector<float>{8, -18}));
}

TEST(FunctionContract, WarnsAboutRepeatedTracing) {
  const auto scaled =
      function([](const Tensor& x, double by) { return x * by; }, {.name = "scaled"});
  const Tensor x = constant({1.0f});
  const auto said = [&](int from, int to) {
    ::testing::internal::CaptureStderr();
    for (int i = from; i < to; ++i) scaled(x, static_cast<double>(i));
    return ::testing::internal::GetCapturedStderr();
  };
  EXPECT_EQ(said(0, 4), "");
  EXPECT_NE(said(4, 5).find("5 of the last 5 calls of scaled were traced anew"), std::string::npos);
  EXPECT_NE(said(5, 6), "");
  EXPECT_EQ(said(6, 12), "");  // warned twice already
}

TEST(FunctionContract, NestedResultsAndAbsentTensors) {
  const auto parts = function([](const std::vector<Tensor>& given, const std::string& mode) {
    std::vector<Tensor> result = {given[0] * 2.0, Tensor()};
    if (mode == "both") result[1] = given[1] * 3.0;
    return std::pair(result, 7);
  });
  const std::vector<Tensor> given = {constant({1.0f}), constant({2.0f})};
  const auto [one, seven] = parts(given, std::string("one"));
  EXPECT_EQ(one[0].item<float>(), 2.0f);
  EXPECT_FALSE(one[1].defined());
  EXPECT_EQ(seven, 7);
  EXPECT_EQ(parts(given, std::string("both")).first[1].item<float>(), 6.0f);
  EXPECT_EQ(
      parts(std::vector<Tensor>{given[0], Tensor()}, std::string("one")).first[0].item<float>(),
      2.0f);
  EXPECT_EQ(parts.num_traces(), 3u);
}

// --- concrete functions ---

TEST(ConcreteFunction, IsTracedAtOnceForItsSpecs) {
  int traces = 0;
  const auto product = function(
      [&](const Tensor& x, const Tensor& y) {
        ++traces;
        return matmul(x, y);
      },
      {.name = "product"});
  const auto concrete =
      product.get_concrete_function(TensorSpec({2, -1}, float32), TensorSpec({3, 2}));
  EXPECT_EQ(traces, 1);
  EXPECT_EQ(product.num_traces(), 0u);
  EXPECT_EQ(concrete(ones({2, 3}), ones({3, 2})).to_vector<float>(), (std::vector<float>(4, 3.0f)));
  EXPECT_EQ(traces, 1);
  expect_error<InvalidArgumentError>(
      [&] {
        concrete(ones({2, 3}), ones({3, 1}));
      },
      "[product] tensor 1 of the arguments");
}

TEST(ConcreteFunction, PrintsItsSignature) {
  const auto f = function(
      [](const Tensor& x, const Tensor& n) {
        return std::pair{x * 2.0, n};
      },
      {.name = "f"});
  const auto concrete =
      f.get_concrete_function(TensorSpec({-1, 4}, float64), constant(1, {.dtype = int64}));
  std::ostringstream out;
  out << concrete;
  EXPECT_EQ(out.str(), "f(float64 (?, 4), int64 ()) -> (float64 (?, 4), int64 ())");
  EXPECT_EQ(concrete.inputs().size(), 2u);
  EXPECT_EQ(concrete.outputs()[0].dtype, float64);
  EXPECT_EQ(concrete.name(), "f");
}

TEST(ConcreteFunction, TakesTheSpecsOfTheInputSignature) {
  const auto f = function([](const Tensor& x) { return x + 1.0; },
                          {.input_signature = {TensorSpec({}, float32)}});
  EXPECT_EQ(f.get_concrete_function()(constant(1.0f)).item<float>(), 2.0f);
  const auto g = function([](const Tensor& x) { return x + 1.0; });
  expect_error<InvalidArgumentError>([&] { g.get_concrete_function(); },
                                     "the function takes 1 tensors, input_signature has 0");
}

TEST(ConcreteFunction, AssignsVariablesInCallsOnly) {
  Variable v(ones({}), {.name = "v"});
  const auto f = function([&] {
    v.assign_add(ones({}));
    return v.value();
  });
  const auto concrete = f.get_concrete_function();
  EXPECT_EQ(v.value().item<float>(), 1.0f);
  EXPECT_EQ(concrete().item<float>(), 2.0f);
  EXPECT_EQ(concrete().item<float>(), 3.0f);
}

TEST(FunctionContract, JitCompileIsTrueOrAbsent) {
  const auto twice = [](const Tensor& x) { return x * 2.0; };
  EXPECT_EQ(function(twice, {.jit_compile = true})(constant(2.0f)).item<float>(), 4.0f);
  expect_error<InvalidArgumentError>([&] { function(twice, {.jit_compile = false}); },
                                     "[function] jit_compile = false: a traced function is always "
                                     "compiled");
}

TEST(FunctionContract, FunctionsRunEagerlyWhenAsked) {
  int runs = 0;
  const auto sum = function([&](const Tensor& x) {
    ++runs;
    return x + x.item<float>();  // throws while it is traced
  });
  config::run_functions_eagerly(true);
  EXPECT_TRUE(config::functions_run_eagerly());
  EXPECT_EQ(sum(constant(1.0f)).item<float>(), 2.0f);
  EXPECT_EQ(sum(constant(2.0f)).item<float>(), 4.0f);
  EXPECT_EQ(runs, 2);
  EXPECT_EQ(sum.num_traces(), 0u);
  config::run_functions_eagerly(false);
  expect_error<FailedPreconditionError>([&] { sum(constant(1.0f)); }, "");
}

}  // namespace
}  // namespace tandem::function_contract_test
