// Loss scales under TPUStrategy, whose steps are branches, against MirroredStrategy over as many
// CPUs; and batches that do not divide evenly.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "support/expects.h"
#include "support/pjrt.h"
#include "support/tensors.h"
#include "tandem/tandem.h"

namespace tandem::tpu_loss_scale_test {
namespace {

using distribute::MirroredStrategy;
using distribute::Strategy;
using distribute::TPUStrategy;
using optimizers::Optimizer;
using testing::values_of;

class TpuLossScales : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    TANDEM_REQUIRE(!testing::first_plugin().empty(), "pjrt");
    config::set_logical_cpus(4);
    config::load_pjrt_plugin(testing::first_plugin());
  }
  static std::vector<std::string> devices(const char* type) {
    std::vector<std::string> names;
    for (int i = 0; i < GetParam(); ++i) names.push_back(type + std::to_string(i));
    return names;
  }
  static TPUStrategy tpus() { return TPUStrategy({.devices = devices("TPU:")}); }
  static MirroredStrategy cpus() { return MirroredStrategy({.devices = devices("/cpu:")}); }
};

void expect_close(const std::vector<double>& a, const std::vector<double>& b, double tolerance) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], tolerance) << i;
}

Optimizer adam(std::vector<Variable> parameters = {}) {
  return optimizers::Adam(optimizers::schedules::exponential_decay(0.05, 2, 0.5),
                          std::move(parameters));
}

Sequential make_net() {
  random::set_seed(3);
  return Sequential({layers::Dense(6, {.activation = "tanh", .input_shape = {4}}),
                     layers::Dense(2, {.use_bias = false})});
}

struct Data {
  Tensor x, y;
  explicit Data(std::int64_t examples) {
    random::set_seed(8);
    x = random::normal({examples, 4});
    y = random::normal({examples, 2});
  }
  data::Dataset batches(std::int64_t size) const {
    return data::Dataset::from_tensor_slices({x, y}).batch(size);
  }
};

// The weights, the number of steps and the scale.
std::vector<double> state_of(const Model& model, const Optimizer& optimizer, double scale) {
  std::vector<double> numbers;
  for (const Variable& variable : model.variables())
    for (const double value : values_of(cast(variable.value(), float32))) numbers.push_back(value);
  numbers.push_back(static_cast<double>(optimizer.iterations()));
  numbers.push_back(std::log2(scale));
  return numbers;
}

// `dtype`: a policy, or empty for a LossScaleOptimizer. The last batch has `last` examples.
std::vector<double> by_fit(const Strategy& strategy, const std::string& dtype,
                           std::int64_t last = 8, std::int64_t steps_per_execution = 1) {
  const auto scope = strategy.scope();
  Sequential model = make_net();
  Optimizer optimizer = adam();
  if (dtype.empty())
    optimizer =
        optimizers::LossScaleOptimizer(optimizer, {.initial_scale = 1024.0, .growth_interval = 3});
  model.compile({.optimizer = optimizer,
                 .loss = losses::MeanSquaredError(),
                 .steps_per_execution = steps_per_execution,
                 .dtype = dtype.empty() ? "float32" : dtype});
  model.fit(Data(32 + last).batches(8), {.epochs = 3, .verbose = 0});
  return state_of(model, model.optimizer(), model.optimizer().loss_scale());
}

TEST_P(TpuLossScales, FitTrainsAsMirrored) {
  const std::vector<double> tpu = by_fit(tpus(), "");
  expect_close(tpu, by_fit(cpus(), ""), 1e-5);
  EXPECT_EQ(tpu[tpu.size() - 2], 15.0) << "steps";
  EXPECT_EQ(tpu.back(), 15.0) << "2^10 has grown after each third of them";
  expect_close(by_fit(tpus(), "", 8, 4), tpu, 1e-6);
  expect_close(by_fit(tpus(), "mixed_float16"), by_fit(cpus(), "mixed_float16"), 2e-3);
}

// A replica without examples takes the steps of the others.
TEST_P(TpuLossScales, FitTrainsAsMirroredWithAnUnevenLastBatch) {
  for (const std::int64_t last : {1, 3})
    expect_close(by_fit(tpus(), "", last), by_fit(cpus(), "", last), 1e-5);
}

// One step of a replica: scales the loss, and takes a step.
using Step = std::function<void(const Tensor& loss)>;

struct Loop {
  Sequential model = make_net();
  Optimizer optimizer = adam(model.trainable_variables());
  Tensor loss(const data::Example& batch) const {
    return nn::compute_average_loss(
        reduce_mean(square(cast(model(batch[0]), float32) - batch[1]), {.axis = Dims{1}}),
        {.global_batch_size = 8});
  }
};

// Traced steps, in which the inputs of step 2 are infinite.
std::vector<double> by_loop(const Strategy& strategy, Loop& loop, const Step& step,
                            const std::function<double()>& scale) {
  const auto train = function([&](const distribute::PerReplica<data::Example>& batch) {
    strategy.run(
        [&](const data::Example& mine) {
          loop.optimizer.zero_grad();
          step(loop.loss(mine));
        },
        batch);
  });
  Data data(48);
  const Tensor infinite = full({48}, std::numeric_limits<double>::infinity());
  data.x = data.x * expand_dims(where(equal(range(48), 17), infinite, ones({48})), 1);
  for (const auto& batch : strategy.experimental_distribute_dataset(data.batches(8))) train(batch);
  return state_of(loop.model, loop.optimizer, scale());
}

std::vector<double> by_grad_scaler(const Strategy& strategy) {
  const auto scope = strategy.scope();
  Loop loop;
  amp::GradScaler scaler({.init_scale = 1024.0, .growth_interval = 3});
  return by_loop(
      strategy, loop,
      [&](const Tensor& loss) {
        scaler.scale(loss).backward();
        scaler.step(loop.optimizer);
        scaler.update();
      },
      [&] { return scaler.get_scale(); });
}

std::vector<double> by_initialize(const Strategy& strategy) {
  const auto scope = strategy.scope();
  Loop loop;
  auto [model, optimizer] =
      amp::initialize(loop.model, loop.optimizer, {.opt_level = "O1", .dtype = bfloat16});
  return by_loop(
      strategy, loop,
      [&, &optimizer = optimizer](const Tensor& loss) {
        { amp::scale_loss(loss, optimizer).backward(); }
        optimizer.step();
      },
      [&, &optimizer = optimizer] { return optimizer.loss_scale(); });
}

std::vector<double> by_optimizer(const Strategy& strategy) {
  const auto scope = strategy.scope();
  Loop loop;
  loop.optimizer =
      optimizers::LossScaleOptimizer(loop.optimizer, {.initial_scale = 64.0, .growth_interval = 2});
  return by_loop(
      strategy, loop,
      [&](const Tensor& loss) { loop.optimizer.minimize(loss, loop.model.trainable_variables()); },
      [&] { return loop.optimizer.loss_scale(); });
}

TEST_P(TpuLossScales, LoopsTrainAsMirrored) {
  const std::vector<double> scaled = by_grad_scaler(tpus());
  expect_close(scaled, by_grad_scaler(cpus()), 1e-5);
  EXPECT_EQ(scaled[scaled.size() - 2], 5.0) << "steps, of which one was skipped";
  expect_close(by_optimizer(tpus()), by_optimizer(cpus()), 1e-5);
  expect_close(by_initialize(tpus()), by_initialize(cpus()), 2e-2);
}

// Gradients of two batches add before a step in a branch, which also updates the scaler's state on
// the host. Mirrored replicas do so eagerly.
std::vector<double> accumulate(const Strategy& strategy, bool traced) {
  const auto scope = strategy.scope();
  Loop loop;
  amp::GradScaler scaler({.init_scale = 64.0, .growth_interval = 2});
  std::vector<Variable> sums;
  for (const Variable& variable : loop.model.trainable_variables())
    sums.emplace_back(zeros(variable.shape()),
                      VariableOptions{.trainable = false,
                                      .synchronization = VariableSynchronization::kOnRead,
                                      .aggregation = VariableAggregation::kSum});
  const std::vector<Variable> weights = loop.model.trainable_variables();
  const auto step = [&](const distribute::PerReplica<data::Example>& batch, const Tensor& last) {
    strategy.run(
        [&](const data::Example& mine) {
          loop.optimizer.zero_grad();
          scaler.scale(loop.loss(mine)).backward();
          for (std::size_t i = 0; i < weights.size(); ++i) sums[i].assign_add(weights[i].grad());
          cond(
              last,
              [&] {
                for (std::size_t i = 0; i < weights.size(); ++i) {
                  Variable(weights[i]).set_grad(sums[i].value());
                  sums[i].assign(zeros(sums[i].shape()));
                }
                scaler.step(loop.optimizer);
                scaler.update();
              },
              [] {});
        },
        batch);
  };
  const auto replayed = function(step);
  int batches = 0;
  for (const auto& batch : strategy.experimental_distribute_dataset(Data(80).batches(8))) {
    const Tensor last = constant(++batches % 2 == 0);
    traced ? replayed(batch, last) : step(batch, last);
  }
  std::vector<double> state = state_of(loop.model, loop.optimizer, scaler.get_scale());
  EXPECT_EQ(state[state.size() - 2], 5.0) << "steps";
  EXPECT_EQ(state.back(), 8.0) << "64 has grown twice";
  return state;
}

TEST_P(TpuLossScales, GradientsAccumulateBeforeAStepInABranch) {
  expect_close(accumulate(tpus(), true), accumulate(cpus(), false), 1e-5);
}

INSTANTIATE_TEST_SUITE_P(Replicas, TpuLossScales, ::testing::Values(1, 2, 4),
                         [](const auto& info) { return std::to_string(info.param); });

// --- batches that do not divide evenly ---

std::vector<double> train_normalised(const Strategy& strategy) {
  random::set_seed(5);
  const auto scope = strategy.scope();
  Sequential model({layers::Dense(17, {.input_shape = {4}}),
                    layers::BatchNormalization({.synchronized = true}), layers::Activation("relu"),
                    layers::Dense(5), layers::BatchNormalization({.synchronized = true}),
                    layers::Dense(2)});
  model.compile({.optimizer = optimizers::SGD({.learning_rate = 0.05, .momentum = 0.9}),
                 .loss = losses::MeanSquaredError()});
  model.fit(Data(16 + 3).batches(8), {.epochs = 2, .verbose = 0});
  return state_of(model, model.optimizer(), 1.0);
}

class TpuUnevenBatches : public TpuLossScales {};

TEST_P(TpuUnevenBatches, SynchronizedMomentsAreThoseOfMirrored) {
  expect_close(train_normalised(tpus()), train_normalised(cpus()), 1e-4);
}

INSTANTIATE_TEST_SUITE_P(Replicas, TpuUnevenBatches, ::testing::Values(2, 4),
                         [](const auto& info) { return std::to_string(info.param); });

}  // namespace
}  // namespace tandem::tpu_loss_scale_test
