// Checkpoint and CheckpointManager: variables of loops of the user's own.
#include <gtest/gtest.h>

#include "support/files.h"
#include "support/tensors.h"
#include "tandem/tandem.h"

namespace tandem::checkpoint_variables_test {
namespace {

using testing::expect_error;
using testing::TemporaryDirectory;

struct Loop {
  Sequential model;
  optimizers::Optimizer optimizer = optimizers::Adam({.learning_rate = 0.01});

  Loop() {
    model = Sequential({layers::Dense(8, {.activation = "tanh", .input_shape = {4}}),
                        layers::Dropout(0.5), layers::Dense(1)});
    optimizer.build(model.trainable_variables());
  }
  Checkpoint checkpoint(const CheckpointOptions& options = {}) {
    return Checkpoint({{"model", model.variables()}, {"optimizer", optimizer.variables()}},
                      options);
  }
  double step() {
    const Tensor x = random::normal({16, 4});
    GradientTape tape;
    const Tensor loss = reduce_mean(square(model(x, {.training = true})));
    optimizer.apply_gradients(tape.gradient(loss, model.trainable_variables()),
                              model.trainable_variables());
    return loss.item<float>();
  }
  std::vector<double> steps(int count) {
    std::vector<double> losses;
    for (int i = 0; i < count; ++i) losses.push_back(step());
    return losses;
  }
};

TEST(Checkpoint, RestoresVariablesAndTheRandomGenerator) {
  for (const bool background : {false, true}) {
    const TemporaryDirectory directory;
    Loop loop;
    loop.steps(3);
    std::vector<double> expected;
    {
      Checkpoint checkpoint = loop.checkpoint({.background = background});
      checkpoint.save(directory / "c", {{"step", "3"}});
      expected = loop.steps(4);  // while it is written
    }
    Loop other;
    other.steps(1);
    const auto metadata = other.checkpoint().restore(directory / "c");
    EXPECT_EQ(metadata, (std::map<std::string, std::string>{{"step", "3"}}));
    EXPECT_EQ(other.steps(4), expected);
  }
}

TEST(Checkpoint, ErrorsOfBackgroundSavesAreThrownByTheNextCall) {
  const TemporaryDirectory directory;
  Loop loop;
  Checkpoint checkpoint = loop.checkpoint({.background = true});
  checkpoint.save(directory / "none" / "c");
  expect_error<NotFoundError>([&] { checkpoint.wait(); }, (directory / "none").string());
  EXPECT_NO_THROW(checkpoint.wait());
  checkpoint.save(directory / "none" / "c");
  EXPECT_THROW(checkpoint.save(directory / "c"), NotFoundError);
  checkpoint.save(directory / "c");
  checkpoint.wait();
  EXPECT_NO_THROW(checkpoint.restore(directory / "c"));
}

TEST(Checkpoint, RefusesOtherVariables) {
  const TemporaryDirectory directory;
  Loop loop;
  loop.checkpoint().save(directory / "c");
  Checkpoint weights({{"model", loop.model.variables()}});
  expect_error<InvalidArgumentError>([&] { weights.restore(directory / "c"); },
                                     "there is no group 'optimizer'");
  weights.save(directory / "w");
  expect_error<NotFoundError>([&] { loop.checkpoint().restore(directory / "w"); },
                              "it has no tensor for");
  const Variable a(ones({2}), {.name = "a"}), b(ones({2}), {.name = "a"});
  expect_error<InvalidArgumentError>(
      [&] {
        Checkpoint({{"model", {a, b}}});
      },
      "two variables of group 'model' are named 'a'");
}

TEST(CheckpointManager, KeepsTheNewest) {
  const TemporaryDirectory directory;
  Loop loop;
  Checkpoint checkpoint = loop.checkpoint();
  CheckpointManager manager(checkpoint, directory / "run", {.max_to_keep = 2});
  EXPECT_EQ(manager.restore_latest(), std::nullopt);
  for (std::int64_t step : {9, 10, 11}) manager.save(step, {{"pass", "1"}});
  EXPECT_EQ(manager.checkpoints(),
            (std::vector<std::filesystem::path>{directory / "run" / "ckpt-10.safetensors",
                                                directory / "run" / "ckpt-11.safetensors"}));
  const std::vector<double> expected = loop.steps(2);
  EXPECT_EQ(manager.restore_latest().value().at("step"), "11");
  EXPECT_EQ(loop.steps(2), expected);
  expect_error<InvalidArgumentError>([&] { manager.save(-1); }, "a step of at least 0, got -1");
  expect_error<InvalidArgumentError>(
      [&] { CheckpointManager(checkpoint, directory / "run", {.name = "a/b"}); },
      "expected a name without a slash, got 'a/b'");
}

}  // namespace
}  // namespace tandem::checkpoint_variables_test
