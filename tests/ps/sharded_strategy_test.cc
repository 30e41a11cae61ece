// Sharded variables and looked-up rows of ParameterServerStrategy over gRPC, compared with training
// on one device.
#include <gtest/gtest.h>

#include <functional>

#include "ps/local_cluster.h"
#include "runtime/generator.h"
#include "support/expects.h"
#include "support/grpc.h"
#include "support/tensors.h"

namespace tandem::ps::sharded_strategy_test {
namespace {

using distribute::ClusterCoordinator;
using distribute::FixedShardsPartitioner;
using testing::LocalCluster;
using MakeOptimizer = std::function<optimizers::Optimizer()>;

constexpr int kSteps = 6;

std::pair<Tensor, Tensor> batch(int number) {
  Generator generator({.seed = 4, .offset = static_cast<std::uint64_t>(number) << 8});
  const Scoped scope(context.generator, &generator);
  return {cast(random::uniform({16, 3}, 0.0, 50.0), int32), random::normal({16, 1})};
}

// An embedding of 50 words and a hidden layer.
struct Training {
  explicit Training(const MakeOptimizer& make) : optimizer(make()) {
    random::set_seed(5);
    model = Sequential({layers::Embedding(50, 8, {.name = "table"}), layers::Flatten(),
                        layers::Dense(10, {.activation = "tanh", .name = "hidden"}),
                        layers::Dense(1, {.name = "out"})});
    model(batch(0).first);
  }
  Tensor step(const Tensor& words, const Tensor& targets) {
    const Tensor loss = reduce_mean(losses::mse(targets, model(words, true)));
    optimizer.minimize(loss, model.trainable_variables());
    return loss;
  }
  std::vector<std::vector<float>> weights() const {
    std::vector<std::vector<float>> result;
    for (const Variable& variable : model.variables())
      result.push_back(variable.value().to_vector<float>());
    return result;
  }
  Sequential model;
  optimizers::Optimizer optimizer;
};

struct Case {
  const char* name;
  MakeOptimizer make;
};

class ShardedStrategy : public ::testing::TestWithParam<std::tuple<Case, int>> {
 protected:
  void SetUp() override { TANDEM_REQUIRE(rpc::has_grpc(), "grpc"); }
};

TEST_P(ShardedStrategy, ClosuresOneByOneEqualOneDevice) {
  const auto& [optimizer, shards] = GetParam();
  Training whole(optimizer.make);
  const auto step = function([&](const Tensor& x, const Tensor& y) { return whole.step(x, y); });
  std::vector<float> expected, losses;
  for (int i = 0; i < kSteps; ++i) {
    const auto [words, targets] = batch(i);
    expected.push_back(step(words, targets).item<float>());
  }

  const LocalCluster cluster(2, 2);
  const distribute::ParameterServerStrategy strategy =
      cluster.strategy({.variable_partitioner = FixedShardsPartitioner({.num_shards = shards})});
  ClusterCoordinator coordinator(strategy);
  const auto scope = strategy.scope();
  Training parts(optimizer.make);
  const auto remote = function([&](const Tensor& x, const Tensor& y) { return parts.step(x, y); });
  for (int i = 0; i < kSteps; ++i) {
    const auto [words, targets] = batch(i);
    losses.push_back(coordinator.schedule(remote, words, targets).fetch().item<float>());
  }
  EXPECT_EQ(losses, expected);
  EXPECT_EQ(parts.weights(), whole.weights());
  EXPECT_GT(cluster.stores[0]->num_variables(), 0u);
  EXPECT_GT(cluster.stores[1]->num_variables(), 0u);
}

const Case kCases[] = {
    {"sgd", [] { return optimizers::SGD(0.2); }},
    {"momentum", [] { return optimizers::SGD({.learning_rate = 0.1, .momentum = 0.9}); }},
    {"adam", [] { return optimizers::Adam(0.02); }},
    {"adagrad", [] { return optimizers::Adagrad({.learning_rate = 0.1}); }}};

INSTANTIATE_TEST_SUITE_P(All, ShardedStrategy,
                         ::testing::Combine(::testing::ValuesIn(kCases),
                                            ::testing::Values(1, 2, 3)),
                         [](const auto& info) {
                           return fmt::format("{}_{}_shards", std::get<0>(info.param).name,
                                              std::get<1>(info.param));
                         });

class ShardedUpdates : public tandem::testing::GrpcTest {};

// Workers at the same time: every update of a row is applied once.
TEST_F(ShardedUpdates, UpdatesOfWorkersAtTheSameTimeAddUp) {
  constexpr int kClosures = 200;
  const LocalCluster cluster(2, 2);
  const distribute::ParameterServerStrategy strategy =
      cluster.strategy({.variable_partitioner = FixedShardsPartitioner({.num_shards = 3})});
  ClusterCoordinator coordinator(strategy);
  const auto scope = strategy.scope();
  const Variable table(zeros({30, 2}));
  auto sgd = optimizers::SGD(1.0);
  const auto count = function([&](const Tensor& words) {
    sgd.minimize(reduce_sum(gather(table, words, 0)) * -1.0, {table});
    return words;
  });
  for (int i = 0; i < kClosures; ++i)
    coordinator.schedule(count, constant({i % 30, 29, i % 7, 29}));
  coordinator.join();
  std::vector<float> expected(60);
  for (int i = 0; i < kClosures; ++i)
    for (const int word : {i % 30, 29, i % 7, 29})
      for (const int column : {0, 1}) ++expected[static_cast<std::size_t>(2 * word + column)];
  EXPECT_EQ(table.value().to_vector<float>(), expected);
}

}  // namespace
}  // namespace tandem::ps::sharded_strategy_test
