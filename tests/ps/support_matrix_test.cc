// Every strategy with fit() and with a custom training loop, eagerly and traced. The names of these
// tests are the cells of docs/support_matrix.md (scripts/make-support-matrix).
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <tuple>
#include <vector>

#include "distribute/multi_worker_training.h"
#include "ps/local_cluster.h"
#include "support/pjrt.h"

namespace tandem::ps::support_matrix_test {
namespace {

using distribute::ParameterServerStrategy;
using tandem::testing::batches;
using tandem::testing::ChildProcess;
using tandem::testing::first_plugin;
using tandem::testing::kFarAway;
using tandem::testing::make_model;
using tandem::testing::numbers_of;
using tandem::testing::run_workers;
using tandem::testing::text_of;

constexpr int kEpochs = 8;

std::vector<double> weights_of(const Model& model) {
  std::vector<double> numbers;
  for (const Variable& variable : model.variables())
    for (double value : tandem::testing::values_of(variable.value())) numbers.push_back(value);
  return numbers;
}

double loss_of(Model& model) { return model.evaluate(batches()).at("loss"); }

std::vector<double> train_by_fit(const distribute::Strategy& strategy, bool eager) {
  random::set_seed(4);
  Sequential model = make_model(strategy, {.run_eagerly = eager});
  model.fit(batches(), {.epochs = kEpochs, .verbose = 0});
  std::vector<double> numbers = weights_of(model);
  numbers.push_back(loss_of(model));
  return numbers;
}

// The step of a custom loop: returns the loss of a replica's examples, as its part of the batch's.
Tensor train_on(const Sequential& model, const data::Example& examples, std::int64_t total) {
  GradientTape tape;
  const Tensor losses = losses::sparse_categorical_crossentropy(
      examples[1], model(examples[0], {.training = true}), {.from_logits = true});
  const Tensor loss = nn::compute_average_loss(losses, {.global_batch_size = total});
  optimizers::Optimizer optimizer = model.optimizer();
  optimizer.apply_gradients(tape.gradient(loss, model.trainable_variables()),
                            model.trainable_variables());
  return loss.detach();
}

std::vector<double> train_by_loop(const distribute::Strategy& strategy, bool eager) {
  random::set_seed(4);
  Sequential model = make_model(strategy);
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
  for (int epoch = 0; epoch < kEpochs; ++epoch)
    for (const Examples& examples : data)
      static_cast<void>(eager ? step(examples) : traced(examples));
  std::vector<double> numbers = weights_of(model);
  numbers.push_back(loss_of(model));
  return numbers;
}

// On parameter servers, a traced loop schedules its steps; an eager one runs in the chief.
std::vector<double> train_by_schedule(const ParameterServerStrategy& strategy) {
  random::set_seed(4);
  Sequential model = make_model(strategy);
  const auto scope = strategy.scope();
  distribute::ClusterCoordinator coordinator(strategy);
  const auto step = function(
      [&](const data::Example& examples) { return train_on(model, examples, examples[0].dim(0)); });
  for (int epoch = 0; epoch < kEpochs; ++epoch)
    for (const data::Example& examples : batches()) coordinator.schedule(step, examples);
  coordinator.join();
  std::vector<double> numbers = weights_of(model);
  numbers.push_back(loss_of(model));
  return numbers;
}

using Cell = std::tuple<std::string, std::string, std::string>;  // strategy, loop, how it runs

std::vector<double> train(const Cell& cell) {
  const auto& [name, loop, how] = cell;
  const bool eager = how == "eager", fits = loop == "fit";
  const auto train_under = [&](const distribute::Strategy& strategy) {
    return fits ? train_by_fit(strategy, eager) : train_by_loop(strategy, eager);
  };
  if (name == "MultiWorkerMirroredStrategy") {
    const auto results = run_workers(2, [&](int) {
      return text_of(train_under(distribute::MultiWorkerMirroredStrategy({.timeout = kFarAway})));
    });
    EXPECT_EQ(results[0], results[1]);
    return numbers_of(results[0]);
  }
  ChildProcess process([&] {
    config::set_logical_cpus(2);
    const std::vector<std::string> devices = {"/cpu:0", "/cpu:1"};
    if (name == "TPUStrategy") {
      config::load_pjrt_plugin(first_plugin());
      return text_of(
          train_under(distribute::TPUStrategy({.devices = {"/device:TPU:0", "/device:TPU:1"}})));
    }
    if (name == "DefaultStrategy") return text_of(train_under(distribute::DefaultStrategy()));
    if (name == "OneDeviceStrategy")
      return text_of(train_under(distribute::OneDeviceStrategy("/cpu:1")));
    if (name == "MirroredStrategy")
      return text_of(train_under(distribute::MirroredStrategy({.devices = devices})));
    if (name == "CentralStorageStrategy")
      return text_of(train_under(distribute::CentralStorageStrategy({.compute_devices = devices})));
    const testing::LocalCluster cluster(2, 2);
    const ParameterServerStrategy strategy = cluster.strategy();
    if (!fits && !eager) return text_of(train_by_schedule(strategy));
    return text_of(train_under(strategy));
  });
  return numbers_of(process.result());
}

class SupportMatrix : public ::testing::TestWithParam<Cell> {};

TEST_P(SupportMatrix, Trains) {
  const auto& [name, loop, how] = GetParam();
  const bool servers = name == "ParameterServerStrategy";
  if (servers) TANDEM_REQUIRE(rpc::has_grpc(), "grpc");
  if (name == "TPUStrategy") TANDEM_REQUIRE(!first_plugin().empty(), "pjrt");
  const std::vector<double> result = train(GetParam());
  ASSERT_GT(result.size(), 100u);
  // Steps that several workers run at the same time have no fixed order.
  if (servers && how == "traced") {
    EXPECT_LT(result.back(), 1.0) << "loss; 1.1 is that of guesses";
    return;
  }
  const std::vector<double> expected = train({"DefaultStrategy", loop, "eager"});
  ASSERT_EQ(result.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i)
    EXPECT_NEAR(result[i], expected[i], 1e-5 * std::fmax(1.0, std::abs(expected[i]))) << i;
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

}  // namespace
}  // namespace tandem::ps::support_matrix_test
