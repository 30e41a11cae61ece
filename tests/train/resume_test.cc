// Resumed training gives the same bits as uninterrupted training.
#include <gtest/gtest.h>

#include <stdexcept>

#include "support/files.h"
#include "support/tensors.h"
#include "tandem/checkpoint.h"
#include "tandem/math.h"
#include "tandem/model.h"
#include "tandem/random.h"

namespace tandem::resume_test {
namespace {

using callbacks::Callback;
using callbacks::Logs;
using namespace testing;

constexpr std::int64_t kEpochs = 3;
constexpr std::int64_t kStepsPerEpoch = 5;  // of 36 examples in batches of 8

// Has everything that a checkpoint must save: dropout, moving moments, slots, data order, random
// maps.
struct Program {
  Sequential model;
  data::Dataset data;

  Program() {
    random::set_seed(11);
    model = Sequential({layers::Dense(16, {.activation = "relu", .input_shape = {6}}),
                        layers::BatchNormalization(), layers::Dropout(0.3), layers::Dense(3)});
    model.compile({.optimizer = optimizers::Adam({.learning_rate = 0.01}),
                   .loss = losses::SparseCategoricalCrossentropy({.from_logits = true}),
                   .metrics = {"accuracy"}});
    const Tensor x = random_tensor({36, 6}, 3, -1.0, 1.0, float32);
    std::vector<std::int32_t> labels;
    for (int i = 0; i < 36; ++i) labels.push_back(i % 3);
    data = data::Dataset::from_tensor_slices({x, constant(labels)})
               .shuffle(36, {.seed = 5})
               .map([](const data::Example& e) {
                 return data::Example{e[0] + random::normal({6}, 0.0, 0.1), e[1]};
               })
               .batch(8)
               .prefetch(2);
  }

  History fit(std::vector<Callback> callbacks = {}) {
    return model.fit(data, {.epochs = kEpochs,
                            .validation_data = data,
                            .verbose = 0,
                            .callbacks = std::move(callbacks)});
  }
  std::vector<std::vector<double>> weights() const {
    std::vector<std::vector<double>> values;
    for (const Variable& variable : model.variables())
      values.push_back(values_of(variable.value()));
    for (const Variable& variable : model.optimizer().variables())
      values.push_back(values_of(variable.value()));
    return values;
  }
};

struct Outcome {
  std::vector<std::vector<double>> weights;
  std::map<std::string, std::vector<double>> history;
  std::vector<std::int64_t> epochs;
  friend bool operator==(const Outcome&, const Outcome&) = default;
};

Outcome outcome(Program& program, std::vector<Callback> callbacks = {}) {
  const History history = program.fit(std::move(callbacks));
  return {program.weights(), history.history, history.epoch};
}

Outcome unbroken() {
  Program program;
  return outcome(program);
}

// Ends the run after `steps` steps, like a crash.
Callback crash_after(std::int64_t steps) {
  const auto left = std::make_shared<std::int64_t>(steps);
  return callbacks::LambdaCallback(
      {.on_train_batch_end = [left](Model&, std::int64_t, const Logs&) {
        if (--*left == 0) throw std::runtime_error("crash");
      }});
}

void crash(const std::filesystem::path& backup, std::int64_t steps, std::int64_t save_freq) {
  Program program;
  EXPECT_THROW(program.fit({callbacks::BackupAndRestore(backup, {.save_freq = save_freq}),
                            crash_after(steps)}),
               std::runtime_error);
}

TEST(Resume, AnEqualProgramGivesTheSameBits) { EXPECT_EQ(unbroken(), unbroken()); }

TEST(Resume, ResumesFromEveryStep) {
  const Outcome expected = unbroken();
  // The crash comes before the checkpoint of its step, so that of the previous step is loaded.
  for (std::int64_t steps = 2; steps <= kEpochs * kStepsPerEpoch; ++steps) {
    const TemporaryDirectory directory;
    crash(directory / "backup", steps, 1);
    Program program;
    random::set_seed(999);  // the checkpoint restores the generator
    EXPECT_EQ(outcome(program, {callbacks::BackupAndRestore(directory / "backup")}), expected)
        << "after " << steps;
    EXPECT_FALSE(std::filesystem::exists(directory / "backup" / "training.safetensors"))
        << "training is over";
  }
}

TEST(Resume, RepeatsStepsSinceTheLastCheckpoint) {
  const Outcome expected = unbroken();
  const TemporaryDirectory directory;
  crash(directory / "backup", 10, 4);
  Program program;
  EXPECT_EQ(outcome(program, {callbacks::BackupAndRestore(directory / "backup")}), expected);
}

TEST(Resume, ResumesAfterSeveralCrashes) {
  const Outcome expected = unbroken();
  const TemporaryDirectory directory;
  for (int run = 0; run < 3; ++run) crash(directory / "backup", 4, 1);
  Program program;
  EXPECT_EQ(outcome(program, {callbacks::BackupAndRestore(directory / "backup")}), expected);
}

TEST(Resume, ResumesWithinAStoppedEpoch) {
  const Outcome expected = unbroken();
  const TemporaryDirectory directory;
  {
    Program program;
    program.fit({callbacks::BackupAndRestore(directory / "backup"),
                 callbacks::LambdaCallback(
                     {.on_train_batch_end = [](Model& model, std::int64_t batch, const Logs&) {
                       if (batch == 2) model.stop_training();
                     }})});
    EXPECT_EQ(program.model.optimizer().iterations(), 3);
  }
  Program program;
  EXPECT_EQ(outcome(program, {callbacks::BackupAndRestore(directory / "backup")}), expected);
}

TEST(Resume, RestoresTheStateOfOtherCallbacks) {
  const auto callbacks_of = [] {
    return std::vector<Callback>{
        callbacks::LearningRateScheduler([](std::int64_t, double rate) { return rate * 0.5; }),
        callbacks::ReduceLROnPlateau(
            {.monitor = "loss", .factor = 0.5, .patience = 1, .min_delta = 10.0}),
        callbacks::EarlyStopping(
            {.monitor = "loss", .min_delta = 10.0, .patience = 2, .restore_best_weights = true})};
  };
  Program whole;
  const Outcome expected = outcome(whole, callbacks_of());
  ASSERT_EQ(expected.epochs.size(), 3u);
  for (std::int64_t steps : {3, 5, 6, 9, 11, 14}) {
    const TemporaryDirectory directory;
    {
      Program program;
      auto callbacks = callbacks_of();
      callbacks.push_back(callbacks::BackupAndRestore(directory / "backup", {.save_freq = 1}));
      callbacks.push_back(crash_after(steps));
      EXPECT_THROW(program.fit(callbacks), std::runtime_error);
    }
    Program program;
    auto callbacks = callbacks_of();
    callbacks.push_back(callbacks::BackupAndRestore(directory / "backup"));
    EXPECT_EQ(outcome(program, callbacks), expected) << "after " << steps;
    EXPECT_EQ(program.model.optimizer().learning_rate(), whole.model.optimizer().learning_rate());
  }
}

// A rate that a callback has set in place of a schedule.
TEST(Resume, RestoresARateThatReplacedASchedule) {
  const auto program = [] {
    auto made = std::make_unique<Program>();
    made->model.compile(
        {.optimizer = optimizers::Adam(
             {.learning_rate = optimizers::schedules::exponential_decay(0.01, 2, 0.9)}),
         .loss = losses::SparseCategoricalCrossentropy({.from_logits = true}),
         .metrics = {"accuracy"}});
    return made;
  };
  // From the second epoch on.
  const auto replacing = [] {
    return callbacks::LambdaCallback({.on_epoch_begin = [](Model& model, std::int64_t epoch) {
      optimizers::Optimizer optimizer = model.optimizer();
      if (epoch == 1) optimizer.set_learning_rate(optimizer.learning_rate() * 0.5);
    }});
  };
  const auto whole = program();
  const Outcome expected = outcome(*whole, {replacing()});
  for (std::int64_t steps : {3, 7, 12}) {
    const TemporaryDirectory directory;
    EXPECT_THROW(
        program()->fit({replacing(),
                        callbacks::BackupAndRestore(directory / "backup", {.save_freq = 1}),
                        crash_after(steps)}),
        std::runtime_error);
    const auto resumed = program();
    // Within the second epoch its begin is called again, but the rate is restored before.
    const std::vector<Callback> callbacks =
        steps == 7
            ? std::vector<Callback>{callbacks::BackupAndRestore(directory / "backup")}
            : std::vector<Callback>{replacing(), callbacks::BackupAndRestore(directory / "backup")};
    EXPECT_EQ(outcome(*resumed, callbacks).weights, expected.weights) << "after " << steps;
  }
}

TEST(TrainingCheckpoint, IsKeptAndResumedFromOnRequest) {
  const TemporaryDirectory directory;
  const std::filesystem::path path = directory / "state.safetensors";
  Program first;
  const Outcome expected = outcome(first, {callbacks::TrainingCheckpoint(path)});
  ASSERT_TRUE(std::filesystem::exists(path));
  Program again;
  EXPECT_EQ(outcome(again, {callbacks::TrainingCheckpoint(path, {.resume = true})}), expected)
      << "nothing is left to do";
  Program fresh;
  EXPECT_EQ(outcome(fresh, {callbacks::TrainingCheckpoint(path)}), expected)
      << "without resume it starts anew";
  expect_error<NotFoundError>(
      [&] { Program().fit({callbacks::TrainingCheckpoint(directory / "none", {.resume = true})}); },
      "does not exist");
}

TEST(TrainingCheckpoint, RefusesAnotherConfiguration) {
  const TemporaryDirectory directory;
  const std::filesystem::path path = directory / "state";
  Program().fit({callbacks::TrainingCheckpoint(path, {.config = {{"batch", "8"}}})});
  const auto resume = [&](const std::map<std::string, std::string>& config) {
    return [&path, config] {
      Program().fit({callbacks::TrainingCheckpoint(path, {.resume = true, .config = config})});
    };
  };
  expect_error<InvalidArgumentError>(resume({{"batch", "16"}}),
                                     "was written with '8' for batch, expected '16'");
  expect_error<InvalidArgumentError>(resume({{"data", "x"}}),
                                     "was written with nothing for data, expected 'x'");
  EXPECT_NO_THROW(resume({{"batch", "8"}})());
}

TEST(TrainingCheckpoint, RefusesOtherFiles) {
  const TemporaryDirectory directory;
  const std::filesystem::path path = directory / "state";
  Program().fit({callbacks::TrainingCheckpoint(path)});
  const std::string good = read_file(path);
  const auto resume = [&] {
    Program program;
    const auto before = program.weights();
    try {
      program.fit({callbacks::TrainingCheckpoint(path, {.resume = true})});
    } catch (const Error&) {
      // The optimizer's slots were created; the model is otherwise unchanged.
      EXPECT_EQ(values_of(program.model.variables()[0].value()), before[0]);
      throw;
    }
  };
  std::string flipped = good;
  flipped[flipped.size() - 10] ^= 1;
  write_file(path, flipped);
  expect_error<DataLossError>(resume, "checksum");
  write_file(path, good.substr(0, good.size() / 2));
  expect_error<DataLossError>(resume, "is damaged");
  write_file(path, "");
  expect_error<DataLossError>(resume, "is damaged");

  TensorFile file;
  Program().model.save_weights(path);
  expect_error<InvalidArgumentError>(resume, "is no training checkpoint of version 2, got none");

  write_file(path, good);
  const TensorFile whole = load_safetensors(path);
  const auto altered = [&](const std::function<void(TensorFile&)>& alter) {
    TensorFile copy = whole;
    alter(copy);
    save_safetensors(path, copy);
  };
  altered([](TensorFile& f) { f.tensors.erase("model/dense/bias"); });
  expect_error<NotFoundError>(resume, "it has no tensor for 'dense/bias'");
  altered([](TensorFile& f) { f.tensors.erase("optimizer/iterations"); });
  expect_error<NotFoundError>(resume, "'iterations'");
  altered([](TensorFile& f) { f.tensors["model/extra"] = ones({1}); });
  expect_error<InvalidArgumentError>(resume, "no variable is named 'extra'");
  altered([](TensorFile& f) { f.tensors["model/dense/bias"] = ones({3}); });
  expect_error<InvalidArgumentError>(resume,
                                     "'dense/bias' is float32 (3,), expected float32 (16,)");
  altered([](TensorFile& f) { f.metadata["step"] = "many"; });
  expect_error<DataLossError>(resume, "it has no number 'step'");
  altered([](TensorFile& f) { f.tensors["statistics/0/unknown"] = ones({1}); });
  expect_error<DataLossError>(resume, "the checkpoint's sums");
}

// A checkpoint within an epoch: weights, slots, sums, the history, the callbacks' numbers.
TEST(TrainingCheckpoint, RefusesEveryAlteredTensor) {
  const TemporaryDirectory directory;
  const std::filesystem::path path = directory / "state";
  const auto callbacks_of = [&](bool resume) {
    return std::vector<Callback>{
        callbacks::EarlyStopping({.monitor = "loss", .patience = 5}),
        callbacks::TrainingCheckpoint(path, {.save_freq = 1, .resume = resume})};
  };
  {
    Program program;
    auto crashing = callbacks_of(false);
    crashing.push_back(crash_after(kStepsPerEpoch + 2));
    EXPECT_THROW(program.fit(crashing), std::runtime_error);
  }
  const TensorFile whole = load_safetensors(path);
  const auto refuse = [&](const std::function<void(TensorFile&)>& alter) {
    TensorFile copy = whole;
    alter(copy);
    save_safetensors(path, copy);
    Program program;
    const auto before = program.weights();
    try {
      program.fit(callbacks_of(true));
      ADD_FAILURE() << "it was accepted";
    } catch (const InternalError& error) {
      ADD_FAILURE() << error.what();
    } catch (const Error& error) {
      EXPECT_EQ(std::string(error.what()).rfind("[load] ", 0), 0u) << error.what();
    } catch (const std::exception& error) {
      ADD_FAILURE() << "expected a typed error, got " << error.what();
    }
    EXPECT_EQ(values_of(program.model.variables()[0].value()), before[0]);
  };
  for (const auto& [key, tensor] : whole.tensors) {
    SCOPED_TRACE(key);
    const std::string& name = key;
    const CreationOptions same = {.dtype = tensor.dtype()};
    const DType other = tensor.dtype() == float32 ? int32 : float32;
    refuse([&](TensorFile& f) { f.tensors.erase(name); });
    refuse([&](TensorFile& f) { f.tensors[name] = zeros({0}, same); });
    refuse([&](TensorFile& f) { f.tensors[name] = zeros({7, 5}, same); });
    refuse([&](TensorFile& f) { f.tensors[name] = whole.tensors.at(name).to(other); });
  }
  for (const std::string key : {"epoch", "step", "data.pass", "data.batch", "random.seed",
                                "random.offset", "learning_rate"}) {
    SCOPED_TRACE(key);
    for (const char* text : {"", "many", "-1", "1.5.2", "1e999", "99999999999999999999999x"})
      refuse([&](TensorFile& f) { f.metadata[key] = text; });
    refuse([&](TensorFile& f) { f.metadata.erase(key); });
  }
  refuse([](TensorFile& f) { f.metadata["step"] = "99999999999999999999999"; });
  for (const char* key : {"model/more", "optimizer/more", "statistics/0/more", "statistics/more",
                          "history/more", "callbacks/9/more", "more"}) {
    SCOPED_TRACE(key);
    refuse([&](TensorFile& f) { f.tensors[key] = ones({1}); });
  }
}

}  // namespace
}  // namespace tandem::resume_test
