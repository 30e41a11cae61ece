// DistributedOptimizer's and DistributedGradientTape's forms, and broadcasts of their state.
#include "support/hvd_ranks.h"
#include "support/tensors.h"
#include "tandem/tandem.h"

namespace tandem::hvd_optimizer_test {
namespace {

using testing::expect_error;
using testing::expect_hvd;
using testing::values_of;
using Values = std::vector<double>;

TEST(HvdOptimizer, SynchronizeReducesTheGradientsBeforeTheStep) {
  expect_hvd(2, [](int rank) {
    Variable w(constant({1.0f, 2.0f}));
    hvd::DistributedOptimizer optimizer(optimizers::SGD({.learning_rate = 1.0}, {w}));
    reduce_sum(w * (rank + 1.0)).backward();
    optimizer.synchronize();
    EXPECT_EQ(values_of(w.grad()), (Values{1.5, 1.5}));
    w.set_grad(constant({rank == 0 ? 3.0f : 4.0f, 0.0f}));
    {
      const auto skip = optimizer.skip_synchronize();
      optimizer.step();
    }
    EXPECT_EQ(values_of(w.value()), (Values{rank == 0 ? -2.0 : -3.0, 2.0}));
  });
}

TEST(HvdOptimizer, AStepOutsideOfSkipSynchronizeReducesAgain) {
  expect_hvd(2, [](int rank) {
    Variable w(constant({0.0f}));
    hvd::DistributedOptimizer optimizer(optimizers::SGD({.learning_rate = 1.0}, {w}));
    w.set_grad(constant({1.0f}));
    optimizer.synchronize();
    w.set_grad(constant({2.0f * static_cast<float>(rank)}));
    optimizer.step();
    EXPECT_EQ(values_of(w.value()), Values{-1.0});
    optimizers::Optimizer same = optimizer;  // a copy to the base is the same optimizer
    same.step();
    EXPECT_EQ(values_of(w.value()), Values{-2.0});
  });
}

TEST(HvdOptimizer, SynchronizeAveragesTheBackwardPassesOfAStep) {
  expect_hvd(2, [](int rank) {
    Variable w(constant({0.0f}));
    hvd::DistributedOptimizer optimizer(
        optimizers::SGD({.learning_rate = 1.0}, {w}),
        {.backward_passes_per_step = 2, .average_aggregated_gradients = true});
    for (int pass = 0; pass < 2; ++pass) reduce_sum(w * (rank + 1.0 + pass)).backward();
    optimizer.synchronize();
    EXPECT_EQ(values_of(w.grad()), Values{2.0});
  });
}

TEST(HvdOptimizer, ItsArgumentsAreChecked) {
  expect_hvd(2, [](int) {
    const Variable a(ones({1})), b(ones({1}));
    const auto sgd = optimizers::SGD({.learning_rate = 1.0}, {a, b});
    const auto refused = [&](const hvd::DistributedOptions& options, const std::string& message) {
      expect_error<InvalidArgumentError>([&] { hvd::DistributedOptimizer wrapped(sgd, options); },
                                         message);
    };
    refused({.named_parameters = {{"a", a}, {"a", b}}},
            "Parameter names in named_parameters must be unique. Found duplicates: a");
    refused({.named_parameters = {{"a", a}}}, "one or more model parameters were not named");
    refused({.op = hvd::kMax}, "expected op kAverage, kSum or kAdasum");
    hvd::DistributedOptimizer named(sgd, {.named_parameters = {{"a", a}, {"b", b}},
                                          .compression = hvd::Compression::kFP16,
                                          .op = hvd::kAverage});
    hvd::DistributedOptimizer adasum(sgd, {.op = hvd::kAdasum});
    expect_error<UnimplementedError>([&] { adasum.synchronize(); }, "op kAdasum");
    expect_error<UnimplementedError>([&] { auto skip = adasum.skip_synchronize(); }, "op kAdasum");
    hvd::DistributedOptimizer without(optimizers::SGD({.learning_rate = 1.0}));
    expect_error<FailedPreconditionError>([&] { without.synchronize(); }, "needs parameters");
  });
}

TEST(HvdOptimizer, ATapeThatRecordsIsWrapped) {
  expect_hvd(2, [](int rank) {
    const Variable w(constant({1.0f, 2.0f}));
    GradientTape tape;
    const Tensor loss = reduce_sum(w * (rank + 1.0));
    auto distributed = hvd::DistributedGradientTape(tape, {.op = hvd::kSum});
    EXPECT_EQ(values_of(distributed.gradient(loss, std::vector<Variable>{w}).front()),
              (Values{3, 3}));
  });
}

TEST(HvdOptimizer, ATapeTakesOneVariable) {
  expect_hvd(2, [](int rank) {
    const Variable w(constant({1.0f}));
    hvd::DistributedGradientTape tape;
    EXPECT_EQ(values_of(tape.gradient(reduce_sum(w * (rank + 1.0)), w)), Values{1.5});
  });
}

TEST(HvdOptimizer, ParametersAreBroadcast) {
  expect_hvd(2, [](int rank) {
    const auto mine = [&] { return Variable(full({2}, 1.0 + rank)); };
    const Variable a = mine(), b = mine(), c = mine(), d = mine();
    hvd::broadcast_parameters(std::vector<Variable>{a}, 1);
    hvd::broadcast_parameters(std::vector<std::pair<std::string, Variable>>{{"b", b}}, 1);
    hvd::broadcast_parameters(std::map<std::string, Variable>{{"c", c}}, {.root_rank = 1});
    hvd::broadcast_variables({d}, {.root_rank = 1});
    for (const Variable& each : {a, b, c, d}) EXPECT_EQ(values_of(each.value()), (Values{2, 2}));
    random::set_seed(static_cast<std::uint64_t>(rank));
    const Sequential model({layers::Dense(1, {.input_shape = {2}})});
    hvd::broadcast_parameters(model, 0);
    const Values kernels = values_of(hvd::allgather(model.variables()[0].value()));
    EXPECT_EQ(kernels[0], kernels[2]);
    EXPECT_EQ(kernels[1], kernels[3]);
  });
}

// Rank 0 has taken a step, as if it had loaded a checkpoint; the other has not made its slots yet.
TEST(HvdOptimizer, OptimizerStatesAreBroadcast) {
  expect_hvd(2, [](int rank) {
    const Variable w(constant({1.0f, 2.0f}));
    auto optimizer = optimizers::SGD({.learning_rate = 0.5, .momentum = 0.9}, {w});
    if (rank == 0) {
      optimizer.apply_gradients({ones({2})}, {w});
      optimizer.set_learning_rate(0.25);
    }
    hvd::broadcast_optimizer_state(optimizer, {.root_rank = 0});
    EXPECT_EQ(optimizer.iterations(), 1);
    EXPECT_EQ(optimizer.learning_rate(), 0.25);
    EXPECT_EQ(values_of(optimizer.variables()[1].value()), (Values{-0.5, -0.5}));
  });
}

TEST(HvdOptimizer, StatesOfDifferentSizesAreRefusedOnEveryRank) {
  expect_hvd(2, [](int rank) {
    const Variable w(constant({1.0f}));
    auto optimizer = optimizers::SGD({.learning_rate = 0.5, .momentum = 0.9});
    if (rank == 0) optimizer.apply_gradients({ones({1})}, {w});
    expect_error<InvalidArgumentError>(
        [&] { hvd::broadcast_optimizer_state(optimizer); },
        "expected optimizers with equally many variables, got [2, 0]");
  });
}

}  // namespace
}  // namespace tandem::hvd_optimizer_test
