// fit() that a signal stops.
#include <gtest/gtest.h>
#include <signal.h>

#include "support/files.h"
#include "support/tensors.h"
#include "tandem/config.h"
#include "tandem/distribute.h"
#include "tandem/model.h"
#include "tandem/random.h"

namespace tandem::stop_on_signal_test {
namespace {

using callbacks::Logs;
using testing::expect_error;
using testing::TemporaryDirectory;
using testing::values_of;

struct Program {
  Sequential model;
  data::Dataset data;

  Program() {
    random::set_seed(7);
    model = Sequential({layers::Dense(8, {.activation = "relu", .input_shape = {4}}),
                        layers::Dropout(0.5), layers::Dense(1)});
    model.compile({.optimizer = optimizers::Adam({.learning_rate = 0.01}),
                   .loss = losses::MeanSquaredError()});
    data = data::Dataset::from_tensor_slices({random::uniform({40, 4}), random::uniform({40, 1})})
               .shuffle(40, {.seed = 1})
               .batch(4);
  }
  History fit(std::vector<callbacks::Callback> callbacks) {
    return model.fit(data, {.epochs = 3, .verbose = 0, .callbacks = std::move(callbacks)});
  }
  std::vector<std::vector<double>> weights() const {
    std::vector<std::vector<double>> values;
    for (const Variable& variable : model.variables())
      values.push_back(values_of(variable.value()));
    return values;
  }
};

// Raises `signal` in step number `step`.
callbacks::Callback raise_in_step(int signal, int step, int& steps) {
  return callbacks::LambdaCallback(
      {.on_train_batch_end = [=, &steps](Model&, std::int64_t, const Logs&) {
        if (++steps == step) raise(signal);
      }});
}

TEST(StopOnSignal, EndsFitAfterTheStepAndResumesToTheSameBits) {
  Program whole;
  const History expected = whole.fit({});
  for (const int step : {1, 13, 20, 30}) {
    const TemporaryDirectory directory;
    int steps = 0;
    std::vector<int> signals;
    Program stopped;
    stopped.fit({raise_in_step(SIGTERM, step, steps),
                 callbacks::TrainingCheckpoint(directory / "state"),
                 callbacks::StopOnSignal(
                     {.on_stop = [&](Model&, int signal) { signals.push_back(signal); }})});
    EXPECT_EQ(steps, step);
    EXPECT_EQ(signals, std::vector<int>{SIGTERM});
    Program resumed;
    const History history =
        resumed.fit({callbacks::TrainingCheckpoint(directory / "state", {.resume = true})});
    EXPECT_EQ(resumed.weights(), whole.weights()) << step;
    EXPECT_EQ(history.history, expected.history) << step;
  }
}

TEST(StopOnSignal, EndsFitUnderAStrategy) {
  config::set_logical_cpus(2);
  const distribute::MirroredStrategy strategy({.devices = {"/cpu:0", "/cpu:1"}});
  const auto scope = strategy.scope();
  Program program;
  int steps = 0;
  program.fit({raise_in_step(SIGINT, 2, steps), callbacks::StopOnSignal()});
  EXPECT_EQ(steps, 2);
}

using Handler = void (*)(int);
Handler handler_of(int number) {
  struct sigaction action = {};
  sigaction(number, nullptr, &action);
  return action.sa_handler;
}
void ignore(int) {}

TEST(StopOnSignal, RestoresEarlierHandlers) {
  signal(SIGINT, ignore);
  Program program;
  const auto stop = callbacks::StopOnSignal({.signals = {SIGINT}});
  EXPECT_EQ(handler_of(SIGINT), ignore) << "before fit()";
  Handler within = ignore;
  program.fit({stop, callbacks::LambdaCallback({.on_train_begin = [&](Model&) {
                 within = handler_of(SIGINT);
                 EXPECT_EQ(handler_of(SIGTERM), SIG_DFL);
               }})});
  EXPECT_NE(within, ignore);
  EXPECT_EQ(handler_of(SIGINT), ignore) << "no signal has come";
  int steps = 0;
  {
    const auto stopped = callbacks::StopOnSignal({.signals = {SIGINT}});
    program.fit({raise_in_step(SIGINT, 2, steps), stopped});
    EXPECT_NE(handler_of(SIGINT), ignore) << "a second signal is to end the process";
  }
  EXPECT_EQ(steps, 2);
  EXPECT_EQ(handler_of(SIGINT), ignore);
}

TEST(StopOnSignal, ASecondSignalEndsTheProcess) {
  const auto interrupted_twice = [] {
    Program program;
    const auto stop =
        callbacks::StopOnSignal({.on_stop = [](Model&, int signal) { raise(signal); }});
    int steps = 0;
    program.fit({raise_in_step(SIGINT, 2, steps), stop});
  };
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(interrupted_twice(), ::testing::KilledBySignal(SIGINT), "");
}

TEST(StopOnSignal, RefusesInvalidArguments) {
  Program program;
  expect_error<InvalidArgumentError>(
      [&] { program.fit({callbacks::StopOnSignal({.signals = {SIGKILL}})}); },
      "[StopOnSignal] cannot handle signal 9");
  expect_error<FailedPreconditionError>(
      [&] {
        program.fit({callbacks::StopOnSignal(), callbacks::StopOnSignal()});
      },
      "[StopOnSignal] another StopOnSignal");
  EXPECT_EQ(handler_of(SIGINT), SIG_DFL);
}

}  // namespace
}  // namespace tandem::stop_on_signal_test
