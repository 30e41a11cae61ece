// Learners: ranks with different numbers of samples, budgets, statistics, errors of one rank.
#include <cmath>

#include "core/parallel.h"
#include "online/training.h"
#include "support/errors.h"
#include "support/process_groups.h"

namespace tandem::learner_test {
namespace {

using online::Learner;
using online::Window;
using testing::error_of;
using testing::expect_group;
using testing::Pair;
using testing::samples;
using testing::small_model;
using testing::weights_of;

constexpr std::int64_t kSamples = 12;

std::vector<double> trained_alone(const std::function<void(const Learner&)>& train) {
  const ThreadBudget one(1);  // tests fork afterwards
  const Model model = small_model();
  train(Learner(model, {.normalize = online::Normalize{}}));
  return weights_of(model);
}

void train_five_steps(const Learner& learner, const Pair& mine) {
  learner.observe(mine.x, mine.y);
  for (int step = 0; step < 5; ++step) learner.train(mine.x, mine.y);
}

void expect_close(const std::vector<double>& a, const std::vector<double>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 2e-5) << i;
}

// Rank 0 has no samples, rank 1 one, rank 2 the others.
TEST(Learner, TrainsOnTheSamplesOfAllRanks) {
  const auto alone = trained_alone(
      [](const Learner& learner) { train_five_steps(learner, samples(0, kSamples)); });
  expect_group({.size = 3}, [&](int rank) {
    const Model model = small_model(static_cast<std::uint64_t>(rank) + 1);
    const Learner learner(model, {.group = comm::new_group(), .normalize = online::Normalize{}});
    const Pair mine = rank == 0   ? samples(0, 0)
                      : rank == 1 ? samples(0, 1)
                                  : samples(1, kSamples - 1);
    train_five_steps(learner, mine);
    expect_close(weights_of(model), alone);
    EXPECT_EQ(learner.step(), 5);
  });
}

// A rank without samples beside one changes no bit.
TEST(Learner, TrainsAsTheOnlyRankWithSamples) {
  const auto alone = trained_alone(
      [](const Learner& learner) { train_five_steps(learner, samples(0, kSamples)); });
  expect_group({.size = 2}, [&](int rank) {
    const Model model = small_model(static_cast<std::uint64_t>(rank) + 1);
    const Learner learner(model, {.group = comm::new_group(), .normalize = online::Normalize{}});
    learner.model().set_weights(small_model().get_weights());
    train_five_steps(learner, samples(0, rank == 1 ? kSamples : 0));
    EXPECT_EQ(weights_of(model), alone);
  });
}

TEST(Learner, RefusesAStepWithoutSamples) {
  const Learner alone(small_model());
  const Pair none = samples(0, 0);
  EXPECT_EQ(error_of<InvalidArgumentError>([&] { alone.train(none.x, none.y); }),
            "[train] x: expected at least one example, got none");
  expect_group({}, [&](int) {
    const Learner learner(small_model(), {.group = comm::new_group()});
    EXPECT_EQ(error_of<InvalidArgumentError>([&] { learner.train(none.x, none.y); }),
              "[train] x: expected at least one example, got none");
    learner.train(samples(0, 3).x, samples(0, 3).y);
  });
}

TEST(Learner, TellsAllRanksOfAnErrorAndGoesOn) {
  expect_group({.size = 3}, [](int rank) {
    const Model model = small_model();
    const Learner learner(model, {.group = comm::new_group()});
    const auto before = weights_of(model);
    const Pair mine = samples(rank, 4);
    const Tensor wrong = rank == 1 ? zeros({4, 3}) : mine.x;
    const std::string error = error_of<InvalidArgumentError>([&] { learner.train(wrong, mine.y); });
    EXPECT_EQ(error,
              rank == 1
                  ? "[train] x: expected shape (?, 2), got (4, 3)"
                  : "[train] rank 1 has failed: [train] x: expected shape (?, 2), got (4, 3)");
    EXPECT_EQ(weights_of(model), before);
    learner.train(mine.x, mine.y);
    EXPECT_EQ(learner.step(), 1);
  });
}

// The statistics are those of all ranks, also far from zero, and stay from freeze_after on.
TEST(Learner, NormalizesByTheStatisticsOfAllRanks) {
  expect_group({}, [](int rank) {
    const Learner learner(small_model(), {.group = comm::new_group(),
                                          .normalize = online::Normalize{.freeze_after = 8}});
    std::vector<double> x, y;
    for (int i = 0; i < 4; ++i) {
      x.insert(x.end(), {1e8 + (rank ? 1.0 : -1.0), 5.0 * rank + i});
      y.push_back(rank);
    }
    const Tensor xs = reshape(constant(x, {.dtype = float64}), {4, 2});
    const Tensor ys = reshape(constant(y, {.dtype = float64}), {4, 1});
    learner.observe(xs, ys);
    const auto state = learner.state().at("statistics/x").to_vector<double>();
    EXPECT_EQ(state[0], 8.0);
    EXPECT_EQ(state[1], 1e8);
    EXPECT_EQ(state[2], 4.0);
    EXPECT_EQ(state[3], 8.0);  // the variance is 1
    learner.observe(xs, ys);
    EXPECT_EQ(learner.state().at("statistics/x").to_vector<double>(), state);
    x[5] = NAN;
    const Tensor bad = rank == 0 ? reshape(constant(x, {.dtype = float64}), {4, 2}) : xs;
    EXPECT_NE(error_of<InvalidArgumentError>([&] {
                learner.observe(bad, ys);
              }).find("[observe] x: expected finite numbers, got nan at element 5"),
              std::string::npos);
  });
}

TEST(Learner, HasStatisticsPerFeatureChannelOrAll) {
  random::set_seed(1);
  const auto features = [](online::Per per) {
    Sequential model({layers::Flatten({.input_shape = {3, 4}}), layers::Dense(2)});
    const Learner learner(model, {.normalize = online::Normalize{.per = per}});
    learner.observe(random::normal({5, 3, 4}), random::normal({5, 2}));
    return learner.state().at("statistics/x").shape().num_elements() / 2;
  };
  EXPECT_EQ(features(online::Per::kFeature), 12);
  EXPECT_EQ(features(online::Per::kChannel), 4);
  EXPECT_EQ(features(online::Per::kAll), 1);
}

// All ranks take as many steps as rank 0 has time for, also slower ones.
TEST(Learner, EndsAtTheBudgetOnAllRanks) {
  expect_group({.size = 3}, [](int rank) {
    const comm::ProcessGroup group = comm::new_group();
    const Learner learner(small_model(), {.group = group});
    const Window window({.capacity = 100, .batch_size = 4, .min_samples = 10});
    EXPECT_EQ(learner.train(window).steps, 0);
    if (rank != 1) window.push(samples(rank, 4).x, samples(rank, 4).y);
    EXPECT_EQ(learner.train(window).steps, 0);  // 8 samples
    if (rank == 2) window.push(samples(9, 4).x, samples(9, 4).y);
    online::Report report = learner.train(window, {.max_steps = 7, .max_seconds = 1e6});
    EXPECT_EQ(report.steps, 7);
    EXPECT_EQ(report.step, 7);
    EXPECT_TRUE(std::isfinite(report.loss) && std::isnan(report.holdout_loss));
    report = learner.train(window, {.max_steps = 0, .max_seconds = 0.05});
    EXPECT_GE(report.steps, 1);
    EXPECT_GE(report.seconds, 0.05 * (rank == 0));
    std::vector<Tensor> steps =
        comm::all_gather(constant(static_cast<double>(report.steps)), {.group = group});
    for (const Tensor& each : steps) EXPECT_EQ(each.item(), static_cast<double>(report.steps));
    EXPECT_EQ(learner.train(window, {.max_steps = 0, .max_seconds = 1e-9}).steps, 1);
    EXPECT_NE(error_of<InvalidArgumentError>([&] {
                learner.train(window, {.max_steps = 0});
              }).find("expected a budget of steps or seconds above 0, got 0 and 0"),
              std::string::npos);
    EXPECT_NE(error_of<InvalidArgumentError>([&] {
                learner.train(window, {.max_steps = 1 + rank});
              }).find("expected one budget on all ranks"),
              std::string::npos);
  });
}

TEST(Learner, ReportsTheLossOfTheHoldout) {
  const Learner learner(small_model());
  const Window window({.capacity = 100, .batch_size = 4, .holdout = 0.2});
  window.push(samples(0, 60).x, samples(0, 60).y);
  const online::Report report = learner.train(window, {.max_steps = 3});
  const auto [x, y] = window.holdout();
  EXPECT_EQ(report.holdout_loss, learner.evaluate(x, y));
}

// Against finite differences.
TEST(Learner, ReturnsTheGradientWithRespectToItsInputs) {
  random::set_seed(3);
  Sequential model(
      {layers::Dense(5, {.activation = "tanh", .input_shape = {2}, .dtype = "float64"}),
       layers::Dense(1, {.dtype = "float64"})});
  model.compile(
      {.optimizer = optimizers::SGD({.learning_rate = 0.1}), .loss = losses::MeanSquaredError()});
  const Learner learner(model, {.normalize = online::Normalize{}});
  const Tensor x = cast(samples(0, 6).x, float64), y = cast(samples(0, 6).y, float64);
  learner.observe(x, y);
  const Tensor dy = constant(std::vector<double>{1, -2, 3, 0.5, 2, -1}, {.dtype = float64});
  const auto loss = [&](const Tensor& at) {
    return reduce_sum(learner.predict(at) * reshape(dy, {6, 1})).item();
  };
  const auto dx = learner.backward(x, reshape(dy, {6, 1}), false).to_vector<double>();
  for (int i = 0; i < 12; ++i) {
    auto values = x.to_vector<double>();
    const auto at = static_cast<std::size_t>(i);
    values[at] += 1e-5;
    const double up = loss(reshape(constant(values, {.dtype = float64}), {6, 2}));
    values[at] -= 2e-5;
    const double down = loss(reshape(constant(values, {.dtype = float64}), {6, 2}));
    EXPECT_NEAR(dx[at], (up - down) / 2e-5, 1e-6 * std::fmax(1.0, std::abs(dx[at])));
  }
}

TEST(Learner, RefusesModelsThatItCannotTrain) {
  Sequential unbuilt({layers::Dense(1)});
  EXPECT_NE(error_of<FailedPreconditionError>([&] { Learner learner(unbuilt); }), "no error");
  Sequential plain({layers::Dense(1, {.input_shape = {2}})});
  const Learner learner(plain);
  EXPECT_NE(error_of<FailedPreconditionError>([&] {
              learner.train(samples(0, 2).x, samples(0, 2).y);
            }).find("[train] expected a model"),
            std::string::npos);
  EXPECT_NE(error_of<FailedPreconditionError>([&] {
              learner.observe(samples(0, 2).x, samples(0, 2).y);
            }).find("[observe] expected a model"),
            std::string::npos);
  EXPECT_EQ(learner.predict(samples(0, 2).x).shape(), Shape({2, 1}));
}

}  // namespace
}  // namespace tandem::learner_test
