// Which examples fit() trains on, and in which order: passes over the data continue across
// epochs and calls.
#include <gtest/gtest.h>

#include <algorithm>
#include <stdexcept>

#include "support/files.h"
#include "support/tensors.h"
#include "tandem/math.h"
#include "tandem/model.h"
#include "tandem/random.h"

namespace tandem::data_order_test {
namespace {

using callbacks::Callback;
using callbacks::Logs;
using data::Dataset;
using data::Example;
using testing::expect_error;
using testing::TemporaryDirectory;
using testing::values_of;

Tensor numbers(int count) {
  std::vector<double> values;
  for (int i = 0; i < count; ++i) values.push_back(i);
  return constant(values, {.dtype = float32, .shape = {count, 1}});
}

// A model that records the examples that it is trained on.
struct Recorder {
  std::shared_ptr<std::vector<double>> met = std::make_shared<std::vector<double>>();
  Sequential model;

  Recorder() {
    const Layer record = layers::Lambda(
        [met = met](const Tensor& x) {
          for (double value : values_of(x)) met->push_back(value);
          return x;
        },
        {.input_shape = {1}});
    model = Sequential({record, layers::Dense(1)});
    model.compile({.optimizer = optimizers::SGD({.learning_rate = 1e-6}),
                   .loss = "mse",
                   .run_eagerly = true});
    met->clear();
  }

  // The examples that a call of fit() was trained on.
  std::vector<double> fit(const Dataset& data, FitOptions options) {
    options.verbose = 0;
    model.fit(data, std::move(options));
    return std::exchange(*met, {});
  }
};

Dataset ordered(int count, int batch) {
  return Dataset::from_tensor_slices({numbers(count), numbers(count)}).batch(batch);
}

Dataset shuffled(int count, int batch) {
  return Dataset::from_tensor_slices({numbers(count), numbers(count)})
      .shuffle(count, {.seed = 3})
      .batch(batch);
}

std::vector<double> sorted(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values;
}

using Values = std::vector<double>;

TEST(DataOrder, StepsPerEpochContinueThroughTheData) {
  Recorder recorder;
  EXPECT_EQ(recorder.fit(ordered(10, 1).repeat(), {.epochs = 3, .steps_per_epoch = 4}),
            (Values{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1}));
}

TEST(DataOrder, StepsPerEpochBeyondTheDataBeginTheNextPass) {
  Recorder recorder;
  EXPECT_EQ(recorder.fit(ordered(3, 1), {.epochs = 2, .steps_per_epoch = 4}),
            (Values{0, 1, 2, 0, 1, 2, 0, 1}));
  const Dataset one_pass = Dataset::from_generator([done = std::make_shared<bool>(false)] {
    const bool again = std::exchange(*done, true);
    return [left = again ? 0 : 3]() mutable {
      return left-- > 0 ? std::optional(Example{numbers(1), numbers(1)}) : std::nullopt;
    };
  });
  EXPECT_EQ(recorder.fit(one_pass, {.epochs = 1, .steps_per_epoch = 5}).size(), 3U)
      << "there is nothing more";
}

TEST(DataOrder, APassOfSeveralEpochsIsShuffledOnce) {
  Recorder recorder;
  const Values met = recorder.fit(shuffled(8, 1), {.epochs = 4, .steps_per_epoch = 4});
  const Values first(met.begin(), met.begin() + 8), second(met.begin() + 8, met.end());
  EXPECT_EQ(sorted(first), values_of(numbers(8)));
  EXPECT_EQ(sorted(second), values_of(numbers(8)));
  EXPECT_NE(first, second);
}

TEST(DataOrder, EachCallOfFitHasItsOwnOrder) {
  Recorder calls, epochs;
  Values of_calls;
  for (int call = 0; call < 3; ++call)
    for (double value : calls.fit(shuffled(20, 5), {})) of_calls.push_back(value);
  EXPECT_EQ(of_calls, epochs.fit(shuffled(20, 5), {.epochs = 3}));
  EXPECT_NE(Values(of_calls.begin(), of_calls.begin() + 20),
            Values(of_calls.begin() + 20, of_calls.begin() + 40));

  const Tensor x = numbers(20);
  Recorder plain;
  plain.model.fit(x, x, {.verbose = 0});
  const Values first = std::exchange(*plain.met, {});
  plain.model.fit(x, x, {.verbose = 0});
  EXPECT_NE(first, *plain.met);
  EXPECT_EQ(sorted(first), sorted(*plain.met));
}

TEST(DataOrder, ACallThatEndsWithinAPassIsFollowedByTheNextPass) {
  Recorder recorder;
  const Values first = recorder.fit(shuffled(8, 1), {.epochs = 1, .steps_per_epoch = 3});
  const Values second = recorder.fit(shuffled(8, 1), {.epochs = 1});
  Recorder whole;
  const Values both = whole.fit(shuffled(8, 1), {.epochs = 2});
  EXPECT_EQ(first, Values(both.begin(), both.begin() + 3));
  EXPECT_EQ(second, Values(both.begin() + 8, both.end()));
}

TEST(DataOrder, RandomMapsContinueAcrossCalls) {
  random::set_seed(2);
  const Dataset noise = Dataset::from_tensor_slices({numbers(4), numbers(4)})
                            .map([](const Example& e) {
                              return Example{e[0] + random::normal({1}), e[1]};
                            })
                            .batch(2);
  Recorder recorder;
  const Values first = recorder.fit(noise, {}), second = recorder.fit(noise, {});
  for (std::size_t i = 0; i < first.size(); ++i) EXPECT_NE(first[i], second[i]) << i;
}

TEST(DataOrder, InitialEpochBeginsWithThatPass) {
  Recorder whole, rest;
  const Values all = whole.fit(shuffled(8, 4), {.epochs = 4});
  EXPECT_EQ(rest.fit(shuffled(8, 4), {.epochs = 4, .initial_epoch = 2}),
            Values(all.begin() + 16, all.end()));
  Recorder halves;
  halves.fit(shuffled(8, 4), {.epochs = 2});
  EXPECT_EQ(halves.fit(shuffled(8, 4), {.epochs = 4, .initial_epoch = 2}),
            Values(all.begin() + 16, all.end()));
}

// --- training that is interrupted and resumed ---

Callback crash_after(std::int64_t steps) {
  return callbacks::LambdaCallback(
      {.on_train_batch_end = [left = steps](Model&, std::int64_t, const Logs&) mutable {
        if (--left == 0) throw std::runtime_error("crash");
      }});
}

// Calls fit() twice, the second time with steps_per_epoch.
Values program(const std::filesystem::path& first, const std::filesystem::path& second,
               std::int64_t crash) {
  Recorder recorder;
  const FitOptions one = {
      .epochs = 2, .callbacks = {callbacks::BackupAndRestore(first, {.delete_checkpoint = false})}};
  FitOptions two = {.epochs = 3,
                    .steps_per_epoch = 5,
                    .callbacks = {callbacks::BackupAndRestore(
                        second, {.save_freq = 1, .delete_checkpoint = false})}};
  if (crash > 0) two.callbacks.push_back(crash_after(crash));
  Values met = recorder.fit(shuffled(8, 2), one);
  try {
    for (double value : recorder.fit(shuffled(8, 2), two)) met.push_back(value);
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "crash");
  }
  return met;
}

TEST(DataOrder, ResumesFromACheckpointWithinAPass) {
  const TemporaryDirectory unbroken;
  const Values all = program(unbroken / "first", unbroken / "second", 0);
  ASSERT_EQ(all.size(), 16U + 30U);
  for (const std::int64_t crash : {2, 5, 9, 12}) {
    const TemporaryDirectory directory;
    program(directory / "first", directory / "second", crash);
    // The crashing callback runs before the one that saves the checkpoint of its step.
    const Values rest = program(directory / "first", directory / "second", 0);
    EXPECT_EQ(rest, Values(all.begin() + 16 + 2 * (crash - 1), all.end())) << crash;
  }
}

// --- infinite data ---

TEST(EndlessData, RequiresANumberOfSteps) {
  Recorder recorder;
  Model& model = recorder.model;
  const Dataset endless = ordered(4, 2).repeat(), good = ordered(4, 2);
  expect_error<InvalidArgumentError>([&] { model.fit(endless, {.verbose = 0}); },
                                     "[fit] the dataset never ends (repeat() without a count): "
                                     "pass steps_per_epoch");
  expect_error<InvalidArgumentError>([&] { model.evaluate(endless); }, "pass steps,");
  expect_error<InvalidArgumentError>([&] { model.predict(endless); },
                                     "[predict] the dataset never");
  expect_error<InvalidArgumentError>(
      [&] { model.fit(good, {.validation_data = endless, .verbose = 0}); },
      "pass validation_steps");
  EXPECT_TRUE(recorder.met->empty()) << "refused before training";

  EXPECT_EQ(recorder.fit(good, {.validation_data = endless, .validation_steps = 3}),
            (Values{0, 1, 2, 3, 0, 1, 2, 3, 0, 1}));
  EXPECT_EQ(model.predict(endless, {.steps = 3}).dim(0), 6);
  EXPECT_GT(model.evaluate(endless, {.steps = 3}).at("loss"), 0.0);
}

}  // namespace
}  // namespace tandem::data_order_test
