#include "graph/passes/passes.h"

#include <gtest/gtest.h>

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "graph/graph_support.h"
#include "graph/memory_plan.h"
#include "graph/passes/element_chain.h"
#include "support/gpus.h"

namespace tandem::passes_test {
namespace {

using Names = std::vector<std::string>;
using Tensors = std::vector<Tensor>;

TEST(Passes, ConstantsAreFolded) {
  const auto body = [](const Tensors& in) -> Tensors {
    const Tensor two = add(constant({1.0f}), constant({1.0f}));
    return {multiply(in[0], multiply(two, two))};
  };
  const Tensor x = constant({1.0f, 2.0f});
  Block block = block_of({x}, body);
  EXPECT_EQ(names_of(block), (Names{"AddV2", "Mul", "Mul"}));
  fold_constants(block);
  EXPECT_EQ(names_of(block), (Names{"Mul"}));
  EXPECT_EQ(Program(std::move(block)).run(std::span(&x, 1))[0].to_vector<float>(),
            (std::vector<float>{4, 8}));
}

TEST(Passes, CommonSubexpressionsAreMerged) {
  const Tensor x = constant({1.0f, 4.0f});
  Block block = block_of({x}, [](const Tensors& in) -> Tensors {
    return {add(sqrt(in[0]), sqrt(in[0])), sqrt(multiply(in[0], in[0]))};
  });
  merge_common_subexpressions(block);
  EXPECT_EQ(names_of(block), (Names{"Sqrt", "AddV2", "Mul", "Sqrt"}));
  const Tensors results = Program(std::move(block)).run(std::span(&x, 1));
  EXPECT_EQ(results[0].to_vector<float>(), (std::vector<float>{2, 4}));
  EXPECT_EQ(results[1].to_vector<float>(), (std::vector<float>{1, 4}));
}

// 1 / -0.0 is not 1 / 0.0.
TEST(Passes, NumbersWithDifferentBitsAreNotMerged) {
  const Tensor x = constant({1.0f});
  Block block = block_of({x}, [](const Tensors& in) -> Tensors {
    return {divide(1.0, in[0] * 0.0), divide(1.0, in[0] * -0.0), in[0] * std::nan(""),
            in[0] * std::nan("")};
  });
  merge_common_subexpressions(block);
  const auto names = names_of(block);
  EXPECT_EQ(std::count(names.begin(), names.end(), "MulScalar"), 3);
  const Tensors results = Program(std::move(block)).run(std::span(&x, 1));
  EXPECT_EQ(results[0].item<float>(), std::numeric_limits<float>::infinity());
  EXPECT_EQ(results[1].item<float>(), -std::numeric_limits<float>::infinity());
}

TEST(Passes, ReadsBeforeAndAfterAWriteAreNotMerged) {
  Variable v(constant({1.0f}));
  Block block = block_of({}, [&](const Tensors&) -> Tensors {
    const Tensor before = exp(v.value());
    v.assign(constant({2.0f}));
    return {before, exp(v.value())};
  });
  merge_common_subexpressions(block);
  const Tensors results = Program(std::move(block)).run({});
  EXPECT_FLOAT_EQ(results[0].item<float>(), std::exp(1.0f));
  EXPECT_FLOAT_EQ(results[1].item<float>(), std::exp(2.0f));
}

TEST(Passes, RandomOperationsAreNeitherMergedNorFolded) {
  Block block = block_of({}, [](const Tensors&) -> Tensors {
    return {random::uniform({2}), random::uniform({2})};
  });
  fold_constants(block);
  merge_common_subexpressions(block);
  EXPECT_EQ(names_of(block), (Names{"RandomUniform", "RandomUniform"}));
}

TEST(Passes, UnusedOperationsAreRemoved) {
  const Tensor x = constant({1.0f});
  Variable v(constant({0.0f}));
  Block block = block_of({x}, [&](const Tensors& in) -> Tensors {
    v.assign(add(in[0], in[0]));
    return {in[0]};
  });
  ASSERT_EQ(names_of(block), (Names{"AddV2", "AssignVariableOp"}));
  drop_dead_operations(block);
  EXPECT_EQ(names_of(block), (Names{"AddV2", "AssignVariableOp"}));
  block.operations.pop_back();
  drop_dead_operations(block);
  EXPECT_TRUE(block.operations.empty());
}

TEST(Passes, ChainsOfElementwiseOperationsAreFused) {
  const Tensor x = random::normal({3, 5000}), y = random::normal({3, 5000});
  const auto body = [](const Tensors& in) -> Tensors {
    const Tensor shifted = add(multiply(in[0], 3.0), in[1]);
    return {where(greater(shifted, in[1]), tanh(shifted), negative(abs(in[1]))), reduce_sum(in[0])};
  };
  Block block = block_of({x, y}, body);
  fold_constants(block);
  fuse_elementwise(block);
  // `shifted` is used twice, so it is a result of its own.
  EXPECT_EQ(names_of(block), (Names{"_FusedElementwise", "_FusedElementwise", "Sum"}));
  const Tensors inputs = {x, y};
  const Tensors fused = Program(std::move(block)).run(inputs);
  const Tensors expected = body(inputs);
  EXPECT_EQ(fused[0].to_vector<float>(), expected[0].to_vector<float>());
  EXPECT_EQ(fused[1].to_vector<float>(), expected[1].to_vector<float>());
}

// The buffer of a result that has been read is reused.
TEST(Passes, LongChainsUseFewBuffers) {
  const DeviceScope cpu("/cpu:0");  // GPU kernels limit the length of chains
  const Tensor x = random::normal({3, 5000}), y = random::normal({3, 5000});
  const auto body = [](const Tensors& in) -> Tensors {
    Tensor left = in[0], right = in[1];
    for (int i = 0; i < 20; ++i) left = tanh(left * 1.5 + in[1]);
    for (int i = 0; i < 20; ++i) right = abs(right - in[0]) * 0.5;
    return {left * right};
  };
  Block block = block_of({x, y}, body);
  fold_constants(block);
  fuse_elementwise(block);
  ASSERT_EQ(names_of(block), (Names{"_FusedElementwise"}));
  const auto& attrs = *static_cast<const FusedElementwiseAttrs*>(block.operations[0]->attrs.get());
  EXPECT_EQ(attrs.chain.members().size(), 121u);
  EXPECT_EQ(attrs.chain.buffers(), 3);  // the result of one operand, and two that alternate
  const Tensors inputs = {x, y};
  EXPECT_EQ(Program(std::move(block)).run(inputs)[0].to_vector<float>(),
            body(inputs)[0].to_vector<float>());
}

TEST(Passes, AChainThatReadsAVariableStaysBeforeTheWrite) {
  Variable v(full({4}, 1.0));
  Block block = block_of({}, [&](const Tensors&) -> Tensors {
    const Tensor scaled = multiply(v.value(), 3.0);
    v.assign(full({4}, 10.0));
    return {exp(scaled)};
  });
  const Tensors results = Program(std::move(block)).run({});
  EXPECT_FLOAT_EQ(results[0].to_vector<float>()[0], std::exp(3.0f));
}

// A training step of batch normalisation with a residual and an activation after it.
Tensors normalised_step(const Tensors& in) {
  GradientTape tape;
  tape.watch(in[0]);
  tape.watch(in[1]);
  const auto normal = nn::batch_norm_training(in[0], in[1], in[2], 1e-3);
  const Tensor activated = nn::relu(add(normal.y, in[3]));
  const Tensor loss = reduce_sum(multiply(activated, in[4]));
  const std::vector<Tensor> gradients = tape.gradient(loss, {in[0], in[1]});
  return {activated, normal.mean, normal.variance, gradients[0], gradients[1]};
}

class NormalisationPasses : public ::testing::TestWithParam<DType> {};
// Kernels on CPUs convert whole tensors of float16, so that tiles have no kernel.
INSTANTIATE_TEST_SUITE_P(DTypes, NormalisationPasses, ::testing::Values(float32, bfloat16),
                         [](const auto& info) { return std::string(name_of(info.param)); });

TEST_P(NormalisationPasses, BatchNormalisationIsFusedWithItsNeighbours) {
  const Shape shape = {3, 17, 19, 24};
  const auto random_values = [&] { return cast(random::normal(shape), GetParam()); };
  const Tensors inputs = {random_values(), random::uniform({24}), random::normal({24}),
                          random_values(), random_values()};
  Block block = block_of(inputs, normalised_step);
  optimize(block);
  // Forward with the residual and the activation; backward with the activation's gradient.
  const Names names = names_of(block);
  EXPECT_EQ(std::count(names.begin(), names.end(), "_FusedTiled"), 2) << fmt::format("{}", names);
  for (const std::string gone : {"FusedBatchNormV3", "FusedBatchNormGradV3", "Relu", "ReluGrad"})
    EXPECT_EQ(std::count(names.begin(), names.end(), gone), 0) << gone;
  const Tensors fused = Program(std::move(block)).run(inputs);
  const Tensors expected = normalised_step(inputs);
  for (std::size_t i = 0; i < expected.size(); ++i)
    EXPECT_EQ(cast(fused[i], float32).to_vector<float>(),
              cast(expected[i], float32).to_vector<float>())
        << i;
}

TEST(Passes, BatchNormalisationIsNotFusedWithSharedOperations) {
  const Shape shape = {4, 8};
  const Tensors inputs = {random::normal(shape), random::uniform({8}), random::normal({8})};
  const auto normalised = [](const Tensors& in) {
    return nn::batch_norm_training(in[0], in[1], in[2], 1e-3).y;
  };
  const auto names_after = [&](const std::function<Tensors(const Tensors&)>& body) {
    Block block = block_of(inputs, body);
    optimize(block);
    const Names names = names_of(block);
    const Tensors fused = Program(std::move(block)).run(inputs), expected = body(inputs);
    for (std::size_t i = 0; i < expected.size(); ++i)
      EXPECT_EQ(cast(fused[i], float32).to_vector<float>(),
                cast(expected[i], float32).to_vector<float>())
          << i;
    return names;
  };
  // The normalised values are a fetch.
  EXPECT_EQ(names_after([&](const Tensors& in) -> Tensors {
              const Tensor y = normalised(in);
              return {y, nn::relu(y)};
            }),
            (Names{"FusedBatchNormV3", "Relu"}));
  // The residual depends on statistics of the normalised values, so it is computed after them.
  EXPECT_EQ(names_after([&](const Tensors& in) -> Tensors {
              const auto normal = nn::batch_norm_training(in[0], in[1], in[2], 1e-3);
              return {add(normal.y, broadcast_to(normal.mean, in[0].shape()))};
            }).front(),
            "FusedBatchNormV3");
  // Another dtype than the kernel writes.
  EXPECT_EQ(names_after([&](const Tensors& in) -> Tensors {
              return {cast(greater(normalised(in), 0.0), int32)};
            }).front(),
            "FusedBatchNormV3");
}

TEST(Passes, BatchNormalisationReadsAVariableBeforeItsWrite) {
  Variable v(full({4, 8}, 1.0));
  const Tensor x = random::normal({4, 8});
  const auto body = [&](const Tensors& in) -> Tensors {
    const Tensor y = nn::batch_norm_training(in[0], ones({8}), zeros({8}), 1e-3).y;
    v.assign(full({4, 8}, 2.0));
    const Tensor result = add(y, v.value());
    v.assign(full({4, 8}, 1.0));
    return {result};
  };
  const Tensor expected = body({x})[0];
  Block block = block_of({x}, body);
  EXPECT_EQ(Program(std::move(block)).run(std::span(&x, 1))[0].to_vector<float>(),
            expected.to_vector<float>());
}

TEST(Passes, UpdatesWithOneRuleAreGrouped) {
  std::vector<Variable> variables, expected;
  for (const std::int64_t size : {1, 7, 5000, 40000}) {
    const Tensor start = random::normal({size});
    variables.emplace_back(start);
    expected.emplace_back(start);
  }
  optimizers::Optimizer adam = optimizers::Adam({.learning_rate = 0.1});
  optimizers::Optimizer eager = optimizers::Adam({.learning_rate = 0.1});
  Tensors gradients;
  for (const Variable& variable : variables) gradients.push_back(random::normal(variable.shape()));
  Block block = block_of(gradients, [&](const Tensors& in) -> Tensors {
    adam.apply_gradients(in, variables);
    return {};
  });
  EXPECT_EQ(block.operations.size(), 4u);
  group_updates(block);
  EXPECT_EQ(names_of(block), (Names{"_GroupedUpdate"}));
  Program program(std::move(block));
  program.run(gradients);
  eager.apply_gradients(gradients, expected);
  for (std::size_t i = 0; i < variables.size(); ++i)
    EXPECT_EQ(variables[i].value().to_vector<float>(), expected[i].value().to_vector<float>());
}

TEST(MemoryPlan, MemoryOfDeadValuesIsReused) {
  const Tensor x = random::normal({64, 64});
  Block block = block_of({x}, [](const Tensors& in) -> Tensors {
    Tensor y = in[0];
    for (int i = 0; i < 10; ++i) y = matmul(y, in[0]);
    return {reduce_sum(y)};
  });
  const MemoryPlan plan = plan_memory(block);
  const DeviceImpl& device = impl_of(x).device();
  EXPECT_EQ(plan.unshared_bytes.at(&device), 10u * 64 * 64 * 4);
  EXPECT_EQ(plan.arena_bytes.at(&device), 2u * 64 * 64 * 4);
}

TEST(MemoryPlan, ElementwiseResultsReuseTheirOperandsMemory) {
  const Tensor x = random::normal({64, 64});
  Block block = block_of({x}, [](const Tensors& in) -> Tensors {
    return {reduce_sum(tanh(exp(matmul(in[0], in[0]))))};
  });
  const MemoryPlan plan = plan_memory(block);
  EXPECT_EQ(plan.arena_bytes.at(&impl_of(x).device()), 64u * 64 * 4);
}

}  // namespace
}  // namespace tandem::passes_test
