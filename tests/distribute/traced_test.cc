// Steps of a strategy inside traced functions.
#include <gtest/gtest.h>

#include <cmath>

#include "runtime/variable_impl.h"
#include "support/copies.h"
#include "support/gpus.h"
#include "support/strategies.h"
#include "support/tensors.h"
#include "tandem/tandem.h"

namespace tandem::traced_test {
namespace {

using distribute::MirroredStrategy;
using distribute::PerReplica;
using distribute::Strategy;
using testing::cpus;
using testing::expect_error;
using testing::uneven;

struct Trained {
  std::vector<std::vector<std::vector<float>>> weights;  // by replica and variable
  std::vector<float> losses;
};

// Trains a perceptron with dropout for 50 steps by SGD with momentum.
Trained train(const Strategy& strategy, const data::Dataset& data, bool traced) {
  Sequential model;
  optimizers::Optimizer optimizer;
  random::set_seed(5);
  {
    auto scope = strategy.scope();
    model = Sequential({layers::Dense(16, {.activation = "relu", .input_shape = {6}}),
                        layers::Dropout(0.25), layers::Dense(8, {.activation = "tanh"}),
                        layers::Dense(3)});
    optimizer = optimizers::SGD({.learning_rate = 0.1, .momentum = 0.9});
  }
  random::set_seed(77);
  const auto replica_step = [&](const data::Example& batch) {
    return testing::step_of_replica(model, optimizer, batch);
  };
  const auto step = [&](const PerReplica<data::Example>& batch) {
    return strategy.reduce(ReduceOp::kSum, strategy.run(replica_step, batch));
  };
  const auto replayed = function(step);
  Trained result;
  for (const auto& batch : strategy.experimental_distribute_dataset(data)) {
    result.losses.push_back((traced ? replayed(batch) : step(batch)).item<float>());
    if (result.losses.size() == 50) break;
  }
  EXPECT_LE(replayed.num_traces(), 2u);
  for (int replica = 0; replica < strategy.num_replicas_in_sync(); ++replica) {
    auto& mine = result.weights.emplace_back();
    for (const Variable& variable : model.variables())
      mine.push_back(
          variable.impl().storage().value(static_cast<std::size_t>(replica)).to_vector<float>());
  }
  return result;
}

void expect_close(const std::vector<float>& a, const std::vector<float>& b) {
  ASSERT_EQ(a.size(), b.size());
  double largest = 0;
  for (float value : b) largest = std::max(largest, std::abs(static_cast<double>(value)));
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e-5 * largest);
}

void expect_same(const Trained& a, const Trained& b) {
  expect_close(a.losses, b.losses);
  ASSERT_EQ(a.weights[0].size(), b.weights[0].size());
  for (std::size_t v = 0; v < a.weights[0].size(); ++v)
    expect_close(a.weights[0][v], b.weights[0][v]);
  for (const auto& copy : a.weights) EXPECT_EQ(copy, a.weights[0]);
}

TEST(TracedStrategy, TwoReplicasEqualOneDeviceAndTheEagerStep) {
  const MirroredStrategy two = cpus(2);
  const distribute::OneDeviceStrategy one("/cpu:0");
  const auto data = uneven(27, 8);  // 8, 8, 8, 3
  const Trained traced = train(two, data, true);
  expect_same(traced, train(one, data, false));
  expect_same(traced, train(two, data, false));
  expect_same(train(one, data, true), train(one, data, false));
}

TEST(TracedStrategy, AReplicaWithoutExamplesIsInactive) {
  const MirroredStrategy three = cpus(3);
  const distribute::OneDeviceStrategy one("/cpu:0");
  const auto data = uneven(17, 5);  // 5, 5, 5, 2
  expect_same(train(three, data, true), train(one, data, false));
}

TEST(TracedStrategy, TwoEmulatedGpusEqualOneDevice) {
  testing::use_gpus(2, 256);
  const MirroredStrategy two({.devices = {"/gpu:0", "/gpu:1"}});
  const distribute::OneDeviceStrategy one("/cpu:0");
  const auto data = uneven(27, 8);
  expect_same(train(two, data, true), train(one, data, false));
}

TEST(TracedStrategy, ACpuAndAGpuEqualOneDevice) {
  TANDEM_EMULATION_ONLY("the copies of a CPU and a real GPU differ in their last bits");
  testing::use_gpus(1, 256);
  const MirroredStrategy two({.devices = {"/cpu:0", "/gpu:0"}});
  const distribute::OneDeviceStrategy one("/cpu:0");
  const auto data = uneven(27, 8);
  expect_same(train(two, data, true), train(one, data, false));
}

TEST(TracedStrategy, TheSameSeedGivesTheSameBits) {
  const MirroredStrategy two = cpus(2);
  const auto data = uneven(27, 8);
  const Trained first = train(two, data, true), second = train(two, data, true);
  EXPECT_EQ(first.weights, second.weights);
  EXPECT_EQ(first.losses, second.losses);
}

TEST(TracedStrategy, EveryCrossDeviceOperationGivesTheSame) {
  config::set_logical_cpus(3);
  const distribute::OneDeviceStrategy one("/cpu:0");
  const auto data = uneven(25, 7);
  const Trained expected = train(one, data, false);
  for (const auto& ops : {distribute::HierarchicalCopyAllReduce({.num_packs = 0}),
                          distribute::HierarchicalCopyAllReduce({.num_packs = 4}),
                          distribute::ReductionToOneDevice({.reduce_to_device = "/cpu:2"})}) {
    const MirroredStrategy three(
        {.devices = {"/cpu:0", "/cpu:1", "/cpu:2"}, .cross_device_ops = ops});
    expect_same(train(three, data, true), expected);
  }
}

TEST(TracedStrategy, GradientsAreSummedOnADeviceWithoutAReplica) {
  testing::use_gpus(2, 64);
  const auto data = uneven(25, 7);
  const Trained expected = train(distribute::OneDeviceStrategy("/cpu:0"), data, false);
  const MirroredStrategy two(
      {.devices = {"/gpu:0", "/gpu:1"},
       .cross_device_ops = distribute::ReductionToOneDevice({.reduce_to_device = "/cpu:0"})});
  expect_same(train(two, data, true), expected);
}

TEST(TracedStrategy, VariablesUseTheirAggregation) {
  const MirroredStrategy two = cpus(2);
  Variable mean, first, sum, state;
  {
    auto scope = two.scope();
    mean = Variable(constant({0.0f}), {.aggregation = VariableAggregation::kMean});
    first = Variable(constant({0.0f}), {.aggregation = VariableAggregation::kOnlyFirstReplica});
    sum = Variable(constant({0.0f}), {.aggregation = VariableAggregation::kSum});
    state = Variable(constant({0.0f}), {.trainable = false,
                                        .synchronization = VariableSynchronization::kOnRead,
                                        .aggregation = VariableAggregation::kMean});
  }
  const auto step = function([&](const Tensor& x) {
    const auto doubled = two.run([&] {
      const Tensor mine = x * (1.0 + distribute::replica_id_in_sync_group());
      mean.assign(mine);
      first.assign(mine);
      sum.assign_add(mine);
      state.assign(mine);
      return reshape(mine, {1});
    });
    return two.gather(doubled, 0);
  });
  EXPECT_EQ(step(constant({4.0f})).to_vector<float>(), (std::vector<float>{4, 8}));
  EXPECT_EQ(step(constant({2.0f})).to_vector<float>(), (std::vector<float>{2, 4}));
  for (const Tensor& copy : testing::copies_of(mean)) EXPECT_EQ(copy.to_vector<float>()[0], 3.0f);
  for (const Tensor& copy : testing::copies_of(first)) EXPECT_EQ(copy.to_vector<float>()[0], 2.0f);
  const Tensor total = sum.value();
  EXPECT_EQ(state.value().to_vector<float>()[0], 3.0f);
  for (const Tensor& copy : testing::copies_of(sum))
    EXPECT_EQ(copy.to_vector<float>(), total.to_vector<float>());
}

TEST(TracedStrategy, EagerReplicasMayCallAFunction) {
  const MirroredStrategy two = cpus(2);
  const distribute::OneDeviceStrategy one("/cpu:0");
  const auto run = [](const Strategy& strategy, bool traced) {
    Variable w;
    optimizers::Optimizer optimizer;
    {
      auto scope = strategy.scope();
      w = Variable(constant({1.0f, -2.0f, 3.0f, 0.5f, 0.0f, 1.0f}));
      optimizer = optimizers::Adam();
    }
    const auto step = [&](const Tensor& x) {
      GradientTape tape;
      const Tensor loss = nn::compute_average_loss(reduce_sum(square(x * w), {.axis = Dims{1}}));
      optimizer.apply_gradients({tape.gradient(loss, w)}, {w});
    };
    const auto replayed = function(step);
    int steps = 0;
    for (const auto& batch : strategy.experimental_distribute_dataset(uneven(9, 4))) {
      strategy.run([&](const data::Example& mine) { traced ? replayed(mine[0]) : step(mine[0]); },
                   batch);
      if (++steps == 12) break;
    }
    return testing::copies_of(w).back().to_vector<float>();
  };
  expect_close(run(two, true), run(one, false));
}

TEST(TracedStrategy, ReducesAlongAnAxisOfAnySize) {
  const MirroredStrategy two = cpus(2);
  const auto along = [&](ReduceOp op) {
    return function([&two, op](const PerReplica<Tensor>& x) { return two.reduce(op, x, 0); },
                    {.input_signature = {{.shape = {-1, 2}}, {.shape = {-1, 2}}}});
  };
  const auto mean = along(ReduceOp::kMean), sum = along(ReduceOp::kSum),
             max = along(ReduceOp::kMax);
  const PerReplica<Tensor> small({ones({1, 2}), ones({1, 2}) * 4.0});
  const PerReplica<Tensor> large({ones({3, 2}), ones({2, 2}) * 6.0});
  EXPECT_EQ(mean(small).to_vector<float>(), (std::vector<float>{2.5f, 2.5f}));
  EXPECT_EQ(mean(large).to_vector<float>(), (std::vector<float>{3.0f, 3.0f}));
  EXPECT_EQ(sum(large).to_vector<float>(), (std::vector<float>{15.0f, 15.0f}));
  EXPECT_EQ(max(large).to_vector<float>(), (std::vector<float>{6.0f, 6.0f}));
  EXPECT_EQ(mean.num_traces(), 1u);
  const auto exact =
      function([&](const PerReplica<Tensor>& x) { return two.reduce(ReduceOp::kMean, x, -2); });
  EXPECT_EQ(exact(large).to_vector<float>(), (std::vector<float>{3.0f, 3.0f}));
}

// The forward pass of each replica is traced; the backward pass and the optimizer are not.
TEST(TracedStrategy, EagerReplicasMayBackpropagateThroughAFunction) {
  const auto run = [](const Strategy& strategy, bool traced) {
    Sequential model;
    optimizers::Optimizer optimizer;
    random::set_seed(5);
    {
      auto scope = strategy.scope();
      model = Sequential({layers::Dense(8, {.activation = "tanh", .input_shape = {6}}),
                          layers::Dropout(0.25), layers::Dense(3)});
      optimizer = optimizers::SGD({.learning_rate = 0.1, .momentum = 0.9});
    }
    random::set_seed(77);
    const auto forward = [&](const Tensor& x) { return model(x, {.training = true}); };
    const auto replayed = function(forward);
    std::vector<float> results;
    for (const auto& batch : strategy.experimental_distribute_dataset(uneven(27, 8))) {
      const auto losses = strategy.run(
          [&](const data::Example& mine) {
            const Tensor loss = nn::compute_average_loss(nn::sparse_softmax_cross_entropy(
                mine[1], traced ? replayed(mine[0]) : forward(mine[0])));
            optimizer.minimize(loss, model.trainable_variables());
            return loss;
          },
          batch);
      results.push_back(strategy.reduce(ReduceOp::kSum, losses).item<float>());
      if (results.size() == 50) break;
    }
    // One trace per replica and size of its part: 4 and 4, 2 and 1.
    EXPECT_LE(replayed.num_traces(), 4u);
    for (const Variable& variable : model.variables()) {
      const std::vector<Tensor> copies = testing::copies_of(variable);
      const std::vector<float> values = copies.back().to_vector<float>();
      for (const Tensor& copy : copies) EXPECT_EQ(copy.to_vector<float>(), values);
      results.insert(results.end(), values.begin(), values.end());
    }
    return results;
  };
  const MirroredStrategy two = cpus(2);
  const distribute::OneDeviceStrategy one("/cpu:0");
  const std::vector<float> expected = run(one, false);
  expect_close(run(two, true), expected);
  expect_close(run(one, true), expected);
  EXPECT_EQ(run(two, true), run(two, true));
}

TEST(TracedStrategy, AnErrorWhileAReplicaIsTracedIsThrown) {
  const MirroredStrategy two = cpus(2);
  const auto step = function([&](const Tensor& x) {
    two.run([&] {
      if (distribute::replica_id_in_sync_group() == 1)
        throw OutOfRangeError("[test] the second replica");
      return x;
    });
  });
  EXPECT_THROW(step(constant({1.0f})), OutOfRangeError);
}

TEST(TracedStrategy, AReplicaThatFailsInARunAbortsTheOthers) {
  const MirroredStrategy two = cpus(2);
  Variable w;
  optimizers::Optimizer optimizer = optimizers::SGD({.learning_rate = 0.5});
  {
    auto scope = two.scope();
    w = Variable(zeros({3}));
  }
  const auto step = function([&](const PerReplica<data::Example>& batch) {
    two.run(
        [&](const data::Example& mine) {
          const Tensor logits = mine[0] + w;
          optimizer.minimize(
              nn::compute_average_loss(nn::sparse_softmax_cross_entropy(mine[1], logits)), {w});
        },
        batch);
  });
  const auto run = [&](int last_label) {
    const auto data = data::Dataset::from_tensors({zeros({4, 3}), constant({0, 1, 2, last_label})});
    for (const auto& batch : two.experimental_distribute_dataset(data)) step(batch);
  };
  run(0);
  const std::vector<float> before = w.value().to_vector<float>();
  EXPECT_THROW(run(7), InvalidArgumentError);  // of replica 1; replica 0 waits for its gradient
  EXPECT_EQ(w.value().to_vector<float>(), before);
  run(0);
  EXPECT_NE(w.value().to_vector<float>(), before);
}

TEST(TracedStrategy, MismatchedCollectivesAreRefused) {
  const MirroredStrategy two = cpus(2);
  Variable v;
  {
    auto scope = two.scope();
    v = Variable(zeros({1}), {.aggregation = VariableAggregation::kSum});
  }
  const auto step = function([&](const Tensor& x) {
    two.run([&] {
      if (distribute::replica_id_in_sync_group() == 0) v.assign(x);
    });
  });
  expect_error<InvalidArgumentError>([&] { step(constant({1.0f})); },
                                     "every replica must call the same ones");
}

TEST(TracedStrategy, GradientsThatOnlyALaterReplicaHasAreRefused) {
  const MirroredStrategy two = cpus(2);
  Variable a, b;
  optimizers::Optimizer optimizer = optimizers::SGD({.learning_rate = 0.5});
  {
    auto scope = two.scope();
    a = Variable(constant({1.0f}), {.name = "a"});
    b = Variable(constant({1.0f}), {.name = "b"});
  }
  const auto step = [&](int owner) {
    return function([&, owner](const Tensor& x) {
      two.run([&] {
        GradientTape tape;
        Tensor loss = reduce_sum(x * a);
        if (distribute::replica_id_in_sync_group() == owner) loss = loss + reduce_sum(x * b);
        optimizer.apply_gradients(tape.gradient(loss, std::vector<Variable>{a, b}), {a, b});
      });
    });
  };
  step(0)(constant({1.0f}));  // the second one adds zeros
  EXPECT_EQ(a.value().item<float>(), 0.0f);
  EXPECT_EQ(b.value().item<float>(), 0.5f);
  expect_error<InvalidArgumentError>([&] { step(1)(constant({1.0f})); }, "'b' has a gradient");
}

}  // namespace
}  // namespace tandem::traced_test
