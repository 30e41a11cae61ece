// Training under CentralStorageStrategy equals training on one device and under MirroredStrategy.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <limits>
#include <stdexcept>

#include "support/errors.h"
#include "support/files.h"
#include "support/gpus.h"
#include "support/invariance.h"
#include "support/tensors.h"
#include "tandem/tandem.h"

namespace tandem::central_storage_test {
namespace {

using distribute::CentralStorageStrategy;
using distribute::DefaultStrategy;
using distribute::MirroredStrategy;
using distribute::OneDeviceStrategy;
using distribute::PerReplica;
using distribute::Strategy;
using testing::expect_error;
using testing::values_of;

std::vector<std::string> gpus(int count) {
  std::vector<std::string> names;
  for (int i = 0; i < count; ++i) names.push_back("/gpu:" + std::to_string(i));
  return names;
}

CentralStorageStrategy central(int count, const std::string& parameter_device = "/cpu:0") {
  return CentralStorageStrategy(
      {.compute_devices = gpus(count), .parameter_device = parameter_device});
}

using Numbers = std::vector<double>;

void append(Numbers& numbers, const std::vector<Variable>& variables) {
  for (const Variable& variable : variables)
    for (const double value : values_of(variable.value())) numbers.push_back(value);
}

void expect_close(const Numbers& actual, const Numbers& expected, double tolerance = 1e-5) {
  ASSERT_EQ(actual.size(), expected.size());
  for (std::size_t i = 0; i < actual.size(); ++i)
    EXPECT_NEAR(actual[i], expected[i], tolerance * std::max(1.0, std::abs(expected[i]))) << i;
}

// `count` examples; the last batch of each pass is smaller.
data::Dataset uneven(std::int64_t count, std::int64_t batch) {
  const DeviceScope cpu("/cpu:0");
  random::set_seed(9);
  const Tensor x = random::normal({count, 6});
  return data::Dataset::from_tensor_slices({x, argmax(slice(x, {0, 0}, {-1, 3}), 1)}).batch(batch);
}

// --- loops of the caller's own ---

// Which part of a step is a traced function: none, all of it, each replica's step, or the forward
// pass of each replica.
enum class Traced { kNothing, kAll, kReplicaStep, kForward };

// The losses and the weights of 30 steps of Adam with a bound on the gradients' norm.
Numbers train(const Strategy& strategy, Traced traced, std::int64_t examples = 27) {
  Sequential model;
  optimizers::Optimizer optimizer;
  random::set_seed(5);
  {
    const auto scope = strategy.scope();
    model = Sequential({layers::Dense(16, {.activation = "relu", .input_shape = {6}}),
                        layers::Dropout(0.25), layers::Dense(3)});
    optimizer = optimizers::Adam({.learning_rate = 0.02, .global_clipnorm = 0.5});
  }
  random::set_seed(77);
  const auto forward = [&](const Tensor& x, const Tensor& y) {
    return nn::compute_average_loss(
        nn::sparse_softmax_cross_entropy(y, model(x, {.training = true})));
  };
  const auto replayed_forward = function(forward);
  const auto replica_step = [&](const Tensor& x, const Tensor& y) {
    const Tensor loss = traced == Traced::kForward ? replayed_forward(x, y) : forward(x, y);
    optimizer.minimize(loss, model.trainable_variables());
    return loss.detach();
  };
  const auto replayed_replica_step = function(replica_step);
  const auto step = [&](const PerReplica<data::Example>& batch) {
    const auto losses = strategy.run(
        [&](const data::Example& mine) {
          return traced == Traced::kReplicaStep ? replayed_replica_step(mine[0], mine[1])
                                                : replica_step(mine[0], mine[1]);
        },
        batch);
    return strategy.reduce(ReduceOp::kSum, losses);
  };
  const auto replayed = function(step);
  Numbers result;
  for (const auto& batch : strategy.experimental_distribute_dataset(uneven(examples, 8).repeat())) {
    result.push_back((traced == Traced::kAll ? replayed(batch) : step(batch)).item<float>());
    if (result.size() == 30) break;
  }
  append(result, model.variables());
  append(result, optimizer.variables());
  return result;
}

class CentralStorage : public ::testing::TestWithParam<bool> {
 protected:
  static Traced mode() { return GetParam() ? Traced::kAll : Traced::kNothing; }
};
INSTANTIATE_TEST_SUITE_P(Eager, CentralStorage, ::testing::Values(false));
INSTANTIATE_TEST_SUITE_P(Traced, CentralStorage, ::testing::Values(true));

// The last batch has 3 examples, so that of four replicas one has none.
TEST_P(CentralStorage, StepsOnGpusEqualThoseOfOneDevice) {
  testing::use_gpus(4, 64);
  const Numbers expected = train(OneDeviceStrategy("/cpu:0"), Traced::kNothing);
  for (const int replicas : {1, 2, 4}) {
    SCOPED_TRACE(replicas);
    expect_close(train(central(replicas), mode()), expected);
  }
  expect_close(train(central(2, "/gpu:0"), mode()), expected);
  expect_close(train(central(2, "/gpu:1"), mode()), expected);
  expect_close(train(central(2, "/gpu:3"), mode()), expected);
}

TEST_P(CentralStorage, StepsOnCpusEqualThoseOfOneDevice) {
  config::set_logical_cpus(3);
  const Numbers expected = train(OneDeviceStrategy("/cpu:0"), Traced::kNothing);
  for (const char* parameters : {"", "/cpu:1", "/cpu:2"}) {
    SCOPED_TRACE(parameters);
    expect_close(train(CentralStorageStrategy({.compute_devices = {"/cpu:0", "/cpu:1"},
                                               .parameter_device = parameters}),
                       mode()),
                 expected);
  }
}

TEST_P(CentralStorage, StepsOnACpuAndAGpuEqualThoseOfOneDevice) {
  testing::use_gpus(1, 64);
  const Numbers expected = train(OneDeviceStrategy("/cpu:0"), Traced::kNothing);
  for (const std::vector<std::string>& devices :
       {std::vector<std::string>{"/cpu:0", "/gpu:0"}, {"/gpu:0", "/cpu:0"}})
    expect_close(train(CentralStorageStrategy({.compute_devices = devices}), mode()), expected);
}

// Batches of 2 for three and four replicas.
TEST_P(CentralStorage, FewerExamplesThanReplicas) {
  testing::use_gpus(4, 64);
  const Numbers expected = train(OneDeviceStrategy("/cpu:0"), Traced::kNothing, 10);
  for (const int replicas : {3, 4}) expect_close(train(central(replicas), mode(), 10), expected);
}

TEST_P(CentralStorage, HasTheBitsOfCopiesWhoseGradientsAreSummedOnOneDevice) {
  TANDEM_EMULATION_ONLY("a CPU and a real GPU differ in their last bits");
  testing::use_gpus(3, 64);
  const MirroredStrategy mirrored(
      {.devices = gpus(3), .cross_device_ops = distribute::ReductionToOneDevice()});
  const Numbers first = train(central(3), mode());
  const Numbers copies = train(mirrored, mode());
  // The optimizer's slots of MirroredStrategy follow the same order.
  EXPECT_EQ(first, copies);
  EXPECT_EQ(train(central(3), mode()), first);
}

TEST(CentralStorageStrategy, ReplicasMayCallTracedFunctions) {
  testing::use_gpus(4, 64);
  const Numbers expected = train(OneDeviceStrategy("/cpu:0"), Traced::kNothing);
  for (const Traced traced : {Traced::kReplicaStep, Traced::kForward})
    for (const char* parameters : {"/cpu:0", "/gpu:0", "/gpu:2"}) {
      SCOPED_TRACE(parameters);
      for (const int replicas : {1, 2, 4})
        expect_close(train(central(replicas, parameters), traced), expected);
    }
}

// Replica-invariant: see replica_invariance_test.cc.
TEST(CentralStorageStrategy, HasTheSameBitsOnAnyNumberOfReplicas) {
  const auto run = [](int replicas, bool eagerly) {
    return testing::ChildProcess([=] {
             testing::use_cpus(5, 1);
             std::vector<std::string> devices;
             for (int i = 0; i < replicas; ++i) devices.push_back("/cpu:" + std::to_string(i));
             const testing::InvariantRun run{.run_eagerly = eagerly};
             if (replicas == 0) return testing::fit_invariant(DefaultStrategy(), run);
             return testing::fit_invariant(
                 CentralStorageStrategy({.compute_devices = devices, .parameter_device = "/cpu:4"}),
                 run);
           })
        .result();
  };
  const std::string expected = run(0, false);
  ASSERT_GT(testing::numbers_of(expected).size(), 100u) << expected;
  for (const int replicas : {1, 2, 4}) EXPECT_EQ(run(replicas, false), expected) << replicas;
  EXPECT_EQ(run(2, true), expected);
}

TEST(CentralStorageStrategy, MovingStatisticsAreRefusedInTheReplicaInvariantMode) {
  testing::use_gpus(2, 64);
  config::set_replica_invariant_parts(4);
  const CentralStorageStrategy strategy;
  const auto scope = strategy.scope();
  Sequential model({layers::BatchNormalization({.input_shape = {6}}), layers::Dense(1)});
  model.compile({.loss = "mse"});
  expect_error<UnimplementedError>(
      [&] {
        model.fit(ones({8, 6}), ones({8, 1}), {.verbose = 0});
      },
      "moving_mean");
}

// --- models ---

struct Settings {
  bool moments = false;
  bool eagerly = false;
  DTypePolicy policy = "float32";
};

Sequential make_model(const Strategy& strategy, const Settings& settings) {
  random::set_seed(4);
  const auto scope = strategy.scope();
  std::vector<Layer> layers = {
      layers::Dense(16, {.activation = "relu", .input_shape = {6}, .dtype = settings.policy}),
      layers::Dropout(0.3)};
  if (settings.moments) layers.push_back(layers::BatchNormalization());
  layers.push_back(layers::Dense(3));
  Sequential model(layers);
  model.compile({.optimizer = optimizers::SGD({.learning_rate = 0.1, .momentum = 0.9}),
                 .loss = losses::SparseCategoricalCrossentropy({.from_logits = true}),
                 .metrics = {"accuracy", "sparse_top_k_categorical_accuracy"},
                 .run_eagerly = settings.eagerly});
  return model;
}

data::Dataset batches() { return uneven(37, 8).shuffle(5, {.seed = 2}).prefetch(1); }

Numbers fit(const Strategy& strategy, const Settings& settings) {
  Sequential model = make_model(strategy, settings);
  const History history =
      model.fit(batches(), {.epochs = 3, .validation_data = batches(), .verbose = 0});
  Numbers result;
  for (const auto& [name, values] : history.history)
    result.insert(result.end(), values.begin(), values.end());
  append(result, model.variables());
  for (const auto& [name, value] : model.evaluate(batches())) result.push_back(value);
  const Tensor x = testing::random_tensor({11, 6}, 9, -1.0, 1.0, float32);
  for (const double value : values_of(model.predict(x, {.batch_size = 4}))) result.push_back(value);
  return result;
}

TEST_P(CentralStorage, FitEqualsThatOfOneDevice) {
  testing::use_gpus(4, 64);
  const Numbers expected = fit(DefaultStrategy(), {});
  for (const int replicas : {1, 2, 4}) {
    SCOPED_TRACE(replicas);
    expect_close(fit(central(replicas), {.eagerly = !GetParam()}), expected);
  }
}

// The statistics of batches are those of each replica, and the moving ones their averages.
// Evaluation differs: a replica of MirroredStrategy uses its own moving statistics.
TEST_P(CentralStorage, FitWithMovingStatisticsEqualsThatOfCopies) {
  testing::use_gpus(4, 64);
  const auto train = [](const Strategy& strategy, bool eagerly) {
    Sequential model = make_model(strategy, {.moments = true, .eagerly = eagerly});
    // Batches of 8, the last of 5, so that every replica has examples.
    Numbers result;
    for (const auto& [name, values] : model.fit(batches(), {.epochs = 3, .verbose = 0}).history)
      result.insert(result.end(), values.begin(), values.end());
    append(result, model.variables());
    return result;
  };
  for (const int replicas : {1, 2, 4}) {
    SCOPED_TRACE(replicas);
    expect_close(train(central(replicas), !GetParam()),
                 train(MirroredStrategy({.devices = gpus(replicas)}), false));
  }
}

TEST_P(CentralStorage, FitInMixedPrecisionEqualsThatOfCopies) {
  testing::use_gpus(2, 64);
  const Settings settings{.eagerly = !GetParam(), .policy = "mixed_float16"};
  expect_close(fit(central(2), settings), fit(MirroredStrategy({.devices = gpus(2)}), settings),
               1e-3);
}

TEST_P(CentralStorage, OneReplicasOverflowSkipsTheUpdate) {
  testing::use_gpus(2, 64);
  const CentralStorageStrategy strategy = central(2);
  const auto scope = strategy.scope();
  const Variable weight(ones({2}));
  auto optimizer = optimizers::LossScaleOptimizer(optimizers::SGD(0.5, {weight}));
  const auto step = [&](const Tensor& x) {
    strategy.run([&] {
      const double mine = distribute::replica_id_in_sync_group() == 1 ? 1.0 : 0.0;
      optimizer.minimize(reduce_sum(weight.value() * (1.0 - mine + x * mine)) * 0.5, {weight});
    });
  };
  const auto replayed = function(step);
  const auto take = [&](double x) {
    const Tensor given = full({2}, x);
    GetParam() ? replayed(given) : step(given);
  };
  take(std::numeric_limits<double>::infinity());
  EXPECT_EQ(values_of(weight), (Numbers{1.0, 1.0}));
  EXPECT_EQ(optimizer.loss_scale(), 32768.0);
  take(1.0);
  EXPECT_EQ(values_of(weight), (Numbers{0.5, 0.5}));
}

// Trains for two epochs. `crash`: ends with an error after so many steps.
Numbers train_in(const std::filesystem::path& backup, const Strategy& strategy, int crash = -1) {
  Sequential model = make_model(strategy, {.moments = true});
  const auto failing =
      callbacks::LambdaCallback({.on_train_batch_end = [&](Model&, std::int64_t, const auto&) {
        if (--crash == 0) throw std::runtime_error("crash");
      }});
  const auto run = [&] {
    model.fit(batches(),
              {.epochs = 2,
               .verbose = 0,
               .callbacks = {callbacks::BackupAndRestore(backup, {.save_freq = 1}), failing}});
  };
  if (crash > 0)
    EXPECT_THROW(run(), std::runtime_error);
  else
    run();
  Numbers result;
  append(result, model.variables());
  append(result, model.optimizer().variables());
  return result;
}

TEST(CentralStorageStrategy, TrainingResumesWithTheSameBits) {
  testing::use_gpus(2, 64);
  const testing::TemporaryDirectory directory;
  const Numbers expected = train_in(directory / "whole", central(2));
  train_in(directory / "b", central(2), 7);
  EXPECT_EQ(train_in(directory / "b", central(2)), expected);
}

TEST(CentralStorageStrategy, TrainingResumesUnderAnotherStrategy) {
  testing::use_gpus(3, 64);
  const testing::TemporaryDirectory directory;
  const OneDeviceStrategy one("/gpu:0");
  const Numbers expected = train_in(directory / "whole", one);
  const std::pair<Strategy, Strategy> pairs[] = {{one, central(1)}, {central(1), one}};
  for (const auto& [before, after] : pairs) {
    train_in(directory / "b", before, 7);
    expect_close(train_in(directory / "b", after), expected);
  }
  Sequential copies = make_model(MirroredStrategy({.devices = gpus(2)}), {.moments = true});
  copies.fit(batches(), {.verbose = 0});
  copies.save_weights(directory / "w");
  Sequential three = make_model(central(3), {.moments = true});
  three.load_weights(directory / "w");
  Sequential plain = make_model(DefaultStrategy(), {.moments = true});
  plain.load_weights(directory / "w");
  EXPECT_NEAR(three.evaluate(batches()).at("loss"), plain.evaluate(batches()).at("loss"), 1e-5);
}

TEST(CentralStorageStrategy, AReplicasErrorIsThrownAndTrainingCanContinue) {
  testing::use_gpus(2, 64);
  const Settings settings{.moments = true};
  Sequential model = make_model(central(2), settings);
  const auto bad = data::Dataset::from_tensors({ones({8, 6}), constant({0, 1, 2, 0, 1, 2, 0, 9})});
  for (const bool eagerly : {false, true}) {
    model.compile({.loss = losses::SparseCategoricalCrossentropy({.from_logits = true}),
                   .run_eagerly = eagerly});
    expect_error<InvalidArgumentError>([&] { model.fit(bad, {.verbose = 0}); }, "9");
    EXPECT_EQ(model.fit(batches(), {.epochs = 2, .verbose = 0}).epoch.size(), 2u);
  }
}

}  // namespace
}  // namespace tandem::central_storage_test
