// compile({.steps_per_execution = n}): the same training with fewer calls of callbacks.
#include <gtest/gtest.h>

#include <vector>

#include "support/files.h"
#include "support/tensors.h"
#include "tandem/tandem.h"

namespace tandem::steps_per_execution_test {
namespace {

using testing::expect_error;

data::Dataset examples(std::int64_t count) {
  random::set_seed(8);
  const Tensor x = random::normal({count, 6}), y = random::normal({count, 1});
  return data::Dataset::from_tensor_slices({x, y}).shuffle(count, {.seed = 4}).batch(4);
}

struct Trained {
  std::vector<double> numbers;        // weights, losses, metrics and predictions
  std::vector<std::int64_t> batches;  // the arguments of on_train_batch_end()
};

void append(std::vector<double>& to, const std::vector<double>& more) {
  to.insert(to.end(), more.begin(), more.end());
}

Sequential model_with(std::int64_t steps_per_execution) {
  random::set_seed(5);
  Sequential model({layers::Dense(8, {.activation = "tanh", .input_shape = {6}}),
                    layers::Dropout(0.2), layers::BatchNormalization(), layers::Dense(1)});
  model.compile({.optimizer = optimizers::Adam({.learning_rate = 0.01}),
                 .loss = "mse",
                 .metrics = {"mae"},
                 .steps_per_execution = steps_per_execution});
  return model;
}

Trained train(std::int64_t steps_per_execution, FitOptions options) {
  Sequential model = model_with(steps_per_execution);
  Trained trained;
  options.verbose = 0;
  options.callbacks.push_back(callbacks::LambdaCallback(
      {.on_train_batch_end = [&](Model&, std::int64_t batch, const callbacks::Logs&) {
        trained.batches.push_back(batch);
      }}));
  const History history = model.fit(examples(39), options);
  for (const Variable& variable : model.variables())
    append(trained.numbers, cast(variable.value(), float64).to_vector<double>());
  for (const auto& [name, values] : history.history) append(trained.numbers, values);
  for (const auto& [name, value] : model.evaluate(examples(39))) trained.numbers.push_back(value);
  append(trained.numbers, cast(model.predict(examples(39)), float64).to_vector<double>());
  return trained;
}

TEST(StepsPerExecution, TrainAsSingleSteps) {
  const FitOptions options{.epochs = 2, .validation_data = examples(10)};
  const Trained one = train(1, options), three = train(3, options), many = train(99, options);
  EXPECT_EQ(three.numbers, one.numbers);
  EXPECT_EQ(many.numbers, one.numbers);
  EXPECT_EQ(one.batches.size(), 20u);
  EXPECT_EQ(three.batches, (std::vector<std::int64_t>{2, 5, 8, 9, 2, 5, 8, 9}));
  EXPECT_EQ(many.batches, (std::vector<std::int64_t>{9, 9}));
}

// The second epoch begins in the middle of a pass over the data, and ends in the next one.
TEST(StepsPerExecution, ContinueWithTheNextPassOverTheData) {
  const FitOptions options{.epochs = 2, .steps_per_epoch = 7};
  const Trained one = train(1, options), four = train(4, options);
  EXPECT_EQ(four.numbers, one.numbers);
  EXPECT_EQ(four.batches, (std::vector<std::int64_t>{3, 6, 3, 6}));
}

// Four executions of 3, 3, 3 and 1 steps: a checkpoint every 4 steps is due after 2 of them.
TEST(StepsPerExecution, CheckpointsAreWrittenByTheExecutionThatReachesTheirStep) {
  const testing::TemporaryDirectory folder;
  const std::filesystem::path path = folder / "state";
  std::vector<bool> written;
  Sequential model = model_with(3);
  model.fit(
      examples(39),
      {.epochs = 1,
       .verbose = 0,
       .callbacks = {callbacks::TrainingCheckpoint(path, {.save_freq = 4}),
                     callbacks::LambdaCallback(
                         {.on_train_batch_end = [&](Model&, std::int64_t, const callbacks::Logs&) {
                           written.push_back(std::filesystem::exists(path));
                           std::filesystem::remove_all(path);
                         }})}});
  // The checkpoint runs last, so the next execution sees it.
  EXPECT_EQ(written, (std::vector<bool>{false, false, true, true}));
}

TEST(StepsPerExecution, ResumeAfterTheLastOneThatWasSaved) {
  const testing::TemporaryDirectory folder;
  const auto checkpoint = [&] {
    return callbacks::TrainingCheckpoint(folder / "state", {.save_freq = 1, .resume = false});
  };
  Sequential whole = model_with(3);
  whole.fit(examples(39), {.epochs = 2, .verbose = 0});
  Sequential stopped = model_with(3);
  stopped.fit(
      examples(39),
      {.epochs = 2,
       .verbose = 0,
       .callbacks = {checkpoint(), callbacks::LambdaCallback(
                                       {.on_train_batch_end = [](Model& model, std::int64_t batch,
                                                                 const callbacks::Logs&) {
                                         if (batch == 9) model.stop_training();
                                       }})}});
  Sequential resumed = model_with(3);
  resumed.fit(examples(39),
              {.epochs = 2,
               .verbose = 0,
               .callbacks = {callbacks::TrainingCheckpoint(folder / "state", {.resume = true})}});
  for (std::size_t i = 0; i < whole.variables().size(); ++i)
    EXPECT_EQ(resumed.variables()[i].value().to_vector<float>(),
              whole.variables()[i].value().to_vector<float>());
}

TEST(StepsPerExecution, FewerThanOneAreRefused) {
  expect_error<InvalidArgumentError>([] { model_with(0); },
                                     "expected steps_per_execution of at least 1, got 0");
}

}  // namespace
}  // namespace tandem::steps_per_execution_test
