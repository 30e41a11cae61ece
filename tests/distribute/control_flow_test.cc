// Strategy steps inside control flow, and control flow inside strategy steps.
#include <gtest/gtest.h>

#include <cmath>

#include "support/gpus.h"
#include "support/tensors.h"
#include "tandem/tandem.h"

namespace tandem::control_flow_test {
namespace {

using distribute::MirroredStrategy;
using distribute::PerReplica;
using distribute::Strategy;
using testing::expect_error;

using Tensors = std::vector<Tensor>;

struct Parts {
  Sequential model;
  optimizers::Optimizer optimizer;

  explicit Parts(const Strategy& strategy) {
    random::set_seed(5);
    auto scope = strategy.scope();
    model = Sequential({layers::Dense(16, {.activation = "relu", .input_shape = {6}}),
                        layers::Dropout(0.25), layers::Dense(3)});
    optimizer = optimizers::Adam({.learning_rate = 0.01});
  }

  std::vector<float> results(const std::vector<float>& losses) const {
    std::vector<float> results = losses;
    for (const Variable& variable : model.variables())
      for (float value : variable.value().to_vector<float>()) results.push_back(value);
    results.push_back(static_cast<float>(optimizer.iterations()));
    results.push_back(static_cast<float>(random::get_state().offset));
    return results;
  }
};

data::Dataset make_data() {
  DeviceScope cpu("/cpu:0");
  random::set_seed(9);
  const Tensor x = random::normal({10, 6});
  return data::Dataset::from_tensor_slices({x, argmax(slice(x, {0, 0}, {-1, 3}), 1)}).batch(10);
}

void expect_close(const std::vector<float>& a, const std::vector<float>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i)
    EXPECT_NEAR(a[i], b[i], 1e-5 * std::max(1.0f, std::abs(b[i]))) << i;
}

using Run = std::function<Tensor(const PerReplica<data::Example>&)>;

std::vector<float> repeat(const Strategy& strategy, const Parts& parts, const Run& run,
                          bool traced) {
  const auto replayed = function(run);
  random::set_seed(77);
  std::vector<float> losses;
  for (int i = 0; i < 3; ++i)
    for (const auto& batch : strategy.experimental_distribute_dataset(make_data()))
      losses.push_back((traced ? replayed(batch) : run(batch)).item<float>());
  return parts.results(losses);
}

// Three steps in a loop, and one more in a branch after it.
std::vector<float> steps_in_a_loop(const Strategy& strategy, bool traced) {
  Parts parts(strategy);
  const auto replica_step = [&](const data::Example& batch) {
    GradientTape tape;
    const Tensor loss = nn::compute_average_loss(
        nn::sparse_softmax_cross_entropy(batch[1], parts.model(batch[0], {.training = true})));
    parts.optimizer.apply_gradients(tape.gradient(loss, parts.model.trainable_variables()),
                                    parts.model.trainable_variables());
    return loss;
  };
  return repeat(
      strategy, parts,
      [&](const PerReplica<data::Example>& batch) {
        const auto step = [&] {
          return strategy.reduce(ReduceOp::kSum, strategy.run(replica_step, batch));
        };
        return while_loop([](const Tensors& v) { return less(v[0], 3.0); },
                          [&](const Tensors& v) {
                            const Tensor loss = step();
                            const Tensor more = cond(
                                greater(v[0], 1.5), [&] { return step(); }, [&] { return loss; });
                            return Tensors{v[0] + 1.0, v[1] + loss + more};
                          },
                          {zeros({}), zeros({})})[1];
      },
      traced);
}

// Each replica's forward pass is a loop with dropout, through which gradients are backpropagated.
std::vector<float> a_loop_in_each_step(const Strategy& strategy, bool traced) {
  Parts parts(strategy);
  const auto replica_step = [&](const data::Example& batch) {
    GradientTape tape;
    const Tensors last =
        while_loop([](const Tensors& v) { return less(v[0], 3.0); },
                   [&](const Tensors& v) {
                     const Tensor losses = nn::sparse_softmax_cross_entropy(
                         batch[1], parts.model(batch[0], {.training = true}));
                     return Tensors{v[0] + 1.0, v[1] + nn::compute_average_loss(losses)};
                   },
                   {zeros({}), zeros({})});
    parts.optimizer.apply_gradients(tape.gradient(last[1], parts.model.trainable_variables()),
                                    parts.model.trainable_variables());
    return last[1];
  };
  return repeat(
      strategy, parts,
      [&](const PerReplica<data::Example>& batch) {
        return strategy.reduce(ReduceOp::kSum, strategy.run(replica_step, batch));
      },
      traced);
}

// Gradients are reduced before and after a loop that reads and writes the variables that they
// update.
std::vector<float> a_loop_between_steps(const Strategy& strategy, bool traced) {
  Parts parts(strategy);
  Variable rounds;
  {
    auto scope = strategy.scope();
    rounds = Variable(zeros({}), {.trainable = false,
                                  .synchronization = VariableSynchronization::kOnRead,
                                  .aggregation = VariableAggregation::kMean});
  }
  const auto replica_step = [&](const data::Example& batch) {
    const auto step = [&](const Tensor& scale) {
      const Tensor loss = nn::compute_average_loss(nn::sparse_softmax_cross_entropy(
                              batch[1], parts.model(batch[0], {.training = true}))) *
                          scale;
      parts.optimizer.minimize(loss, parts.model.trainable_variables());
      return loss.detach();
    };
    const Tensor first = step(ones({}));
    const Tensors last = while_loop(
        [](const Tensors& v) { return less(v[0], 2.0); },
        [&](const Tensors& v) {
          rounds.assign_add(ones({}));
          return Tensors{v[0] + 1.0, v[1] + reduce_mean(parts.model(batch[0], {.training = true})) +
                                         rounds * 0.01};
        },
        {zeros({}), zeros({})});
    return first + step(tanh(last[1].detach()) * 0.0 + 1.0) + rounds * 0.0;
  };
  return repeat(
      strategy, parts,
      [&](const PerReplica<data::Example>& batch) {
        return strategy.reduce(ReduceOp::kSum, strategy.run(replica_step, batch));
      },
      traced);
}

TEST(ControlFlowOfReplicas, ALoopBetweenReductions) {
  config::set_logical_cpus(2);
  const MirroredStrategy two({.devices = {"/cpu:0", "/cpu:1"}});
  const distribute::OneDeviceStrategy one("/cpu:0");
  const std::vector<float> expected = a_loop_between_steps(one, false);
  expect_close(a_loop_between_steps(two, true), expected);
  expect_close(a_loop_between_steps(one, true), expected);
}

TEST(ControlFlowOfReplicas, StepsInALoop) {
  config::set_logical_cpus(2);
  const MirroredStrategy two({.devices = {"/cpu:0", "/cpu:1"}});
  const distribute::OneDeviceStrategy one("/cpu:0");
  const std::vector<float> expected = steps_in_a_loop(one, false);
  expect_close(steps_in_a_loop(two, true), expected);
  expect_close(steps_in_a_loop(one, true), expected);
}

TEST(ControlFlowOfReplicas, ALoopInEachStep) {
  config::set_logical_cpus(2);
  const MirroredStrategy two({.devices = {"/cpu:0", "/cpu:1"}});
  const distribute::OneDeviceStrategy one("/cpu:0");
  const std::vector<float> expected = a_loop_in_each_step(one, false);
  expect_close(a_loop_in_each_step(two, true), expected);
  expect_close(a_loop_in_each_step(one, true), expected);
}

// One replica waits for a collective before its loop, the other one after it.
TEST(ControlFlowOfReplicas, AWaitOnEachSideOfALoop) {
  config::set_logical_cpus(2);
  const MirroredStrategy two({.devices = {"/cpu:0", "/cpu:1"}});
  Variable sum;
  auto descent = optimizers::SGD({.learning_rate = 1.0});
  {
    auto scope = two.scope();
    sum = Variable(zeros({}));
  }
  const auto step = function([&](const Tensor& late) {
    const auto each = two.run([&] {
      const bool first = distribute::replica_id_in_sync_group() == 0;
      descent.minimize(first ? sum * reduce_mean(matmul(late, late)) : sum + 0.0, {sum});
      const Tensor rounds = while_loop([](const Tensors& v) { return less(v[0], 3.0); },
                                       [](const Tensors& v) { return Tensors{v[0] + 1.0}; },
                                       {first ? sum * 0.0 : zeros({})})[0];
      return (sum + rounds).detach();
    });
    return two.reduce(ReduceOp::kSum, each);
  });
  for (int i = 1; i < 6; ++i) EXPECT_EQ(step(ones({600, 600})).item<float>(), 2 * (3 - 601 * i));
}

TEST(ControlFlowOfReplicas, OnEmulatedGpus) {
  testing::use_gpus(2, 256);
  const MirroredStrategy two({.devices = {"/gpu:0", "/gpu:1"}});
  const distribute::OneDeviceStrategy one("/cpu:0");
  expect_close(steps_in_a_loop(two, true), steps_in_a_loop(one, false));
  expect_close(a_loop_in_each_step(two, true), a_loop_in_each_step(one, false));
}

TEST(ControlFlowOfReplicas, OnASharedCopyOfTheVariables) {
  testing::use_gpus(2, 256);
  const distribute::CentralStorageStrategy two;
  const distribute::OneDeviceStrategy one("/cpu:0");
  expect_close(steps_in_a_loop(two, true), steps_in_a_loop(one, false));
  expect_close(a_loop_in_each_step(two, true), a_loop_in_each_step(one, false));
}

TEST(ControlFlowOfReplicas, CollectivesInABranchOfAReplicaAreRefused) {
  config::set_logical_cpus(2);
  const MirroredStrategy two({.devices = {"/cpu:0", "/cpu:1"}});
  Variable v;
  {
    auto scope = two.scope();
    v = Variable(zeros({}), {.aggregation = VariableAggregation::kSum});
  }
  const auto step = function([&](const Tensor& p) {
    two.run([&] {
      cond(
          p, [&] { v.assign_add(ones({})); }, [] {});
    });
  });
  expect_error<InvalidArgumentError>([&] { step(constant(true)); },
                                     "every replica must call the same ones");
}

}  // namespace
}  // namespace tandem::control_flow_test
