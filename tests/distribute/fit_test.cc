// Models trained under strategies: equal to one device, and resumable.
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <stdexcept>

#include "support/files.h"
#include "support/tensors.h"
#include "tandem/checkpoint.h"
#include "tandem/config.h"
#include "tandem/distribute.h"
#include "tandem/math.h"
#include "tandem/model.h"
#include "tandem/random.h"

namespace tandem::fit_test {
namespace {

using callbacks::Callback;
using callbacks::Logs;
using distribute::Strategy;
using testing::expect_error;
using testing::expect_tensor;
using testing::random_tensor;
using testing::TemporaryDirectory;
using testing::values_of;

constexpr std::int64_t kExamples = 37;  // batches of 8, the last of 5

Strategy mirrored(int replicas) {
  config::set_logical_cpus(3);
  distribute::MirroredOptions options;
  for (int i = 0; i < replicas; ++i) options.devices.push_back("/cpu:" + std::to_string(i));
  return distribute::MirroredStrategy(options);
}

data::Dataset examples() {
  std::vector<std::int32_t> labels;
  for (int i = 0; i < kExamples; ++i) labels.push_back(i * 7 % 3);
  return data::Dataset::from_tensor_slices(
      {random_tensor({kExamples, 6}, 3, -1.0, 1.0, float32), constant(labels)});
}
data::Dataset batches() { return examples().shuffle(kExamples, {.seed = 2}).batch(8).prefetch(1); }

Sequential make_model(const Strategy& strategy, bool moments) {
  random::set_seed(4);
  const auto scope = strategy.scope();
  std::vector<Layer> layers = {layers::Dense(16, {.activation = "relu", .input_shape = {6}}),
                               layers::Dropout(0.3)};
  if (moments) layers.push_back(layers::BatchNormalization());
  layers.push_back(layers::Dense(3));
  Sequential model(layers);
  model.compile({.optimizer = optimizers::SGD({.learning_rate = 0.1, .momentum = 0.9}),
                 .loss = losses::SparseCategoricalCrossentropy({.from_logits = true}),
                 .metrics = {"accuracy", "sparse_top_k_categorical_accuracy"}});
  return model;
}

History train(Model& model, std::vector<Callback> callbacks = {}) {
  return model.fit(
      batches(),
      {.epochs = 3, .validation_data = batches(), .verbose = 0, .callbacks = std::move(callbacks)});
}

TEST(FitUnderStrategy, EqualsOneDevice) {
  for (int replicas : {1, 2, 3}) {
    const Strategy strategy = mirrored(replicas);
    Sequential one = make_model(distribute::DefaultStrategy(), false);
    const History expected = train(one);
    Sequential many = make_model(strategy, false);
    const History history = train(many);
    for (const auto& [name, values] : expected.history)
      for (std::size_t epoch = 0; epoch < values.size(); ++epoch)
        EXPECT_NEAR(history.at(name)[epoch], values[epoch], 1e-5) << name << " of " << replicas;
    for (std::size_t i = 0; i < one.variables().size(); ++i)
      expect_tensor(many.variables()[i].value(), float32, one.variables()[i].shape(),
                    values_of(one.variables()[i].value()), 1e-5);
    const auto tested = one.evaluate(batches()), tested_many = many.evaluate(batches());
    for (const auto& [name, value] : tested) EXPECT_NEAR(tested_many.at(name), value, 1e-5) << name;
    const Tensor x = random_tensor({11, 6}, 9, -1.0, 1.0, float32);
    expect_tensor(many.predict(x, {.batch_size = 4}), float32, {11, 3},
                  values_of(one.predict(x, {.batch_size = 4})), 1e-5);
  }
}

TEST(FitUnderStrategy, SampleWeightsCountOverAllReplicas) {
  const Strategy three = mirrored(3);
  const Strategy strategies[2] = {distribute::DefaultStrategy(), three};
  const Tensor x = random_tensor({kExamples, 6}, 3, -1.0, 1.0, float32),
               y = random_tensor({kExamples, 2}, 4, -1.0, 1.0, float32);
  const Tensor weights = random_tensor({kExamples}, 5, 0.0, 2.0, float32);
  const auto data = data::Dataset::from_tensor_slices({x, y, weights}).batch(8);
  std::vector<double> kernels[2];
  double losses[2];
  for (int i = 0; i < 2; ++i) {
    random::set_seed(1);
    const auto scope = strategies[i].scope();
    Sequential model({layers::Dense(2, {.input_shape = {6}})});
    model.compile({.optimizer = optimizers::SGD({.learning_rate = 0.1}), .loss = "mse"});
    losses[i] = model.fit(data, {.epochs = 2, .verbose = 0}).at("loss").back();
    kernels[i] = values_of(model.variables()[0].value());
  }
  EXPECT_NEAR(losses[0], losses[1], 1e-5);
  for (std::size_t i = 0; i < kernels[0].size(); ++i)
    EXPECT_NEAR(kernels[0][i], kernels[1][i], 1e-5);
}

TEST(FitUnderStrategy, AModelWithoutItsInputShapeIsBuiltWhereItWasCompiled) {
  const Strategy strategy = mirrored(2);
  Sequential model;
  {
    const auto scope = strategy.scope();
    model = Sequential({layers::Dense(3)});
    model.compile({.optimizer = "adam",
                   .loss = losses::SparseCategoricalCrossentropy({.from_logits = true})});
  }
  model.fit(batches(), {.verbose = 0});
  EXPECT_EQ(model.variables()[0].device().substr(model.variables()[0].device().size() - 5),
            "CPU:0");
  EXPECT_EQ(model.optimizer().iterations(), 5);
}

TEST(FitUnderStrategy, CompileOutsideTheScopeIsForTheModelsStrategy) {
  for (const int replicas : {1, 2}) {
    const Strategy strategy = mirrored(replicas);
    const auto train_one = [&](bool outside) {
      random::set_seed(4);
      Sequential model;
      std::unique_ptr<distribute::StrategyScope> scope(
          new distribute::StrategyScope(strategy.scope()));
      model = Sequential({layers::Dense(8, {.activation = "relu", .input_shape = {6}}),
                          layers::BatchNormalization(), layers::Dense(3)});
      if (outside) scope.reset();
      model.compile({.optimizer = optimizers::SGD({.learning_rate = 0.1, .momentum = 0.9}),
                     .loss = losses::SparseCategoricalCrossentropy({.from_logits = true})});
      scope.reset();
      const History history = train(model);
      return history.history;
    };
    EXPECT_EQ(train_one(true), train_one(false)) << replicas;
  }
}

TEST(FitUnderStrategy, RefusesVariablesOfAnotherStrategy) {
  const Strategy strategy = mirrored(2);
  Sequential inside, outside({layers::Dense(3, {.input_shape = {6}})});
  {
    const auto scope = strategy.scope();
    inside = Sequential({layers::Dense(3, {.input_shape = {6}})});
    expect_error<InvalidArgumentError>(
        [&] { outside.compile({.loss = "mse"}); },
        "[compile] Variable 'dense/kernel' of the model was not created in the "
        "distribution strategy scope");
  }
  {
    const auto scope = mirrored(3).scope();
    expect_error<InvalidArgumentError>([&] { inside.compile({.loss = "mse"}); },
                                       "Variable 'dense/kernel' of the model");
  }
  auto optimizer = optimizers::SGD({.momentum = 0.9});
  optimizer.build(outside.variables());
  const auto scope = strategy.scope();
  expect_error<InvalidArgumentError>(
      [&] { inside.compile({.optimizer = optimizer, .loss = "mse"}); }, "of the optimizer");
}

TEST(FitUnderStrategy, AnErrorInAReplicaIsThrownAndTrainingCanContinue) {
  const Strategy strategy = mirrored(2);
  Sequential model = make_model(strategy, true);
  const auto bad = data::Dataset::from_tensors({ones({8, 6}), constant({0, 1, 2, 0, 1, 2, 0, 9})});
  expect_error<InvalidArgumentError>([&] { model.fit(bad, {.verbose = 0}); }, "9");
  EXPECT_EQ(train(model).epoch.size(), 3u);
}

// --- checkpoints ---

struct Outcome {
  std::vector<std::vector<double>> values;
  std::map<std::string, std::vector<double>> history;
  friend bool operator==(const Outcome&, const Outcome&) = default;
};

Outcome outcome(Model& model, std::vector<Callback> callbacks) {
  Outcome result;
  result.history = train(model, std::move(callbacks)).history;
  for (const Variable& variable : model.variables())
    result.values.push_back(values_of(variable.value()));
  for (const Variable& variable : model.optimizer().variables())
    result.values.push_back(values_of(variable.value()));
  return result;
}

void stop_after(Model& model, const std::filesystem::path& backup, int steps) {
  int left = steps;
  const auto crash =
      callbacks::LambdaCallback({.on_train_batch_end = [&left](Model&, std::int64_t, const Logs&) {
        if (--left == 0) throw std::runtime_error("crash");
      }});
  EXPECT_THROW(train(model, {callbacks::BackupAndRestore(backup, {.save_freq = 1}), crash}),
               std::runtime_error);
}

TEST(FitUnderStrategy, ResumesWithTheSameBits) {
  const Strategy strategy = mirrored(2);
  Sequential whole = make_model(strategy, true);
  const Outcome expected = outcome(whole, {});
  for (int steps : {3, 5, 6, 9}) {
    const TemporaryDirectory directory;
    Sequential first = make_model(strategy, true);
    stop_after(first, directory / "backup", steps);
    Sequential second = make_model(strategy, true);
    EXPECT_EQ(outcome(second, {callbacks::BackupAndRestore(directory / "backup")}), expected)
        << "after " << steps;
  }
}

TEST(FitUnderStrategy, ACheckpointResumesOnAnotherNumberOfReplicas) {
  Sequential whole = make_model(mirrored(1), false);
  const Outcome expected = outcome(whole, {});
  for (const auto& [before, after] : {std::pair(2, 3), std::pair(3, 1), std::pair(1, 2)}) {
    const TemporaryDirectory directory;
    Sequential first = make_model(mirrored(before), false);
    stop_after(first, directory / "backup", 8);
    Sequential second = make_model(mirrored(after), false);
    const Outcome result = outcome(second, {callbacks::BackupAndRestore(directory / "backup")});
    for (const auto& [name, values] : expected.history)
      for (std::size_t epoch = 0; epoch < values.size(); ++epoch)
        EXPECT_NEAR(result.history.at(name)[epoch], values[epoch], 1e-5)
            << name << ": " << before << " to " << after;
    for (std::size_t i = 0; i < expected.values.size(); ++i)
      for (std::size_t k = 0; k < expected.values[i].size(); ++k)
        EXPECT_NEAR(result.values[i][k], expected.values[i][k],
                    1e-5 * std::fmax(1.0, std::abs(expected.values[i][k])));
  }
}

TEST(FitUnderStrategy, WeightsLoadUnderAnyOther) {
  const TemporaryDirectory directory;
  Sequential two = make_model(mirrored(2), true);
  train(two);
  two.save_weights(directory / "w");
  Sequential one = make_model(distribute::DefaultStrategy(), true);
  one.load_weights(directory / "w");
  const auto expected = one.evaluate(batches());
  Sequential three = make_model(mirrored(3), true);
  three.load_weights(directory / "w");
  EXPECT_NEAR(three.evaluate(batches()).at("loss"), expected.at("loss"), 1e-5);
}

}  // namespace
}  // namespace tandem::fit_test
