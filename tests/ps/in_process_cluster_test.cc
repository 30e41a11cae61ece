// Clusters in one process, and steps of users' classes on them.
#include <gtest/gtest.h>

#include <vector>

#include "support/grpc.h"
#include "support/tensors.h"
#include "tandem/tandem.h"

namespace tandem::in_process_cluster_test {
namespace {

using distribute::ClusterCoordinator;
using distribute::InProcessCluster;
using distribute::ParameterServerStrategy;
using testing::expect_error;

class InProcessClusters : public testing::GrpcTest {};

TEST_F(InProcessClusters, RunScheduledFunctions) {
  const auto cluster = distribute::create_in_process_cluster(2, 2);
  EXPECT_EQ(cluster.task_type(), "chief");
  EXPECT_EQ(cluster.cluster_spec().at("worker").size(), 2u);
  EXPECT_EQ(cluster.cluster_spec().at("ps").size(), 2u);
  const ParameterServerStrategy strategy(cluster);
  const auto scope = strategy.scope();
  Variable sum(constant({0.0}));
  ClusterCoordinator coordinator(strategy);
  const auto add = function([&](const Tensor& x) {
    sum.assign_add(x);
    return x * 2.0;
  });
  std::vector<distribute::RemoteValue> results;
  for (int i = 0; i < 10; ++i)
    results.push_back(coordinator.schedule(add, constant({static_cast<double>(i)})));
  coordinator.join();
  EXPECT_EQ(sum.item(), 45.0);
  EXPECT_EQ(results[4].fetch().item(), 8.0);
}

TEST_F(InProcessClusters, AreMadeOneAfterAnother) {
  for (int i = 0; i < 2; ++i) {
    const InProcessCluster cluster({.num_workers = 1, .num_ps = 1});
    const ParameterServerStrategy strategy(cluster);
    const auto scope = strategy.scope();
    EXPECT_EQ(Variable(3.0).item(), 3.0);
  }
  expect_error<InvalidArgumentError>(
      [] { InProcessCluster({.num_workers = 0}); },
      "[InProcessCluster] expected at least one worker and one parameter server, got 0 and 1");
}

class Tracking : public Model {
 public:
  Tensor call(const Tensor& x) override { return out(x); }
  StepResults train_step(const Tensor& x, const Tensor& y) override {
    const Tensor y_pred = (*this)(x, true);
    optimizer().minimize(nn::compute_average_loss(losses::mse(y, y_pred)), trainable_variables());
    error.update_state(losses::mse(y, y_pred));
    return {{"error", error.result()}, {"mean", x.mean()}};
  }
  layers::Dense out{1};
  metrics::Mean error{"error"};
};

// Without updates, so that the order of the calls does not matter.
TEST_F(InProcessClusters, RunStepsOfUsersClasses) {
  const auto train = [] {
    random::set_seed(3);
    Tracking model;
    model.compile({.optimizer = optimizers::SGD(0.0)});
    const Tensor x = random::normal({20, 3});
    return model.fit(x, reduce_sum(x, 1, true), {.epochs = 2, .batch_size = 8, .verbose = 0});
  };
  const History expected = train();
  const InProcessCluster cluster(2, 1);
  const ParameterServerStrategy strategy(cluster);
  const auto scope = strategy.scope();
  const History history = train();
  for (const char* name : {"error", "mean"})
    for (int epoch = 0; epoch < 2; ++epoch)
      EXPECT_NEAR(history.at(name)[epoch], expected.at(name)[epoch], 1e-6) << name;
}

}  // namespace
}  // namespace tandem::in_process_cluster_test
