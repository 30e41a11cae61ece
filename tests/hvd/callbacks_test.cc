// The callbacks of Horovod jobs.
#include "hvd/expect_close.h"
#include "support/hvd_ranks.h"
#include "support/tensors.h"
#include "tandem/tandem.h"

namespace tandem::hvd_callbacks_test {
namespace {

using callbacks::Callback;
using testing::expect_close;
using testing::expect_error;
using testing::expect_hvd;
using testing::values_of;

// y = x * w, with w = 1 at first.
Sequential product(const optimizers::Optimizer& optimizer) {
  Sequential model({layers::Dense(1, {.use_bias = false, .input_shape = {1}})});
  Variable w = model.variables()[0];
  w.assign(ones({1, 1}));
  model.compile({.optimizer = optimizer, .loss = "mse"});
  return model;
}

// `batches` batches of the example x -> 0.
data::Dataset data_of(double x, std::int64_t batches) {
  return data::Dataset::from_tensor_slices({full({batches, 1}, x), zeros({batches, 1})}).batch(1);
}

History fit(Sequential& model, const data::Dataset& data, std::int64_t epochs,
            std::vector<Callback> callbacks) {
  FitOptions options{.epochs = epochs, .verbose = 0};
  options.callbacks = std::move(callbacks);
  return model.fit(data, options);
}

TEST(HvdCallbacks, MetricsAreAveragedForHistoryAndCallbacks) {
  expect_hvd(2, [](int rank) {
    Sequential model = product(optimizers::SGD({.learning_rate = 0.0}));
    std::vector<double> seen;
    const Callback see = callbacks::LambdaCallback(
        {.on_epoch_end = [&](Model&, std::int64_t, const callbacks::Logs& logs) {
          seen.push_back(logs.at("loss"));
        }});
    const auto data = data_of(rank + 1.0, 2);  // losses of 1 and 4
    expect_close(fit(model, data, 1, {}).history.at("loss"), {rank == 0 ? 1.0 : 4.0}, 1e-6);
    const History history = fit(model, data, 2, {see, hvd::callbacks::MetricAverageCallback()});
    expect_close(history.history.at("loss"), {2.5, 2.5}, 1e-6);
    expect_close(seen, {2.5, 2.5}, 1e-6);
  });
}

// The rate of each step.
std::vector<double> rates_of(const Callback& callback, std::int64_t batches, std::int64_t epochs) {
  Sequential model = product(optimizers::SGD({.learning_rate = 0.5}));
  std::vector<double> rates;
  const Callback note = callbacks::LambdaCallback(
      {.on_train_batch_end = [&](Model& model, std::int64_t, const callbacks::Logs&) {
        rates.push_back(model.optimizer().learning_rate());
      }});
  fit(model, data_of(0.0, batches), epochs, {note, callback});
  return rates;
}

TEST(HvdCallbacks, WarmupRaisesTheRateWithEachBatch) {
  expect_hvd(2, [](int) {
    std::vector<double> expected;
    for (int step = 1; step <= 12; ++step)
      expected.push_back(0.4 * (1.0 + std::min(step, 8) / 8.0));
    expect_close(rates_of(hvd::callbacks::LearningRateWarmupCallback(0.8, 2), 4, 3), expected,
                 1e-12);
    expect_close(rates_of(hvd::callbacks::LearningRateWarmupCallback(
                              {.initial_lr = 0.8, .warmup_epochs = 2, .steps_per_epoch = 4}),
                          4, 3),
                 expected, 1e-12);
  });
}

TEST(HvdCallbacks, WarmupOfOneRankIsTheRate) {
  expect_hvd(1, [](int) {
    expect_close(rates_of(hvd::callbacks::LearningRateWarmupCallback(0.8), 2, 1), {0.8, 0.8},
                 1e-12);
  });
}

TEST(HvdCallbacks, SchedulesSetTheRateOfTheirEpochs) {
  expect_hvd(1, [](int) {
    using hvd::callbacks::LearningRateScheduleCallback;
    expect_close(rates_of(LearningRateScheduleCallback(2.0, 0.1, 1, 3), 2, 4),
                 {0.5, 0.5, 2.0, 2.0, 0.2, 0.2, 0.2, 0.2}, 1e-12);
    expect_close(
        rates_of(LearningRateScheduleCallback({.initial_lr = 2.0,
                                               .multiplier = [](double epoch) { return epoch; },
                                               .staircase = false}),
                 2, 2),
        {0.0, 1.0, 2.0, 3.0}, 1e-12);
  });
}

// Keras's momentum contains the learning rate, so that it must follow the rate.
TEST(HvdCallbacks, TheMomentumFollowsTheRate) {
  for (bool corrected : {true, false})
    expect_hvd(1, [&](int) {
      Sequential model = product(optimizers::SGD({.learning_rate = 0.1, .momentum = 0.9}));
      fit(model, data_of(1.0, 1), 4,
          {hvd::callbacks::LearningRateScheduleCallback(
              {.initial_lr = 0.1,
               .multiplier = [](double epoch) { return epoch < 2 ? 1.0 : 0.5; },
               .momentum_correction = corrected})});
      double w = 1.0, velocity = 0.0;
      for (int epoch = 0; epoch < 4; ++epoch) {
        if (epoch == 2 && corrected) velocity *= 0.5;
        velocity = 0.9 * velocity - (epoch < 2 ? 0.1 : 0.05) * 2.0 * w;
        w += velocity;
      }
      expect_close(values_of(model.variables()[0].value()), {w}, 1e-6);
    });
}

TEST(HvdCallbacks, TheNumberOfBatchesIsNeededForABatchwiseRate) {
  expect_hvd(1, [](int) {
    Sequential model = product(optimizers::SGD({.learning_rate = 0.5}));
    const auto unknown = data_of(1.0, 4).filter([](const data::Example&) { return true; });
    expect_error<FailedPreconditionError>(
        [&] { fit(model, unknown, 1, {hvd::callbacks::LearningRateWarmupCallback(0.1)}); },
        "[LearningRateWarmupCallback] Could not autodetect the number of steps per epoch.");
    expect_error<InvalidArgumentError>([] { hvd::callbacks::LearningRateWarmupCallback(0.0); },
                                       "expected an initial_lr above 0, got 0");
    expect_error<InvalidArgumentError>([] { hvd::callbacks::LearningRateWarmupCallback(0.1, 0); },
                                       "expected warmup_epochs of at least 1, got 0");
  });
}

}  // namespace
}  // namespace tandem::hvd_callbacks_test
