// Training beside the program: results that do not depend on timing, and whole states.
#include <atomic>
#include <chrono>
#include <map>
#include <set>
#include <thread>

#include "online/training.h"
#include "support/errors.h"
#include "support/process_groups.h"

namespace tandem::trainer_test {
namespace {

using online::Learner;
using online::Report;
using online::Trainer;
using online::Window;
using testing::error_of;
using testing::expect_group;
using testing::samples;
using testing::small_model;
using testing::values_of;
using testing::weights_of;

void pause(int microseconds) {
  std::this_thread::sleep_for(std::chrono::microseconds(microseconds));
}

// The predictions of a program, which takes `pauses` of these lengths between its steps.
std::vector<double> run_program(const std::vector<int>& pauses,
                                const online::TrainerOptions& options,
                                const std::optional<comm::ProcessGroup>& group = {}) {
  const int rank = group ? group->rank() : 0;
  const Learner learner(small_model(), {.group = group, .normalize = online::Normalize{}});
  const Learner training(small_model(2),
                         {.group = group ? std::optional(comm::new_group()) : std::nullopt,
                          .normalize = online::Normalize{}});
  const Window window({.capacity = 200, .batch_size = 8, .seed = 4});
  const Trainer trainer(learner, training, window, options);
  std::vector<double> all;
  for (int step = 0; step < 30; ++step) {
    const auto [x, y] = samples(100 * rank + 10 * step, rank == 1 && step < 10 ? 0 : 10);
    learner.observe(x, y);
    trainer.push(x, y);
    pause(pauses[static_cast<std::size_t>(step) % pauses.size()]);
    if (step % 3 == 2) all.push_back(static_cast<double>(trainer.update().step));
    for (const double value : values_of(learner.predict(samples(0, 3).x))) all.push_back(value);
  }
  const Report report = trainer.stop();
  all.push_back(static_cast<double>(report.step));
  for (const double weight : weights_of(learner.model())) all.push_back(weight);
  // The learner goes on.
  all.push_back(learner.train(samples(0, 8).x, samples(0, 8).y));
  return all;
}

TEST(Trainer, GivesTheSameResultAtAnySpeed) {
  for (const online::TrainerOptions& options :
       {online::TrainerOptions{.max_lag = 0},
        online::TrainerOptions{.max_lag = 3, .steps_per_push = 2.5},
        online::TrainerOptions{.max_lag = 8, .steps_per_push = 0.4}}) {
    const auto at_once = run_program({0}, options);
    EXPECT_EQ(run_program({2000, 0, 0, 500}, options), at_once);
    EXPECT_EQ(run_program({0, 0, 3000}, options), at_once);
  }
}

// Without lag, the same as training by the program itself.
TEST(Trainer, TrainsAsTheProgramWould) {
  const Learner own(small_model(), {.normalize = online::Normalize{}});
  const Window own_window({.capacity = 200, .batch_size = 8, .seed = 4});
  for (int step = 0; step < 30; ++step) {
    const auto [x, y] = samples(10 * step, 10);
    own.observe(x, y);
    own_window.push(x, y);
    own.train(own_window, {.max_steps = 2});
  }
  const auto beside = run_program({0}, {.max_lag = 0, .steps_per_push = 2.0});
  const auto weights = weights_of(own.model());
  ASSERT_GT(beside.size(), weights.size() + 1);
  for (std::size_t i = 0; i < weights.size(); ++i)
    EXPECT_EQ(beside[beside.size() - 1 - weights.size() + i], weights[i]);
}

// Ranks, one of which has no samples for a while.
TEST(Trainer, TrainsOnTheSamplesOfAllRanks) {
  expect_group({.size = 3}, [](int rank) {
    const comm::ProcessGroup group = comm::new_group();
    const online::TrainerOptions options{.max_lag = 3};
    const auto first = run_program({100 * rank}, options, group);
    EXPECT_EQ(run_program({300 - 100 * rank, 0}, options, group), first);
  });
}

TEST(Trainer, IsNeverLaterThanMaxLag) {
  const Learner learner(small_model()), training(small_model());
  const Window window({.capacity = 1000, .batch_size = 32});
  const Trainer trainer(learner, training, window, {.max_lag = 2, .steps_per_push = 20});
  for (std::int64_t push = 1; push <= 20; ++push) {
    trainer.push(samples(32 * push, 32).x, samples(32 * push, 32).y);
    EXPECT_GE(training.step(), 20 * (push - 2));
    EXPECT_EQ(trainer.update().step, 20 * std::max<std::int64_t>(push - 2, 0));
  }
  EXPECT_EQ(trainer.stop().step, 400);
  EXPECT_EQ(learner.step(), 400);
}

TEST(Trainer, ChangesAllWeightsAtOnce) {
  const Learner learner(small_model()), training(small_model());
  const Window window({.capacity = 100, .batch_size = 8});
  const Trainer trainer(learner, training, window, {.max_lag = 1, .steps_per_push = 3});
  const Tensor x = samples(0, 5).x;
  std::set<std::vector<double>> states{values_of(learner.predict(x))}, seen;
  std::atomic<bool> ended{false};
  std::thread reader([&] {
    while (!ended) seen.insert(values_of(learner.predict(x)));
  });
  for (int step = 0; step < 40; ++step) {
    trainer.push(samples(step, 8).x, samples(step, 8).y);
    trainer.update();
    states.insert(values_of(learner.predict(x)));
  }
  trainer.stop();
  states.insert(values_of(learner.predict(x)));
  ended = true;
  reader.join();
  for (const std::vector<double>& each : seen) EXPECT_TRUE(states.contains(each));
}

// A network whose weights are all alike: its prediction tells whether they are.
TEST(ModelWeights, AreThoseOfOneStateInAPrediction) {
  Sequential model({layers::Dense(8, {.use_bias = false, .input_shape = {1}}),
                    layers::Dense(8, {.use_bias = false}), layers::Dense(1, {.use_bias = false})});
  model.compile({.optimizer = "sgd", .loss = losses::MeanSquaredError()});
  const auto all = [&](double value) {
    std::vector<Tensor> weights;
    for (const Variable& variable : model.variables())
      weights.push_back(full(variable.shape(), value));
    return weights;
  };
  const std::vector<Tensor> ones = all(1.0), twos = all(2.0);
  model.set_weights(ones);
  std::atomic<bool> ended{false};
  std::thread writer([&] {
    for (int i = 0; !ended; ++i) model.set_weights(i % 2 ? ones : twos);
  });
  const Tensor x = full({1, 1}, 1.0);
  std::map<double, int> answers;
  for (int i = 0; i < 2000; ++i) {
    ++answers[model(x).item()];
    ++answers[model.predict(x).item()];
  }
  ended = true;
  writer.join();
  for (const auto& [answer, count] : answers)
    EXPECT_TRUE(answer == 64.0 || answer == 512.0) << answer;
}

TEST(Trainer, KeepsOthersFromChangingWhatItHas) {
  const Learner learner(small_model()), training(small_model());
  const Window window({.capacity = 100, .batch_size = 8});
  const auto [x, y] = samples(0, 10);
  window.push(x, y);
  const Trainer trainer(learner, training, window);
  const auto refused = [&](const auto& call) {
    EXPECT_NE(error_of<FailedPreconditionError>(call).find("a trainer"), std::string::npos);
  };
  refused([&, x = x, y = y] { learner.train(x, y); });
  refused([&] { learner.train(window); });
  refused([&] { learner.restore(training.state()); });
  refused([&, x = x, y = y] { window.push(x, y); });
  refused([&] { window.sample(); });
  refused([&] { Trainer(learner, Learner{small_model()}, Window{}); });
  refused([&] { Trainer(Learner{small_model()}, Learner{small_model()}, window); });
  EXPECT_NE(error_of<InvalidArgumentError>([&] {
              trainer.push(zeros({2, 3}), zeros({2, 1}));
            }).find("[push] x: expected shape"),
            std::string::npos);
  EXPECT_NE(error_of<InvalidArgumentError>([&, y = y] {
              trainer.push(zeros({10, 2}, {.dtype = float64}), y);
            }).find("expected samples of float32 (2,)"),
            std::string::npos);
  trainer.push(x, y);
  trainer.stop();
  window.push(x, y);
  learner.train(window);
  EXPECT_EQ(error_of<FailedPreconditionError>([&] { trainer.update(); }),
            "[update] the trainer was stopped");
}

// The thread's error comes back; the learner keeps its weights and goes on.
TEST(Trainer, ReturnsTheErrorOfItsThread) {
  const Model model = small_model();
  const Learner learner(model), training(small_model());
  const auto before = weights_of(model);
  const Window window({.capacity = 100, .batch_size = 8});
  {
    const Trainer trainer(learner, training, window, {.max_lag = 0});
    const Tensor x = samples(0, 10).x;
    // Targets of class numbers, which the loss refuses in the step alone.
    EXPECT_THROW(trainer.push(x, zeros({10, 3}, {.dtype = int32})), Error);
    EXPECT_THROW(trainer.update(), Error);
    EXPECT_THROW(trainer.stop(), Error);
  }
  EXPECT_EQ(weights_of(model), before);
  learner.train(samples(0, 4).x, samples(0, 4).y);
}

TEST(Trainer, EndsWithItsLastHandle) {
  const Learner learner(small_model()), training(small_model());
  const Window window({.capacity = 100, .batch_size = 8});
  {
    const Trainer trainer(learner, training, window, {.max_lag = 50, .steps_per_push = 1000});
    for (int push = 0; push < 20; ++push) trainer.push(samples(push, 8).x, samples(push, 8).y);
  }
  learner.train(window);
}

TEST(Trainer, RefusesWrongOptions) {
  const Learner learner(small_model()), training(small_model());
  const auto error = [&](const online::TrainerOptions& options) {
    return error_of<InvalidArgumentError>([&] { Trainer(learner, training, Window{}, options); });
  };
  EXPECT_EQ(error({.max_lag = -1}), "[Trainer] expected max_lag of at least 0, got -1");
  EXPECT_EQ(error({.steps_per_push = 0}), "[Trainer] expected steps_per_push above 0, got 0");
  EXPECT_EQ(error({.threads = 0}), "[Trainer] expected at least 1 thread, got 0");
  EXPECT_EQ(error_of<InvalidArgumentError>([&] { Trainer(learner, learner, Window{}); }),
            "[Trainer] expected two models, got one");
  Sequential other({layers::Dense(1, {.input_shape = {2}})});
  other.compile({.optimizer = "sgd", .loss = losses::MeanSquaredError()});
  EXPECT_THROW(Trainer(learner, Learner{other}, Window{}), Error);
  learner.train(samples(0, 4).x, samples(0, 4).y);
}

}  // namespace
}  // namespace tandem::trainer_test
