// Every strategy with fit() and with a custom training loop, eagerly and traced. The names of these
// tests are the cells of docs/support_matrix.md (scripts/make-support-matrix).
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <tuple>
#include <vector>

#include "distribute/multi_worker_training.h"
#include "ps/local_cluster.h"
#include "support/errors.h"
#include "support/pjrt.h"

namespace tandem::ps::support_matrix_test {
namespace {

using distribute::ParameterServerStrategy;
using namespace tandem::testing;

constexpr int kEpochs = 8;

std::vector<double> weights_of(const Model& model) {
  std::vector<double> numbers;
  for (const Variable& variable : model.variables())
    for (double value : tandem::testing::values_of(variable.value())) numbers.push_back(value);
  return numbers;
}

// A change of the model: after half of its epochs, or of its optimizer before training.
enum class Change { kNone, kFreezing, kScaling };

Sequential model_for(const distribute::Strategy& strategy, Change change, bool eager = false) {
  Sequential model = make_model(strategy, {.run_eagerly = eager});
  if (change != Change::kScaling) return model;
  const auto scope = strategy.scope();
  model.compile({.optimizer = optimizers::LossScaleOptimizer(
                     optimizers::Adam(optimizers::schedules::exponential_decay(0.05, 10, 0.8)),
                     {.initial_scale = 1024.0, .growth_interval = 5}),
                 .loss = losses::SparseCategoricalCrossentropy({.from_logits = true}),
                 .run_eagerly = eager});
  return model;
}

// Trains half of the epochs by train(first, end), then the others after the change. Returns the
// weights and the loss.
template <class Train>
std::vector<double> train_in_halves(Sequential& model, Change change, const Train& train) {
  train(0, kEpochs / 2);
  const auto first_kernel = [&] {
    return tandem::testing::values_of(model.layers()[0].variables()[0].value());
  };
  const std::vector<double> frozen = first_kernel();
  if (change == Change::kFreezing) model.layers()[0].set_trainable(false);
  train(kEpochs / 2, kEpochs);
  if ((first_kernel() == frozen) != (change == Change::kFreezing))
    throw InternalError("the first layer's kernel is not as it should be");
  std::vector<double> numbers = weights_of(model);
  numbers.push_back(model.evaluate(batches()).at("loss"));
  return numbers;
}

std::vector<double> train_by_fit(const distribute::Strategy& strategy, bool eager, Change change) {
  random::set_seed(4);
  Sequential model = model_for(strategy, change, eager);
  return train_in_halves(model, change, [&](int first, int end) {
    model.fit(batches(), {.epochs = end, .initial_epoch = first, .verbose = 0});
  });
}

// The step of a custom loop: returns the loss of a replica's examples, as its part of the batch's.
Tensor train_on(const Sequential& model, const data::Example& examples, std::int64_t total) {
  GradientTape tape;
  const Tensor losses = losses::sparse_categorical_crossentropy(
      examples[1], model(examples[0], {.training = true}), {.from_logits = true});
  const Tensor loss = nn::compute_average_loss(losses, {.global_batch_size = total});
  optimizers::Optimizer optimizer = model.optimizer();
  const Tensor scaled = optimizer.scale_loss(loss);
  optimizer.apply_gradients(tape.gradient(scaled, model.trainable_variables()),
                            model.trainable_variables());
  return loss.detach();
}

std::vector<double> train_by_loop(const distribute::Strategy& strategy, bool eager, Change change) {
  random::set_seed(4);
  Sequential model = model_for(strategy, change);
  const auto scope = strategy.scope();
  const auto data = strategy.experimental_distribute_dataset(batches());
  using Examples = distribute::PerReplica<data::Example>;
  const auto step = [&](const Examples& examples) {
    return strategy.reduce(ReduceOp::kSum, strategy.run(
                                               [&](const data::Example& mine) {
                                                 return train_on(model, mine,
                                                                 examples.split().total);
                                               },
                                               examples));
  };
  const auto traced = function(step);
  return train_in_halves(model, change, [&](int first, int end) {
    for (int epoch = first; epoch < end; ++epoch)
      for (const Examples& examples : data)
        static_cast<void>(eager ? step(examples) : traced(examples));
  });
}

// On parameter servers, a traced loop schedules its steps; an eager one runs in the chief.
std::vector<double> train_by_schedule(const ParameterServerStrategy& strategy, Change change) {
  random::set_seed(4);
  Sequential model = model_for(strategy, change);
  const auto scope = strategy.scope();
  distribute::ClusterCoordinator coordinator(strategy);
  const auto step = function(
      [&](const data::Example& examples) { return train_on(model, examples, examples[0].dim(0)); });
  return train_in_halves(model, change, [&](int first, int end) {
    for (int epoch = first; epoch < end; ++epoch)
      for (const data::Example& examples : batches()) coordinator.schedule(step, examples);
    coordinator.join();
  });
}

using Cell = std::tuple<std::string, std::string, std::string>;  // strategy, loop, how it runs

// Returns the results as text, or the error.
std::string train_in_a_process(const Cell& cell, Change change) {
  const auto& [name, loop, how] = cell;
  const bool eager = how == "eager", fits = loop == "fit";
  const auto train_under = [&](const distribute::Strategy& strategy) {
    return text_of(fits ? train_by_fit(strategy, eager, change)
                        : train_by_loop(strategy, eager, change));
  };
  if (name == "MultiWorkerMirroredStrategy") {
    const auto results = run_workers(2, [&](int) {
      return train_under(distribute::MultiWorkerMirroredStrategy({.timeout = kFarAway}));
    });
    EXPECT_EQ(results[0], results[1]);
    return results[0];
  }
  ChildProcess process([&] {
    config::set_logical_cpus(2);
    const std::vector<std::string> devices = {"/cpu:0", "/cpu:1"};
    if (name == "TPUStrategy") {
      config::load_pjrt_plugin(first_plugin());
      return train_under(distribute::TPUStrategy({.devices = {"/device:TPU:0", "/device:TPU:1"}}));
    }
    if (name == "DefaultStrategy") return train_under(distribute::DefaultStrategy());
    if (name == "OneDeviceStrategy") return train_under(distribute::OneDeviceStrategy("/cpu:1"));
    if (name == "MirroredStrategy")
      return train_under(distribute::MirroredStrategy({.devices = devices}));
    if (name == "CentralStorageStrategy")
      return train_under(distribute::CentralStorageStrategy({.compute_devices = devices}));
    const testing::LocalCluster cluster(2, 2);
    const ParameterServerStrategy strategy = cluster.strategy();
    if (!fits && !eager) return text_of(train_by_schedule(strategy, change));
    return train_under(strategy);
  });
  return process.result();
}

std::vector<double> train(const Cell& cell, Change change) {
  return numbers_of(train_in_a_process(cell, change));
}

class SupportMatrix : public ::testing::TestWithParam<Cell> {};

// Compares with eager training on one device.
void expect_to_train(const Cell& cell, Change change) {
  const auto& [name, loop, how] = cell;
  const bool servers = name == "ParameterServerStrategy";
  if (servers) TANDEM_REQUIRE(rpc::has_grpc(), "grpc");
  if (name == "TPUStrategy") TANDEM_REQUIRE(!first_plugin().empty(), "pjrt");
  const std::vector<double> result = train(cell, change);
  ASSERT_GT(result.size(), 100u);
  // Steps that several workers run at the same time have no fixed order.
  if (servers && how == "traced") {
    EXPECT_LT(result.back(), 1.0) << "loss; 1.1 is that of guesses";
    return;
  }
  const std::vector<double> expected = train({"DefaultStrategy", loop, "eager"}, change);
  ASSERT_EQ(result.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i)
    EXPECT_NEAR(result[i], expected[i], 1e-5 * std::fmax(1.0, std::abs(expected[i]))) << i;
}

TEST_P(SupportMatrix, Trains) { expect_to_train(GetParam(), Change::kNone); }
TEST_P(SupportMatrix, FreezesALayer) { expect_to_train(GetParam(), Change::kFreezing); }

class LossScaleMatrix : public SupportMatrix {};
TEST_P(LossScaleMatrix, ScalesTheLoss) { expect_to_train(GetParam(), Change::kScaling); }

TEST(LossScaleMatrixOfServers, RefusesTracedSteps) {
  TANDEM_REQUIRE(rpc::has_grpc(), "grpc");
  for (const char* loop : {"fit", "loop"})
    expect_parts(train_in_a_process({"ParameterServerStrategy", loop, "traced"}, Change::kScaling),
                 {"Error: ", "writes variables in a branch or loop: do it outside of them"});
}

std::string cell_name(const ::testing::TestParamInfo<Cell>& cell) {
  const auto& [name, loop, how] = cell.param;
  return name + "_" + loop + "_" + how;
}

INSTANTIATE_TEST_SUITE_P(
    Strategies, SupportMatrix,
    ::testing::Combine(::testing::Values("DefaultStrategy", "OneDeviceStrategy", "MirroredStrategy",
                                         "MultiWorkerMirroredStrategy", "CentralStorageStrategy",
                                         "ParameterServerStrategy"),
                       ::testing::Values("fit", "loop"), ::testing::Values("eager", "traced")),
    cell_name);
// Devices of PJRT plug-ins run what is compiled.
INSTANTIATE_TEST_SUITE_P(Compiled, SupportMatrix,
                         ::testing::Combine(::testing::Values("TPUStrategy"),
                                            ::testing::Values("fit", "loop"),
                                            ::testing::Values("traced")),
                         cell_name);

// Traced steps on parameter servers update no variables in branches.
INSTANTIATE_TEST_SUITE_P(
    Strategies, LossScaleMatrix,
    ::testing::Combine(::testing::Values("DefaultStrategy", "OneDeviceStrategy", "MirroredStrategy",
                                         "MultiWorkerMirroredStrategy", "CentralStorageStrategy"),
                       ::testing::Values("fit", "loop"), ::testing::Values("eager", "traced")),
    cell_name);
INSTANTIATE_TEST_SUITE_P(Servers, LossScaleMatrix,
                         ::testing::Combine(::testing::Values("ParameterServerStrategy"),
                                            ::testing::Values("fit", "loop"),
                                            ::testing::Values("eager")),
                         cell_name);
INSTANTIATE_TEST_SUITE_P(Compiled, LossScaleMatrix,
                         ::testing::Combine(::testing::Values("TPUStrategy"),
                                            ::testing::Values("fit", "loop"),
                                            ::testing::Values("traced")),
                         cell_name);

}  // namespace
}  // namespace tandem::ps::support_matrix_test
