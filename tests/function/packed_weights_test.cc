// Weights that programs keep in the layout of their kernels.
#include <gtest/gtest.h>

#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "core/parallel.h"
#include "ops/array/array_ops.h"
#include "runtime/variable_impl.h"
#include "support/strategies.h"
#include "tandem/tandem.h"

namespace tandem::packed_weights_test {
namespace {

using Floats = std::vector<float>;

std::int64_t weights_in_use() { return config::get_memory_info("CPU:0").by_tag.weights; }

Floats bits(const Tensor& tensor) { return cast(tensor, float32).to_vector<float>(); }

// The bytes of a graph with a convolution of constant weights, from "x:0" to "y:0".
std::string frozen_convolution(const Variable& kernel) {
  Graph graph;
  Tensor y;
  {
    const GraphScope building(graph);
    y = identity(nn::conv2d(placeholder(float32, {-1, 8, 8, 16}, "x"), kernel), {.name = "y"});
  }
  return graph.serialize({.freeze_variables = true, .outputs = {y}});
}

TEST(PackedWeights, AFrozenGraphPacksAKernelOnce) {
  const DeviceScope cpu("/cpu:0");
  const Variable kernel(random::normal({3, 3, 16, 32}));
  const Tensor x = random::normal({2, 8, 8, 16});
  const Graph graph = Graph::deserialize(frozen_convolution(kernel));
  const std::int64_t before = weights_in_use();
  {
    Session session(graph);
    const Floats expected = bits(nn::conv2d(x, kernel));
    EXPECT_EQ(bits(session.run({{"x:0", x}}, "y:0")), expected);
    const std::int64_t packed = weights_in_use() - before;
    EXPECT_GE(packed, 3 * 3 * 16 * 32 * 4);
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i)
      threads.emplace_back([&] {
        for (int call = 0; call < 20; ++call)
          EXPECT_EQ(bits(session.run({{"x:0", x}}, "y:0")), expected);
      });
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(weights_in_use() - before, packed);
  }
  EXPECT_EQ(weights_in_use(), before);
}

// Float16 has no instructions on any CPU; the numbers are widened once, and packed.
TEST(PackedWeights, AFrozenGraphWidensFloat16Once) {
  const DeviceScope cpu("/cpu:0");
  const Variable kernel(cast(random::normal({3, 3, 16, 32}), float16));
  const Variable matrix(cast(random::normal({64, 48}), float16));
  Graph graph;
  {
    const GraphScope building(graph);
    const Tensor x = placeholder(float16, {-1, 8, 8, 16}, "x"), rows = reshape(x, {-1, 64});
    identity(nn::conv2d(x, kernel), {.name = "y"});
    identity(matmul(rows, matrix), {.name = "z"});
  }
  const Graph loaded =
      Graph::deserialize(graph.serialize({.freeze_variables = true, .outputs = {"y:0", "z:0"}}));
  const std::int64_t before = weights_in_use();
  {
    Session session(loaded);
    std::int64_t once = 0;
    for (const std::int64_t images : {2, 2, 5, 2}) {
      const Tensor x = cast(random::normal({images, 8, 8, 16}), float16);
      const std::vector<Tensor> results = session.run({{"x:0", x}}, {"y:0", "z:0"});
      EXPECT_EQ(bits(results[0]), bits(nn::conv2d(x, kernel)));
      const Floats expected = bits(matmul(reshape(x, {-1, 64}), matrix)), z = bits(results[1]);
      for (std::size_t i = 0; i < z.size(); ++i) ASSERT_NEAR(z[i], expected[i], 0.04) << i;
      if (once == 0) once = weights_in_use() - before;
      EXPECT_GE(once, (3 * 3 * 16 * 32 + 64 * 48) * 4);
      EXPECT_EQ(weights_in_use() - before, once);  // all programs share them
    }
  }
  EXPECT_EQ(weights_in_use(), before);
}

TEST(PackedWeights, AVariableIsPackedOnceUntilItIsWritten) {
  const DeviceScope cpu("/cpu:0");
  Variable kernel(random::normal({3, 3, 16, 32}));
  const Tensor x = random::normal({2, 8, 8, 16});
  const std::int64_t before = weights_in_use();
  {
    const auto infer = function([&](const Tensor& images) { return nn::conv2d(images, kernel); });
    const NoGradScope no_grad;
    infer(x);
    EXPECT_EQ(weights_in_use(), before);  // it may be written before the next call
    infer(x);
    EXPECT_GE(weights_in_use() - before, 3 * 3 * 16 * 32 * 4);
    kernel.assign(kernel + 1.0);
    infer(x);
    EXPECT_EQ(weights_in_use(), before);
    infer(x);
    EXPECT_GE(weights_in_use() - before, 3 * 3 * 16 * 32 * 4);
  }
  EXPECT_EQ(weights_in_use(), before);
}

TEST(PackedWeights, StepsThatTrainKeepNone) {
  const DeviceScope cpu("/cpu:0");
  Variable kernel(random::normal({3, 3, 16, 32}));
  optimizers::Optimizer sgd = optimizers::SGD({.learning_rate = 0.01});
  const Tensor x = random::normal({2, 8, 8, 16});
  const auto step = function([&](const Tensor& images) {
    const Tensor loss = reduce_mean(square(nn::conv2d(images, kernel)));
    sgd.minimize(loss, {kernel});
    return loss;
  });
  step(x);
  const std::int64_t before = weights_in_use();
  for (int i = 0; i < 4; ++i) step(x);
  EXPECT_EQ(weights_in_use(), before);
}

// A convolution and a large product, in one program or eagerly.
struct Weights {
  Variable kernel, matrix;
  Tensor images, rows;

  explicit Weights(DType dtype = float32)
      : kernel(cast(random::normal({3, 3, 16, 32}), dtype)),
        matrix(cast(random::normal({1024, 1024}), dtype)),
        images(cast(random::normal({2, 8, 8, 16}), dtype)),
        rows(cast(random::normal({128, 1024}), dtype)) {}

  Tensor results(const Tensor& x) const {
    const Tensor a = nn::conv2d(x, kernel), b = matmul(rows, matrix);
    return concat({reshape(a, {-1}), reshape(b, {-1})}, 0);
  }
};

// Writes between calls, which find a copy of the weights in use.
void expect_current(Weights& weights, const std::function<void()>& write) {
  const auto infer = function([&](const Tensor& x) { return weights.results(x); });
  Floats last;
  for (int round = 0; round < 3; ++round) {
    const Floats expected = bits(weights.results(weights.images));
    EXPECT_NE(expected, last);
    for (int call = 0; call < 3; ++call) EXPECT_EQ(bits(infer(weights.images)), expected);
    last = expected;
    write();
  }
}

TEST(PackedWeights, CallsSeeAssignments) {
  Weights weights;
  expect_current(weights, [&] { weights.kernel.assign(weights.kernel * 0.5); });
  expect_current(weights, [&] { weights.matrix.assign_add(ones({1024, 1024})); });
  expect_current(weights, [&] { weights.matrix.assign(random::normal({1024, 1024})); });
  const auto in_function = function([&] { weights.kernel.assign_sub(ones({3, 3, 16, 32})); });
  expect_current(weights, [&] { in_function(); });
  expect_current(weights, [&] {
    assign_slice(weights.matrix.impl().memory(0), random::normal({8, 1024}),
                 constant(16, {.dtype = int64}), 0);
  });
  expect_current(weights,
                 [&] { std::thread([&] { weights.kernel.assign(weights.kernel + 1.0); }).join(); });
}

TEST(PackedWeights, CallsSeeUpdates) {
  Weights weights;
  optimizers::Optimizer adam = optimizers::Adam({.learning_rate = 0.01});
  const auto step = [&] {
    GradientTape tape;
    const Tensor loss = reduce_mean(square(weights.results(weights.images)));
    const std::vector<Variable> variables = {weights.kernel, weights.matrix};
    adam.apply_gradients(tape.gradient(loss, variables), variables);
  };
  expect_current(weights, step);
  const auto traced = function(step);
  expect_current(weights, [&] { traced(); });
}

// Reads a kernel, writes it and reads it again.
std::vector<Tensor> around(const Tensor& images, Variable& kernel, bool in_branch) {
  const Tensor before = nn::conv2d(images, kernel);
  const auto write = [&] { kernel.assign(kernel * 0.5); };
  if (in_branch)
    cond(greater(reduce_sum(abs(images)), 0.0), write, [] {});
  else
    write();
  return {before, nn::conv2d(images, kernel)};
}

TEST(PackedWeights, CallsSeeTheWritesOfTheirOwnProgram) {
  const Tensor images = random::normal({2, 8, 8, 16});
  for (const bool in_branch : {false, true}) {
    Variable kernel(random::normal({3, 3, 16, 32})), other(kernel.value());
    const auto traced = function([&](const Tensor& x) { return around(x, kernel, in_branch); });
    for (int call = 0; call < 4; ++call) {
      const std::vector<Tensor> expected = around(images, other, in_branch),
                                results = traced(images);
      for (std::size_t i : {0, 1}) EXPECT_EQ(bits(results[i]), bits(expected[i]));
    }
  }
}

TEST(PackedWeights, ElementsThatAUserChangesAreNotTheVariables) {
  Weights weights;
  const Floats expected = bits(weights.results(weights.images));
  const auto infer = function([&](const Tensor& x) { return weights.results(x); });
  const NoGradScope no_grad;
  for (int call = 0; call < 3; ++call) {
    EXPECT_EQ(bits(infer(weights.images)), expected);
    Tensor alias = weights.kernel.value();
    if (alias.device().find("CPU") != std::string::npos) alias.data_ptr<float>()[0] += 1.0f;
  }
}

TEST(PackedWeights, OtherDtypesAndUnknownSizesGiveTheSameBits) {
  for (const DType dtype : {float32, bfloat16, float16}) {
    Weights weights(dtype);
    const auto infer = function([&](const Tensor& x) { return weights.results(x); },
                                {.input_signature = {{Shape{-1, 8, 8, 16}, dtype}}});
    for (int round = 0; round < 2; ++round) {
      for (const std::int64_t batch : {1, 2, 1, 2, 1, 2}) {
        const Tensor x = cast(random::normal({batch, 8, 8, 16}), dtype);
        EXPECT_EQ(bits(infer(x)), bits(weights.results(x))) << name_of(dtype);
      }
      weights.kernel.assign(weights.kernel * 0.5);
    }
  }
}

TEST(PackedWeights, ProductsWithConstantsAreRightAndHaveTheBitsOfAnyTeam) {
  const DeviceScope cpu("/cpu:0");
  for (const auto& [inputs, outputs] : {std::pair{784, 512}, {512, 10}, {100, 50}, {64, 64}}) {
    const Tensor weights = random::normal({inputs, outputs}), bias = random::normal({outputs});
    const auto infer = function([&](const Tensor& x) { return nn::dense(x, weights, bias); },
                                {.input_signature = {{Shape{-1, inputs}}}});
    for (const std::int64_t rows : {1, 3, 8, 32, 130, 1}) {
      const Tensor x = random::normal({rows, inputs});
      Floats first;
      for (const int threads : {1, 2, 3, 4}) {
        const ThreadBudget team(threads);
        const Floats found = bits(infer(x));
        if (first.empty()) first = found;
        EXPECT_EQ(found, first) << rows << " x " << inputs << " x " << outputs;
      }
      const auto wide = [](const Tensor& tensor) { return cast(tensor, float64); };
      const auto expected = (matmul(wide(x), wide(weights)) + wide(bias)).to_vector<double>();
      const auto terms = (matmul(wide(abs(x)), wide(abs(weights))) + 1.0).to_vector<double>();
      for (std::size_t i = 0; i < expected.size(); ++i)
        ASSERT_NEAR(first[i], expected[i], terms[i] * (inputs + 2) * 0x1p-24);
    }
  }
}

TEST(PackedWeights, ReplicasPackTheirOwnCopies) {
  const distribute::MirroredStrategy strategy = testing::cpus(2);
  std::optional<Weights> weights;
  {
    auto scope = strategy.scope();
    weights.emplace();
  }
  const auto results = [&] { return weights->results(weights->images); };
  const auto infer = function([&] { return strategy.run(results); });
  for (int round = 0; round < 3; ++round) {
    for (int call = 0; call < 3; ++call) {
      const auto expected = strategy.run(results), found = infer();
      for (std::size_t i : {0, 1})
        EXPECT_EQ(bits(strategy.experimental_local_results(found)[i]),
                  bits(strategy.experimental_local_results(expected)[i]));
    }
    weights->kernel.assign(weights->kernel * 0.5);
  }
}

}  // namespace
}  // namespace tandem::packed_weights_test
