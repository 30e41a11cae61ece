// Models whose layers make their variables when strategy.run() first calls them.
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>

#include "distribute/multi_worker_training.h"
#include "support/copies.h"
#include "support/gpus.h"
#include "support/strategies.h"
#include "support/tensors.h"
#include "support/workers.h"
#include "tandem/tandem.h"

namespace tandem::first_call_test {
namespace {

using distribute::PerReplica;
using distribute::Strategy;
using testing::copies_of;
using testing::expect_error;
using testing::uneven;
using testing::values_of;

// Replicas on the first of three CPUs.
distribute::MirroredStrategy replicas(int count) {
  config::set_logical_cpus(3);
  distribute::MirroredOptions options;
  for (int i = 0; i < count; ++i) options.devices.push_back("/cpu:" + std::to_string(i));
  return distribute::MirroredStrategy(options);
}

// Random numbers before, between and after the layers that are built.
class Noisy : public layers::Layer {
 public:
  Tensor call(const Tensor& inputs, bool training) override {
    const Tensor hidden = dropout(normalized(first(inputs)), training);
    return training ? second(nn::dropout(hidden, 0.25)) : second(hidden);
  }
  layers::Dense first{16, {.activation = "tanh"}}, second{3};
  layers::BatchNormalization normalized;
  layers::Dropout dropout{0.25};
};

enum class Traced { kNo, kRun, kReplica };

// Trains a model without input shape for 20 steps. Returns the losses and the values of its
// variables, of which all copies are equal.
std::vector<double> train(const Strategy& strategy, Traced traced = Traced::kNo,
                          bool normalized = true) {
  random::set_seed(5);
  Sequential model;
  optimizers::Optimizer optimizer;
  {
    auto scope = strategy.scope();
    if (normalized)
      model = Sequential({layers::Dropout(0.1), Noisy()});
    else
      model = Sequential({layers::Dropout(0.1), layers::Dense(16, {.activation = "relu"}),
                          layers::Dropout(0.25), layers::Dense(3)});
    optimizer = optimizers::SGD({.learning_rate = 0.1, .momentum = 0.9});
  }
  const auto replica_step = [&](const data::Example& batch) {
    return testing::step_of_replica(model, optimizer, batch);
  };
  const auto traced_step = function(replica_step);
  const auto step = [&](const PerReplica<data::Example>& batch) {
    return strategy.reduce(ReduceOp::kSum, traced == Traced::kReplica
                                               ? strategy.run(traced_step, batch)
                                               : strategy.run(replica_step, batch));
  };
  const auto replayed = function(step);
  std::vector<double> result;
  for (const auto& batch : strategy.experimental_distribute_dataset(uneven(30, 8))) {
    result.push_back((traced == Traced::kRun ? replayed(batch) : step(batch)).item());
    if (result.size() == 20) break;
  }
  for (const Variable& variable : model.trainable_variables()) {
    const std::vector<Tensor> copies = copies_of(variable);
    for (const Tensor& copy : copies) EXPECT_EQ(values_of(copy), values_of(copies[0]));
    for (double value : values_of(variable.value())) result.push_back(value);
  }
  return result;
}

void expect_close(const std::vector<double>& a, const std::vector<double>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i)
    EXPECT_NEAR(a[i], b[i], 1e-5 * std::fmax(1.0, std::abs(b[i]))) << i;
}

// Batch normalisation computes moments of each replica's examples, so it is left out where results
// are compared.
TEST(FirstCall, BuildsTheModelAsOneDeviceDoes) {
  config::set_logical_cpus(3);
  const std::vector<double> alone = train(distribute::DefaultStrategy(), Traced::kNo, false);
  EXPECT_LT(alone[19], alone[0]);
  for (int count : {1, 2, 3}) {
    const auto strategy = replicas(count);
    for (const Traced traced : {Traced::kNo, Traced::kReplica})
      expect_close(train(strategy, traced, false), alone);
  }
  expect_close(train(distribute::OneDeviceStrategy("/cpu:1"), Traced::kNo, false), alone);
  expect_close(train(distribute::CentralStorageStrategy(
                         {.compute_devices = {"/cpu:0", "/cpu:1"}, .parameter_device = "/cpu:2"}),
                     Traced::kNo, false),
               alone);
}

TEST(FirstCall, OfATracedRunBuildsTheModel) {
  config::set_logical_cpus(3);
  const std::vector<double> alone = train(distribute::DefaultStrategy(), Traced::kRun, false);
  expect_close(train(replicas(2), Traced::kRun, false), alone);
}

TEST(FirstCall, BuildsLayersOfUsersClassesOnce) {
  const auto strategy = replicas(3);
  for (const Traced traced : {Traced::kNo, Traced::kRun, Traced::kReplica}) {
    const std::vector<double> result = train(strategy, traced);
    EXPECT_LT(result[19], result[0]);
    EXPECT_EQ(result.size(), 20u + 6 * 16 + 16 + 2 * 16 + 16 * 3 + 3);
    // Whichever replica has built the layers.
    EXPECT_EQ(train(strategy, traced), result) << static_cast<int>(traced);
  }
}

TEST(FirstCall, OnEmulatedGpusBuildsTheModel) {
  testing::use_gpus(2, 256);
  const distribute::MirroredStrategy strategy({.devices = {"/gpu:0", "/gpu:1"}});
  const std::vector<double> result = train(strategy, Traced::kNo, false);
  EXPECT_LT(result[19], result[0]);
  EXPECT_EQ(train(strategy, Traced::kNo, false), result);
}

TEST(FirstCall, ThatFailsIsTheErrorAndTheNextOneBuilds) {
  const auto strategy = replicas(2);
  Sequential model({layers::Dense(3), layers::Dense(2)});
  const auto call = [&](const Tensor& x) { return model(x); };
  expect_error<InvalidArgumentError>([&] { strategy.run(call, zeros({})); }, "dense");
  strategy.run(call, ones({2, 5}));
  EXPECT_EQ(model.variables().size(), 4u);
  EXPECT_EQ(model.variables()[0].shape(), Shape({5, 3}));
  EXPECT_EQ(copies_of(model.variables()[0]).size(), 2u);
}

TEST(FirstCall, DoesNotMakeVariablesOfTheStepItself) {
  const auto strategy = replicas(2);
  expect_error<FailedPreconditionError>(
      [&] { strategy.run([] { return Variable(zeros({1})).value(); }); },
      "create variables in strategy.scope(), before run() (models and layers make theirs at their "
      "first call)");
}

// All workers have the chief's weights.
TEST(FirstCall, OnSeveralWorkersBuildsTheModel) {
  const auto results = testing::run_workers(2, [](int) {
    config::set_logical_cpus(2);
    const distribute::MultiWorkerMirroredStrategy strategy(
        {.timeout = testing::kFarAway, .devices = {"/cpu:0", "/cpu:1"}});
    return testing::text_of(train(strategy, Traced::kNo, false));
  });
  EXPECT_EQ(results[0], results[1]);
  testing::ChildProcess alone(
      [] { return testing::text_of(train(distribute::DefaultStrategy(), Traced::kNo, false)); });
  expect_close(testing::numbers_of(results[0]), testing::numbers_of(alone.result()));
}

}  // namespace
}  // namespace tandem::first_call_test
