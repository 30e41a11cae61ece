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

TEST(Checkpoint, TakesItsGroupsByName) {
  const TemporaryDirectory directory;
  Loop loop;
  const Variable step(std::int64_t{3});
  Checkpoint({.step = step, .model = loop.model, .optimizer = loop.optimizer})
      .save(directory / "c");
  const std::vector<double> expected = loop.steps(2);
  Loop other;
  Variable restored(std::int64_t{0});
  Checkpoint({{"step", restored}, {"model", other.model}, {"optimizer", other.optimizer}})
      .restore(directory / "c");
  EXPECT_EQ(restored.item<std::int64_t>(), 3);
  EXPECT_EQ(other.steps(2), expected);
  Checkpoint({.net = loop.model}, {.background = true}).save(directory / "net");
  for (const auto& [name, tensor] : load(directory / "net"))
    EXPECT_TRUE(name.starts_with("net/")) << name;
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

// --- groups of objects ---

// A loop whose optimizer has no slots before the first step.
struct ObjectLoop {
  Variable step{zeros({}, {.dtype = int64}), {.name = "step"}};
  Sequential net;
  optimizers::Optimizer optimizer;

  explicit ObjectLoop(optimizers::Optimizer with = optimizers::Adam({.learning_rate = 0.1}))
      : net({layers::Dense(3, {.input_shape = {2}, .name = "hidden"}),
             layers::Dense(1, {.name = "last"})}),
        optimizer(std::move(with)) {}
  Checkpoint checkpoint() {
    return Checkpoint({{"step", step}, {"optimizer", optimizer}, {"net", net}});
  }
  double train() {
    const Tensor x = constant({{1.0f, 2.0f}, {3.0f, -1.0f}});
    GradientTape tape;
    const Tensor loss = reduce_mean(square(net(x) - 1.0));
    optimizer.apply_gradients(tape.gradient(loss, net.trainable_variables()),
                              net.trainable_variables());
    step.assign_add(ones({}, {.dtype = int64}));
    return loss.item<float>();
  }
};

TEST(CheckpointGroup, OfAnOptimizerMakesTheSlotsOfTheCheckpoint) {
  const TemporaryDirectory directory;
  ObjectLoop loop;
  Checkpoint checkpoint = loop.checkpoint();  // before the optimizer has slots
  for (int i = 0; i < 3; ++i) loop.train();
  EXPECT_EQ(checkpoint.save(directory / "c"), directory / "c");
  const double expected = loop.train();
  ObjectLoop other;
  other.checkpoint().restore(directory / "c");
  EXPECT_EQ(other.step.value().item<std::int64_t>(), 3);
  EXPECT_EQ(other.optimizer.iterations(), 3);
  EXPECT_EQ(other.optimizer.variables().size(), loop.optimizer.variables().size());
  EXPECT_EQ(other.train(), expected);
  EXPECT_EQ(other.train(), loop.train());
}

TEST(CheckpointGroup, OfAnOptimizerWithoutSlotsRestoresItsSteps) {
  const TemporaryDirectory directory;
  ObjectLoop loop(optimizers::SGD({.learning_rate = 0.1}));
  loop.train();
  loop.checkpoint().save(directory / "c");
  ObjectLoop other(optimizers::SGD({.learning_rate = 0.1}));
  other.checkpoint().restore(directory / "c");
  EXPECT_EQ(other.optimizer.iterations(), 1);
}

TEST(CheckpointGroup, OfAFrozenLayerHasNoSlots) {
  const TemporaryDirectory directory;
  const auto train_last = [](ObjectLoop& loop) {
    const std::vector<Variable> last = loop.net.get_layer("last").trainable_variables();
    GradientTape tape;
    const Tensor loss = reduce_mean(square(loop.net(ones({2, 2})) - 1.0));
    loop.optimizer.apply_gradients(tape.gradient(loss, last), last);
    return loss.item<float>();
  };
  ObjectLoop loop, other;
  train_last(loop);
  loop.checkpoint().save(directory / "c");
  other.checkpoint().restore(directory / "c");
  EXPECT_EQ(other.optimizer.variables().size(), 5u);  // the steps, and two slots of two variables
  EXPECT_EQ(train_last(other), train_last(loop));
}

TEST(CheckpointGroup, OfAModelThatIsNotBuiltThrows) {
  const TemporaryDirectory directory;
  const Sequential net({layers::Dense(3)});
  Checkpoint checkpoint({{"net", net}});
  EXPECT_TRUE(checkpoint.restore({}).empty());
  EXPECT_THROW(checkpoint.save(directory / "c"), FailedPreconditionError);
  net(ones({1, 2}));
  checkpoint.save(directory / "c");
  EXPECT_EQ(CheckpointReader(directory / "c").tensors().size(), 2u);
}

TEST(CheckpointManager, CountsItsSaves) {
  const TemporaryDirectory directory;
  ObjectLoop loop;
  Checkpoint checkpoint = loop.checkpoint();
  {
    CheckpointManager manager(checkpoint, directory / "run", {.max_to_keep = 2});
    EXPECT_TRUE(manager.latest_checkpoint().empty());
    EXPECT_TRUE(checkpoint.restore(manager.latest_checkpoint()).empty());
    EXPECT_EQ(manager.save(), directory / "run" / "ckpt-1.safetensors");
    EXPECT_EQ(manager.save(), directory / "run" / "ckpt-2.safetensors");
  }
  CheckpointManager manager(checkpoint, directory / "run", {.max_to_keep = 2});
  EXPECT_EQ(manager.save(), directory / "run" / "ckpt-3.safetensors");
  EXPECT_EQ(manager.latest_checkpoint(), directory / "run" / "ckpt-3.safetensors");
  EXPECT_EQ(manager.checkpoints().size(), 2u);
  EXPECT_EQ(checkpoint.restore(manager.latest_checkpoint()).at("step"), "3");
  EXPECT_EQ(latest_checkpoint(directory / "run"), manager.latest_checkpoint());
  EXPECT_TRUE(latest_checkpoint(directory / "none").empty());
  EXPECT_FALSE(latest_checkpoint(directory / "none"));
  if (const auto latest = manager.latest_checkpoint())
    EXPECT_EQ(*latest, directory / "run" / "ckpt-3.safetensors");
  else
    ADD_FAILURE() << "there is a checkpoint";
  EXPECT_TRUE(latest_checkpoint(directory / "run", "other").empty());
}

}  // namespace
}  // namespace tandem::checkpoint_variables_test
