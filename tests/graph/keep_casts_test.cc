// Copies of weights in 16 bits that updates write, instead of a cast in each run.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "graph/graph_support.h"
#include "graph/passes/passes.h"
#include "runtime/variable_impl.h"
#include "support/gpus.h"
#include "support/tensors.h"

namespace tandem::keep_casts_test {
namespace {

using testing::random_tensor;
using testing::values_of;
using Tensors = std::vector<Tensor>;
using Values = std::vector<double>;

Variable weight() { return Variable(random_tensor({5, 3}, 3, -1.0, 1.0, float32)); }
Tensor input() { return random_tensor({4, 5}, 4, -1.0, 1.0, float32); }

Tensor loss_of(const Tensor& x, const Variable& w, DType dtype) {
  const Tensor y = cast(matmul(cast(x, dtype), cast(w.value(), dtype)), float32);
  return reduce_mean(square(y));
}

// A program that trains `w`, with its copies.
struct Trainer {
  Trainer(const Tensor& x, const std::function<Tensors(const Tensors&)>& body)
      : block(block_of({x}, body)), copies(keep_casts(block)) {}
  Trainer(const Tensor& x, const Variable& w, optimizers::Optimizer optimizer, DType dtype)
      : Trainer(x, [&](const Tensors& in) -> Tensors {
          const Tensor loss = loss_of(in[0], w, dtype);
          optimizer.minimize(loss, {w});
          return {loss};
        }) {}

  int casts_of_variables() const {
    return static_cast<int>(
        std::count_if(block.operations.begin(), block.operations.end(), [](const auto& each) {
          return each->op->name == "Cast" && each->inputs[0]->root().resource;
        }));
  }

  // The dtype in which the update reads the gradient.
  DType gradient_dtype() const {
    for (const auto& each : block.operations)
      if (each->has(kWritesCast)) return each->inputs[each->inputs.size() - 2]->spec.dtype;
    throw NotFoundError("an update");
  }

  Block block;
  std::vector<RefPtr<Resource>> copies;
};

struct Case {
  const char* name;
  optimizers::Optimizer (*make)();
};

class KeepCasts : public ::testing::TestWithParam<Case> {};

TEST_P(KeepCasts, AreWrittenByUpdates) {
  for (DType dtype : {bfloat16, float16}) {
    const Tensor x = input();
    const Variable w = weight();
    Trainer trainer(x, w, GetParam().make(), dtype);
    ASSERT_EQ(trainer.copies.size(), 1u);
    EXPECT_EQ(trainer.casts_of_variables(), 0);
    EXPECT_EQ(trainer.gradient_dtype(), dtype);
    Program program(std::move(trainer.block));
    const Tensor copy = trainer.copies[0]->value();
    Values before = values_of(copy);
    for (int step = 0; step < 3; ++step) {
      program.run(std::span(&x, 1));
      EXPECT_EQ(values_of(copy), values_of(cast(w.value(), dtype)));
      EXPECT_NE(std::exchange(before, values_of(copy)), values_of(copy));
    }
  }
}

// The operations are the same, so the numbers are.
TEST_P(KeepCasts, TrainAsOperationsThatCastEachTime) {
  for (DType dtype : {bfloat16, float16}) {
    const Tensor x = input();
    const Variable w = weight(), expected = weight();
    auto optimizer = GetParam().make(), eager = GetParam().make();
    const auto step = function([&](const Tensor& in) {
      const Tensor loss = loss_of(in, w, dtype);
      optimizer.minimize(loss, {w});
      return loss;
    });
    for (int i = 0; i < 3; ++i) {
      step(x);
      eager.minimize(loss_of(x, expected, dtype), {expected});
      EXPECT_EQ(values_of(w), values_of(expected)) << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Optimizers, KeepCasts,
    ::testing::Values(
        Case{"SGD",
             []() -> optimizers::Optimizer { return optimizers::SGD({.learning_rate = 0.1}); }},
        Case{"Momentum",
             []() -> optimizers::Optimizer { return optimizers::SGD({.momentum = 0.9}); }},
        Case{"Adam", []() -> optimizers::Optimizer { return optimizers::Adam(0.05); }},
        Case{"Adagrad", []() -> optimizers::Optimizer { return optimizers::Adagrad(0.05); }},
        Case{"RMSprop", []() -> optimizers::Optimizer { return optimizers::RMSprop(0.05); }},
        Case{"LAMB", []() -> optimizers::Optimizer { return optimizers::LAMB(0.05); }}),
    [](const auto& each) { return each.param.name; });

TEST(KeptCasts, OfManyVariablesAreWrittenByOneOperation) {
  const Tensor x = random_tensor({4, 3}, 1, -1.0, 1.0, float32);
  const Variable a(random_tensor({3, 3}, 2, -1.0, 1.0, float32)),
      b(random_tensor({3, 3}, 3, -1.0, 1.0, float32));
  auto adam = optimizers::Adam(0.1);
  Block block = block_of({x}, [&](const Tensors& in) -> Tensors {
    const Tensor hidden = matmul(cast(in[0], bfloat16), cast(a.value(), bfloat16));
    const Tensor loss = reduce_sum(cast(matmul(hidden, cast(b.value(), bfloat16)), float32));
    adam.minimize(loss, {a, b});
    return {loss};
  });
  const auto copies = keep_casts(block);
  EXPECT_EQ(copies.size(), 2u);
  group_updates(block);
  const auto names = names_of(block);
  EXPECT_EQ(std::count(names.begin(), names.end(), "_GroupedUpdate"), 1);
  Tensors held;
  for (const auto& copy : copies) held.push_back(copy->value());
  Program(std::move(block)).run(std::span(&x, 1));
  for (const Tensor& copy : held) {
    const Variable& variable =
        copy.to_vector<BFloat16>() == cast(a.value(), bfloat16).to_vector<BFloat16>() ? a : b;
    EXPECT_EQ(values_of(copy), values_of(cast(variable.value(), bfloat16)));
  }
  EXPECT_NE(values_of(held[0]), values_of(held[1]));
}

// Here, the gradient is also a result of the program.
TEST(KeptCasts, LeaveACastGradientThatOthersUse) {
  const Tensor x = input();
  const Variable w = weight();
  auto sgd = optimizers::SGD(0.1);
  Trainer trainer(x, [&](const Tensors& in) -> Tensors {
    const Tensor loss = loss_of(in[0], w, bfloat16);
    const Tensor gradient = gradients(loss, std::vector<Variable>{w})[0];
    sgd.apply_gradients({gradient}, {w});
    return {gradient};
  });
  EXPECT_EQ(trainer.copies.size(), 1u);
  EXPECT_EQ(trainer.gradient_dtype(), float32);
  const Values before = values_of(w);
  const Values gradient = values_of(Program(std::move(trainer.block)).run(std::span(&x, 1))[0]);
  for (std::size_t i = 0; i < before.size(); ++i)
    EXPECT_NEAR(values_of(w)[i], before[i] - 0.1 * gradient[i], 1e-6);
}

TEST(KeptCasts, FollowAssignmentsBetweenRuns) {
  const Tensor x = input();
  Variable w = weight();
  Trainer trainer(x, w, optimizers::SGD(0.1), bfloat16);
  Program program(std::move(trainer.block));
  program.run(std::span(&x, 1));
  w.assign(ones({5, 3}) * 0.5);
  const Tensor expected = loss_of(x, w, bfloat16);
  EXPECT_EQ(program.run(std::span(&x, 1))[0].item<float>(), expected.item<float>());
  EXPECT_EQ(values_of(trainer.copies[0]->value()), values_of(cast(w.value(), bfloat16)));
}

TEST(KeptCasts, TensorsThatWereReadKeepTheirElements) {
  const Tensor x = input();
  const Variable w = weight();
  Trainer trainer(x, w, optimizers::SGD(0.1), bfloat16);
  Program program(std::move(trainer.block));
  const Tensor before = w.value();
  const Values elements = values_of(before);
  program.run(std::span(&x, 1));
  EXPECT_EQ(values_of(before), elements);
  EXPECT_NE(values_of(w), elements);
}

TEST(KeptCasts, AreNotUsedAfterAWrite) {
  const Tensor x = input();
  const Variable w = weight();
  auto sgd = optimizers::SGD(0.1);
  const Values before = values_of(cast(w.value(), bfloat16));
  Trainer trainer(x, [&](const Tensors& in) -> Tensors {
    const Tensor old = cast(w.value(), bfloat16);
    sgd.minimize(loss_of(in[0], w, float32), {w});
    return {cast(old, float32) * 1.0};
  });
  EXPECT_TRUE(trainer.copies.empty());
  EXPECT_EQ(values_of(Program(std::move(trainer.block)).run(std::span(&x, 1))[0]), before);
}

TEST(KeptCasts, AreNotFetched) {
  const Tensor x = input();
  const Variable w = weight();
  auto sgd = optimizers::SGD(0.1);
  Trainer trainer(x, [&](const Tensors& in) -> Tensors {
    const Tensor old = cast(w.value(), bfloat16);
    sgd.minimize(loss_of(in[0], w, float32), {w});
    return {old};
  });
  EXPECT_TRUE(trainer.copies.empty());
}

TEST(KeptCasts, AreNotKeptOfVariablesThatAreAlsoAssigned) {
  const Tensor x = input();
  Variable w = weight();
  const Variable expected = weight();
  auto sgd = optimizers::SGD(0.1), eager = optimizers::SGD(0.1);
  const auto step = [](const Tensor& in, Variable variable, optimizers::Optimizer optimizer) {
    const Tensor loss = loss_of(in, variable, bfloat16);
    optimizer.minimize(loss, {variable});
    variable.assign(clip_by_value(variable.value(), -0.5, 0.5));
    return loss;
  };
  Trainer trainer(x, [&](const Tensors& in) -> Tensors { return {step(in[0], w, sgd)}; });
  EXPECT_TRUE(trainer.copies.empty());
  Program program(std::move(trainer.block));
  for (int i = 0; i < 2; ++i) {
    program.run(std::span(&x, 1));
    step(x, expected, eager);
  }
  EXPECT_EQ(values_of(w), values_of(expected));
}

TEST(KeptCasts, AreWrittenWhereABranchUpdates) {
  const Tensor x = input();
  const Variable w = weight();
  auto optimizer = optimizers::LossScaleOptimizer(optimizers::Adam(0.1));
  Trainer trainer(x, w, optimizer, bfloat16);
  ASSERT_EQ(trainer.copies.size(), 1u);
  Program program(std::move(trainer.block));
  const Tensor copy = trainer.copies[0]->value(), before = copy + 0;
  const Tensor infinite = full({4, 5}, std::numeric_limits<double>::infinity());
  program.run(std::span(&infinite, 1));
  EXPECT_EQ(values_of(copy), values_of(before));
  program.run(std::span(&x, 1));
  EXPECT_NE(values_of(copy), values_of(before));
  EXPECT_EQ(values_of(copy), values_of(cast(w.value(), bfloat16)));
}

TEST(KeptCasts, AreKeptInTheBodiesOfLoops) {
  const Tensor x = input();
  const Variable w = weight(), expected = weight();
  auto adam = optimizers::Adam(0.1), eager = optimizers::Adam(0.1);
  adam.build({w});
  Trainer trainer(x, [&](const Tensors& in) -> Tensors {
    return while_loop([](const Tensors& loop) { return less(loop[0], 3); },
                      [&](const Tensors& loop) -> Tensors {
                        adam.minimize(loss_of(in[0], w, bfloat16), {w});
                        return {loop[0] + 1};
                      },
                      {constant(0)});
  });
  EXPECT_EQ(trainer.copies.size(), 1u);
  Program program(std::move(trainer.block));
  program.run(std::span(&x, 1));
  for (int i = 0; i < 3; ++i) eager.minimize(loss_of(x, expected, bfloat16), {expected});
  EXPECT_EQ(values_of(w), values_of(expected));
}

TEST(KeptCasts, HaveOneDTypePerProgram) {
  const Tensor x = input();
  const Variable w = weight();
  Trainer trainer(x, [&](const Tensors& in) -> Tensors {
    return {loss_of(in[0], w, bfloat16), loss_of(in[0], w, float16)};
  });
  EXPECT_EQ(trainer.copies.size(), 1u);
  EXPECT_EQ(trainer.casts_of_variables(), 1);
  const Tensors losses = Program(std::move(trainer.block)).run(std::span(&x, 1));
  EXPECT_EQ(losses[0].item<float>(), loss_of(x, w, bfloat16).item<float>());
  EXPECT_EQ(losses[1].item<float>(), loss_of(x, w, float16).item<float>());
}

TEST(KeptCasts, OfAConvertedVariableAreRefused) {
  const Tensor x = input();
  const Variable w = weight();
  Trainer trainer(x, [&](const Tensors& in) -> Tensors { return {loss_of(in[0], w, bfloat16)}; });
  Program program(std::move(trainer.block));
  program.run(std::span(&x, 1));
  w.impl().convert(bfloat16);
  EXPECT_THROW(program.run(std::span(&x, 1)), FailedPreconditionError);
}

}  // namespace
}  // namespace tandem::keep_casts_test
