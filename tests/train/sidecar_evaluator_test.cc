#include "tandem/sidecar_evaluator.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "support/files.h"
#include "support/tensors.h"
#include "tandem/tandem.h"

namespace tandem::sidecar_evaluator_test {
namespace {

using namespace std::chrono_literals;
using testing::expect_error;
using testing::TemporaryDirectory;

Sequential make_model(std::uint64_t seed) {
  random::set_seed(seed);
  Sequential model(
      {layers::Dense(4, {.activation = "relu", .input_shape = {3}}), layers::Dense(1)});
  model.compile({.optimizer = optimizers::SGD({.learning_rate = 0.1}), .loss = "mse"});
  return model;
}

data::Dataset batches() {
  random::set_seed(9);
  const Tensor x = random::normal({20, 3});
  return data::Dataset::from_tensor_slices({x, reduce_sum(x, {.axis = {1}, .keepdims = true})})
      .batch(5);
}

TEST(SidecarEvaluator, EvaluatesWhatAnotherThreadTrains) {
  const TemporaryDirectory directory;
  Sequential trained = make_model(1);
  std::map<std::int64_t, double> losses;
  trained.fit(batches(), {.epochs = 1, .verbose = 0});
  std::vector<std::int64_t> seen;
  SidecarEvaluator evaluator(
      make_model(2), batches(), directory / "run",
      {.max_evaluations = 3,
       .callbacks = {callbacks::CSVLogger(directory / "log.csv")},
       .on_evaluation = [&](const SidecarEvaluation& result) { seen.push_back(result.number); },
       .poll_interval = 5ms,
       .timeout = 60s});
  double expected = 0.0;
  std::thread training([&] {
    Checkpoint checkpoint({{"model", trained.variables()}});
    CheckpointManager manager(checkpoint, directory / "run");
    for (int number = 1; number <= 3; ++number) {
      trained.fit(batches(), {.epochs = 1, .verbose = 0});
      expected = trained.evaluate(batches()).at("loss");
      manager.save(number);
      std::this_thread::sleep_for(20ms);
    }
  });
  const SidecarEvaluation last = evaluator.start();
  training.join();
  EXPECT_EQ(last.number, 3);
  EXPECT_EQ(last.metrics.at("loss"), expected);
  EXPECT_EQ(seen.back(), 3);
  EXPECT_TRUE(std::is_sorted(seen.begin(), seen.end()));
  EXPECT_NE(testing::read_file(directory / "log.csv").find("3,"), std::string::npos);
}

TEST(SidecarEvaluator, LoadsWeightsOfModelCheckpoint) {
  const TemporaryDirectory directory;
  Sequential trained = make_model(1);
  trained.fit(batches(),
              {.epochs = 2,
               .verbose = 0,
               .callbacks = {callbacks::ModelCheckpoint(directory / "ckpt-{epoch}.safetensors")}});
  SidecarEvaluator evaluator(make_model(2), batches(), directory / ".", {.max_evaluations = 2});
  const SidecarEvaluation last = evaluator.start();
  EXPECT_EQ(last.number, 2);
  EXPECT_EQ(last.metrics.at("loss"), trained.evaluate(batches()).at("loss"));
}

TEST(SidecarEvaluator, EndsWithoutCheckpoints) {
  const TemporaryDirectory directory;
  SidecarEvaluator missing(make_model(1), batches(), directory / "none",
                           {.poll_interval = 1ms, .timeout = 20ms});
  expect_error<DeadlineExceededError>([&] { missing.start(); }, "the last one was none");
  testing::write_file(directory / "ckpt-1.safetensors", "damaged");
  SidecarEvaluator damaged(make_model(1), batches(), directory / ".",
                           {.poll_interval = 1ms, .timeout = 20ms});
  expect_error<DeadlineExceededError>([&] { damaged.start(); }, "One cannot be read:");
  expect_error<InvalidArgumentError>(
      [&] { SidecarEvaluator(make_model(1), batches().repeat(), directory / "."); }, "steps");
}

}  // namespace
}  // namespace tandem::sidecar_evaluator_test
