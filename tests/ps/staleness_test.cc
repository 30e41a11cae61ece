// Bounded staleness, and synchronous updates with backup workers.
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <thread>
#include <vector>

#include "ps/held_channel.h"
#include "ps/local_cluster.h"
#include "support/grpc.h"
#include "support/tensors.h"

namespace tandem::ps::staleness_test {
namespace {

using distribute::ClusterCoordinator;
using distribute::ClusterStatistics;
using distribute::ParameterServerStrategy;
using tandem::testing::expect_error;
using testing::LocalCluster;

class StaleUpdates : public tandem::testing::GrpcTest {};

// v = v * 0.5 + x is not commutative: only steps that see each other's results give this value.
void expect_serial_calls(const distribute::ParameterServerOptions& options) {
  const LocalCluster cluster(1, 3);
  const ParameterServerStrategy strategy = cluster.strategy(options);
  const auto scope = strategy.scope();
  ClusterCoordinator coordinator(strategy);
  Variable count(zeros({})), highest(zeros({}));
  const auto step = function([&](const Tensor& one) {
    const Tensor next = count.value() + one;
    // The worker computes `next` from what it read, so a stale call would write an old number.
    highest.assign(maximum(next, highest.value()));
    count.assign(reduce_sum(matmul(reshape(next, {1, 1}), ones({1, 1}))));
    return next;
  });
  std::vector<distribute::RemoteValue> results;
  for (int i = 0; i < 120; ++i) results.push_back(coordinator.schedule(step, ones({})));
  coordinator.join();
  EXPECT_EQ(count.value().item<float>(), 120);
  const ClusterStatistics statistics = coordinator.statistics();
  EXPECT_EQ(statistics.calls_finished, 120);
  EXPECT_EQ(statistics.max_staleness, 0);
  EXPECT_EQ(statistics.updates, 240);
}

TEST_F(StaleUpdates, ABoundOfZeroMakesCallsSerial) {
  expect_serial_calls({.max_staleness = 0});
  expect_serial_calls({.max_staleness = 0, .calls_per_worker = 3});
}

// v and w on two servers, and each is computed from both: only serial calls double them.
TEST_F(StaleUpdates, ABoundOfZeroMakesCallsSerialOverSeveralServers) {
  const LocalCluster cluster(2, 3);
  const ParameterServerStrategy strategy = cluster.strategy({.max_staleness = 0});
  const auto scope = strategy.scope();
  ClusterCoordinator coordinator(strategy);
  Variable v(ones({1, 1})), w(ones({1, 1}));
  ASSERT_EQ(cluster.stores[1]->num_variables(), 1u);
  const auto step = function([&](const Tensor& one) {
    const Tensor sum = matmul(v.value() + w.value(), one);
    v.assign(sum);
    w.assign(sum);
    return sum;
  });
  for (int round = 0; round < 8; ++round) {
    v.assign(ones({1, 1}));
    w.assign(ones({1, 1}));
    for (int i = 0; i < 20; ++i) coordinator.schedule(step, ones({1, 1}));
    coordinator.join();
    EXPECT_EQ(v.value().item<float>(), 1 << 20);
    EXPECT_EQ(w.value().item<float>(), 1 << 20);
  }
}

class Stragglers : public StaleUpdates, public ::testing::WithParamInterface<int> {};

// The first worker never answers. The others get its call, because it would be too stale.
TEST_P(Stragglers, DelayNoOtherWorkerAndEndNoJob) {
  const LocalCluster cluster(2, 3);
  std::vector<Coordinator::WorkerTask> tasks = cluster.tasks();
  const auto held = std::make_shared<testing::HeldChannel>(tasks[0].channel);
  tasks[0].channel = held;
  const distribute::ParameterServerOptions options{.max_staleness = 0,
                                                   .calls_per_update = GetParam()};
  const ParameterServerStrategy strategy(
      std::make_shared<ParameterServerImpl>(cluster.clients(), std::move(tasks), options));
  const auto scope = strategy.scope();
  ClusterCoordinator coordinator(strategy);
  Variable count(zeros({1, 1})), other(zeros({1, 1}));
  const auto step = function([&](const Tensor& one) {
    const Tensor next = matmul(count.value(), one) + 1.0;
    count.assign(next);
    other.assign(next);
    return next;
  });
  int calls = 0;
  const auto schedule = [&] {
    for (int i = 0; i < 10; ++i) coordinator.schedule(step, ones({1, 1}));
    calls += 10;
  };
  while (held->started == 0) {
    schedule();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  for (int i = 0; i < 4; ++i) schedule();
  coordinator.join();
  const auto steps = static_cast<float>(calls / GetParam());
  EXPECT_EQ(count.value().item<float>(), steps);
  EXPECT_EQ(other.value().item<float>(), steps);
  EXPECT_EQ(held->started, 1);
  EXPECT_EQ(coordinator.statistics().calls_finished, calls);
}

INSTANTIATE_TEST_SUITE_P(CallsPerUpdate, Stragglers, ::testing::Values(1, 2));

// Both variables always get the same gradient.
TEST_F(StaleUpdates, AnUpdateHasTheSameCallsOnAllServers) {
  for (const std::size_t workers : {2u, 3u}) {
    const LocalCluster cluster(2, workers);
    const ParameterServerStrategy strategy = cluster.strategy({.calls_per_update = 2});
    const auto scope = strategy.scope();
    ClusterCoordinator coordinator(strategy);
    Variable v(zeros({1, 1})), w(zeros({1, 1}));
    optimizers::Optimizer adam = optimizers::Adam({.learning_rate = 0.1});
    const auto step = function([&](const Tensor& gradient) {
      const Tensor read = (matmul(v.value(), ones({1, 1})) + matmul(w.value(), ones({1, 1}))) * 0.0;
      adam.apply_gradients({gradient + read, gradient + read}, {v, w});
    });
    for (int i = 0; i < 200; ++i)
      coordinator.schedule(step, full({1, 1}, std::sin(i * 1.7) * (1 + i % 7)));
    coordinator.join();
    EXPECT_EQ(v.value().item<float>(), w.value().item<float>()) << workers << " workers";
    EXPECT_EQ(coordinator.statistics().max_staleness, 0);
  }
}

TEST_F(StaleUpdates, StalenessIsMeasured) {
  const LocalCluster cluster(1, 3);
  const ParameterServerStrategy strategy = cluster.strategy();
  const auto scope = strategy.scope();
  ClusterCoordinator coordinator(strategy);
  Variable v(ones({64, 64}));
  optimizers::Optimizer sgd = optimizers::SGD({.learning_rate = 1e-3});
  const auto step =
      function([&](const Tensor& x) { sgd.minimize(reduce_mean(square(matmul(x, v))), {v}); });
  for (int i = 0; i < 100; ++i) coordinator.schedule(step, ones({256, 64}));
  coordinator.join();
  const ClusterStatistics statistics = coordinator.statistics();
  EXPECT_EQ(statistics.updates, 100);
  EXPECT_EQ(cluster.stores[0]->counts().applied, 100);
  EXPECT_LE(statistics.mean_staleness, static_cast<double>(statistics.max_staleness));
  EXPECT_EQ(statistics.calls_recomputed, 0);
}

struct Line {
  Variable w{zeros({4, 1}), {.name = "w"}};
  optimizers::Optimizer adam = optimizers::Adam({.learning_rate = 0.05});
  Tensor step(const Tensor& x, const Tensor& y) {
    GradientTape tape;
    const Tensor loss = reduce_mean(square(matmul(x, w) - y));
    adam.apply_gradients(tape.gradient(loss, std::vector<Variable>{w}), {w});
    return loss.detach();
  }
};

// Two calls per update equal one device with batches of twice the size.
TEST_F(StaleUpdates, SynchronousCallsEqualOneDeviceWithTheWholeBatch) {
  constexpr int kSteps = 8;
  random::set_seed(3);
  const Tensor x = random::normal({kSteps * 16, 4});
  const Tensor y = reduce_sum(x, {.axis = {1}, .keepdims = true});
  Line alone;
  for (int i = 0; i < kSteps; ++i)
    alone.step(slice_rows(x, i * 16, i * 16 + 16), slice_rows(y, i * 16, i * 16 + 16));
  const std::vector<float> expected = alone.w.value().to_vector<float>();

  for (const std::size_t workers : {1u, 2u, 4u}) {
    const LocalCluster cluster(2, workers);
    const ParameterServerStrategy strategy = cluster.strategy({.calls_per_update = 2});
    const auto scope = strategy.scope();
    ClusterCoordinator coordinator(strategy);
    Line line;
    const auto step = function(
        [&](const Tensor& inputs, const Tensor& targets) { return line.step(inputs, targets); });
    for (int i = 0; i < 2 * kSteps; ++i) {
      coordinator.schedule(step, slice_rows(x, i * 8, i * 8 + 8), slice_rows(y, i * 8, i * 8 + 8));
      if (i % 2 == 1) coordinator.join();
    }
    const std::vector<float> result = line.w.value().to_vector<float>();
    for (std::size_t i = 0; i < expected.size(); ++i)
      EXPECT_NEAR(result[i], expected[i], 1e-5) << workers << " workers";
    EXPECT_EQ(line.adam.iterations(), kSteps);
  }
}

// With a backup worker every call still contributes once.
TEST_F(StaleUpdates, BackupWorkersLoseNoCall) {
  LocalCluster cluster(1, 3);
  const ParameterServerStrategy strategy = cluster.strategy({.calls_per_update = 2});
  const auto scope = strategy.scope();
  ClusterCoordinator coordinator(strategy);
  Variable sum(zeros({}));
  const auto step = function([&](const Tensor& x) {
    sum.assign_add(x);
    return sum.value() * 1.0;
  });
  expect_error<UnimplementedError>([&] { coordinator.schedule(step, ones({})); }, "is read after");
  const auto add = function([&](const Tensor& x) {
    const Tensor before = sum.value() * 1.0;
    sum.assign_add(x);
    return before;
  });
  for (int i = 0; i < 100; ++i) coordinator.schedule(add, full({}, i));
  coordinator.join();
  EXPECT_EQ(sum.value().item<float>(), 99 * 100 / 2 / 2);
  EXPECT_EQ(cluster.stores[0]->counts().applied, 50);
  EXPECT_EQ(coordinator.statistics().max_staleness, 0);
}

TEST_F(StaleUpdates, AveragesLookedUpRows) {
  const LocalCluster cluster(2, 2);
  const ParameterServerStrategy strategy = cluster.strategy(
      {.variable_partitioner = distribute::FixedShardsPartitioner({.num_shards = 2}),
       .calls_per_update = 2});
  const auto scope = strategy.scope();
  ClusterCoordinator coordinator(strategy);
  Variable table(zeros({10, 2}));
  optimizers::Optimizer sgd = optimizers::SGD({.learning_rate = 1.0});
  const auto step = function([&](const Tensor& ids, const Tensor& weights) {
    sgd.minimize(reduce_sum(gather(table, ids) * weights), {table});
  });
  coordinator.schedule(step, constant({1, 7}), full({2, 2}, -2.0));
  coordinator.schedule(step, constant({7, 8}), full({2, 2}, -4.0));
  coordinator.join();
  std::vector<float> expected(20, 0);
  for (int column : {0, 1}) {
    expected[static_cast<std::size_t>(2 + column)] = 1;
    expected[static_cast<std::size_t>(14 + column)] = 3;
    expected[static_cast<std::size_t>(16 + column)] = 2;
  }
  EXPECT_EQ(table.value().to_vector<float>(), expected);
}

TEST_F(StaleUpdates, RefusesBadOptions) {
  const LocalCluster cluster(1, 1);
  expect_error<InvalidArgumentError>([&] { cluster.strategy({.calls_per_update = 0}); },
                                     "expected calls_per_update of at least 1, got 0");
  expect_error<InvalidArgumentError>([&] { cluster.strategy({.max_staleness = -1}); },
                                     "expected max_staleness of at least 0, got -1");
  expect_error<InvalidArgumentError>([&] { cluster.strategy({.calls_per_worker = 0}); },
                                     "expected calls_per_worker of at least 1, got 0");
}

}  // namespace
}  // namespace tandem::ps::staleness_test
