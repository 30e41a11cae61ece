// Layers and optimizers inside the replicas of a strategy.
#include <gtest/gtest.h>

#include "support/copies.h"
#include "support/tensors.h"
#include "tandem/tandem.h"

namespace tandem::nn_parts_test {
namespace {

using distribute::MirroredStrategy;
using testing::expect_error;
using testing::expect_tensor;
using testing::random_tensor;
using testing::values_of;

MirroredStrategy two_cpus() {
  config::set_logical_cpus(2);
  return MirroredStrategy({.devices = {"/cpu:0", "/cpu:1"}});
}

// Each replica's value of a variable.
std::vector<std::vector<double>> copies_of(const Variable& variable) {
  std::vector<std::vector<double>> values;
  for (const Tensor& copy : testing::copies_of(variable)) values.push_back(values_of(copy));
  return values;
}

void expect_equal_copies(const std::vector<Variable>& variables) {
  for (const Variable& variable : variables) {
    const auto copies = copies_of(variable);
    for (const auto& copy : copies) EXPECT_EQ(copy, copies[0]) << variable.name();
  }
}

struct Trained {
  Layer model;
  optimizers::Optimizer optimizer;
};

// Steps of Adam with clipping by the global norm of the summed gradients, over batches of 5 and 1.
// In the latter the second replica is inactive.
Trained train(const distribute::Strategy& strategy) {
  Trained trained;
  {
    auto scope = strategy.scope();
    random::set_seed(3);
    trained.model = layers::Stack({layers::Dense(8, {.activation = "tanh"}), layers::Dense(1)});
    const Shape shape{-1, 3};
    trained.model.base().ensure_built({&shape, 1});
    trained.optimizer =
        optimizers::Adam({.learning_rate = optimizers::schedules::exponential_decay(0.1, 5, 0.9),
                          .global_clipnorm = 0.5});
  }
  const auto data = data::Dataset::from_tensor_slices({random_tensor({6, 3}, 1, -1, 1, float32),
                                                       random_tensor({6, 1}, 2, -1, 1, float32)})
                        .batch(5)
                        .repeat(6);
  for (const auto& batch : strategy.experimental_distribute_dataset(data))
    strategy.run(
        [&](const data::Example& examples) {
          const Tensor each =
              losses::mse(examples[1], trained.model(examples[0], {.training = true}));
          trained.optimizer.minimize(nn::compute_average_loss(each),
                                     trained.model.trainable_variables());
        },
        batch);
  return trained;
}

TEST(NnInReplicas, MinimizeEqualsOneDeviceWithAnInactiveReplica) {
  const Trained two = train(two_cpus()), one = train(distribute::OneDeviceStrategy("/cpu:0"));
  const auto actual = two.model.variables(), expected = one.model.variables();
  ASSERT_EQ(actual.size(), expected.size());
  for (std::size_t i = 0; i < actual.size(); ++i)
    expect_tensor(actual[i], float32, expected[i].shape(), values_of(expected[i]), 1e-5);
  expect_equal_copies(actual);
  expect_equal_copies(two.optimizer.variables());
  EXPECT_EQ(two.optimizer.iterations(), 12);
  EXPECT_EQ(two.optimizer.learning_rate(), one.optimizer.learning_rate());
}

TEST(NnInReplicas, SlotsHaveACopyBesideEachOfTheVariable) {
  const MirroredStrategy strategy = two_cpus();
  auto scope = strategy.scope();
  const Variable w(ones({4}), {.name = "w"});
  optimizers::Optimizer optimizer = optimizers::SGD({.momentum = 0.9});
  optimizer.build({w});
  const auto variables = optimizer.variables();
  ASSERT_EQ(variables.size(), 2u);
  for (std::size_t replica = 0; replica < 2; ++replica) {
    EXPECT_EQ(variables[1].impl().storage().value(replica).device(),
              w.impl().storage().value(replica).device());
    EXPECT_EQ(variables[0].impl().storage().value(replica).device(),
              w.impl().storage().value(0).device());  // the host
  }
}

TEST(NnInReplicas, AStepOutsideReplicasChangesEveryCopy) {
  const MirroredStrategy strategy = two_cpus();
  auto scope = strategy.scope();
  const Variable w(ones({2}), {.name = "w"});
  optimizers::Optimizer optimizer = optimizers::SGD({.learning_rate = 0.5});
  optimizer.apply_gradients({ones({2})}, {w});
  EXPECT_EQ(copies_of(w), (std::vector<std::vector<double>>{{0.5, 0.5}, {0.5, 0.5}}));
  expect_equal_copies(optimizer.variables());
}

// Each example has two labels, as rows of the logits or along an axis.
TEST(NnInReplicas, AnErrorNamesThePositionOfALabelInTheGlobalBatch) {
  const MirroredStrategy strategy = two_cpus();
  std::vector<std::int64_t> labels(10, 0);
  labels[9] = 7;  // the second of example 4, which is the second replica's second
  const auto data =
      data::Dataset::from_tensor_slices({constant(labels, {.shape = {5, 2}}), ones({5, 2, 3})})
          .batch(5);
  for (const Dims& rows : {Dims{-1}, Dims{-1, 2}}) {
    const auto step = [&](const data::Example& batch) {
      Dims logits = rows;
      logits.push_back(3);
      return reduce_sum(nn::sparse_softmax_cross_entropy(reshape(batch[0], Shape(rows)),
                                                         reshape(batch[1], Shape(logits))));
    };
    const auto summed = [&](const distribute::PerReplica<data::Example>& batch) {
      return strategy.reduce(ReduceOp::kSum, strategy.run(step, batch));
    };
    const auto traced = function(summed);
    for (const auto& batch : strategy.experimental_distribute_dataset(data)) {
      const char* expected = "label 7 at position 9 is outside the valid range [0, 3)";
      expect_error<InvalidArgumentError>([&] { summed(batch).item<float>(); }, expected);
      expect_error<InvalidArgumentError>([&] { traced(batch).item<float>(); }, expected);
    }
  }
}

TEST(NnInReplicas, GradientsThatOnlySomeReplicasHaveAreSummed) {
  const MirroredStrategy strategy = two_cpus();
  Variable a, b, c;
  optimizers::Optimizer optimizer = optimizers::SGD({.learning_rate = 1.0});
  {
    auto scope = strategy.scope();
    a = Variable(zeros({1}), {.name = "a"});
    b = Variable(zeros({1}), {.name = "b"});
    c = Variable(zeros({1}), {.name = "c"});
  }
  strategy.run([&] {
    const bool first = distribute::replica_id_in_sync_group() == 0;
    const Tensor loss = reduce_sum(first ? a * 2.0 + b : a * 3.0);
    optimizer.minimize(loss, {a, b, c});
  });
  EXPECT_EQ(copies_of(a), (std::vector<std::vector<double>>{{-5.0}, {-5.0}}));
  EXPECT_EQ(copies_of(b), (std::vector<std::vector<double>>{{-1.0}, {-1.0}}));
  EXPECT_EQ(copies_of(c), (std::vector<std::vector<double>>{{0.0}, {0.0}}));
}

TEST(NnInReplicas, SummedGradientsMayBeGiven) {
  const MirroredStrategy strategy = two_cpus();
  Variable w;
  optimizers::Optimizer optimizer = optimizers::SGD({.learning_rate = 1.0});
  {
    auto scope = strategy.scope();
    w = Variable(zeros({1}), {.name = "w"});
  }
  strategy.run(
      [&] { optimizer.apply_gradients({ones({1})}, {w}, {.skip_gradients_aggregation = true}); });
  EXPECT_EQ(copies_of(w), (std::vector<std::vector<double>>{{-1.0}, {-1.0}}));
}

TEST(NnInReplicas, VariablesOfAnotherScopeAreRefused) {
  const MirroredStrategy strategy = two_cpus();
  const Variable outside(ones({2}), {.name = "outside"});
  optimizers::Optimizer optimizer = optimizers::SGD();
  const std::string text =
      "[sgd] Trying to create optimizer slot variable under the scope for a strategy of 2 "
      "replica(s), which is "
      "different from the scope used for the original variable ('outside', created for 1)";
  expect_error<InvalidArgumentError>(
      [&] { strategy.run([&] { optimizer.apply_gradients({ones({2})}, {outside}); }); }, text);
  {
    auto scope = strategy.scope();
    optimizer.build({Variable(ones({2}), {.name = "inside"})});
  }
  expect_error<InvalidArgumentError>([&] { optimizer.build({outside}); }, text);
}

TEST(NnInReplicas, BatchNormalizationAveragesItsMomentsWhenRead) {
  const MirroredStrategy strategy = two_cpus();
  Layer layer;
  {
    auto scope = strategy.scope();
    layer = layers::BatchNormalization({.momentum = 0.5});
    const Shape shape{-1, 1};
    layer.base().ensure_built({&shape, 1});
  }
  const auto data = data::Dataset::from_tensors({constant({{1.0}, {3.0}, {10.0}, {20.0}})});
  for (const auto& batch : strategy.experimental_distribute_dataset(data))
    strategy.run([&](const data::Example& examples) { layer(examples[0], {.training = true}); },
                 batch);
  const auto variables = layer.non_trainable_variables();
  EXPECT_EQ(copies_of(variables[0]), (std::vector<std::vector<double>>{{1.0}, {7.5}}));
  expect_tensor(variables[0], float32, {1}, {4.25}, 1e-6);  // means 2 and 15, half way from 0
  expect_tensor(variables[1], float32, {1}, {(1.0 + 13.0) / 2},
                1e-6);  // variances 1 and 25, half way from 1
}

}  // namespace
}  // namespace tandem::nn_parts_test
