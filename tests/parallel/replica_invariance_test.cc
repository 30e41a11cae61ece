// DistributedDataParallel in the replica-invariant mode.
#include <gtest/gtest.h>

#include "support/errors.h"
#include "support/invariance.h"
#include "support/process_groups.h"

namespace tandem::replica_invariance_test {
namespace {

using parallel::DistributedDataParallel;
using testing::ChildProcess;
using testing::InvariantModel;
using testing::kInvariantBatch;
using testing::kInvariantSteps;

// Inputs and labels of a rank in a step.
data::Example rows(const data::Example& data, std::int64_t begin, std::int64_t count) {
  return {slice_rows(data[0], begin, begin + count), slice_rows(data[1], begin, begin + count)};
}

optimizers::Optimizer momentum(const Model& model) {
  return optimizers::SGD({.learning_rate = 0.05, .momentum = 0.9}, model.parameters());
}

// Training in one process, without DistributedDataParallel.
std::string train_alone(InvariantModel kind, int threads) {
  return ChildProcess([&] {
           testing::use_cpus(1, threads);
           config::set_replica_invariant_parts(8);
           Model model = testing::make_invariant(kind);
           optimizers::Optimizer optimizer = momentum(model);
           const data::Example data =
               testing::invariant_data(kind, kInvariantSteps * kInvariantBatch);
           random::set_seed(11);
           std::vector<double> losses;
           for (int step = 0; step < kInvariantSteps; ++step)
             losses.push_back(distribute::for_each_part(
                                  rows(data, step * kInvariantBatch, kInvariantBatch),
                                  [&](const data::Example& part) {
                                    const Tensor loss =
                                        nn::compute_average_loss(nn::sparse_softmax_cross_entropy(
                                            part[1], model(part[0], {.training = true})));
                                    optimizer.minimize(loss, model.trainable_variables());
                                    return loss;
                                  })
                                  .item<float>());
           return testing::invariant_text(losses, model);
         })
      .result();
}

// The losses of all ranks, and the weights of this one.
std::string train_as_rank(InvariantModel kind, int rank, int ranks, bool traced) {
  config::set_replica_invariant_parts(8);
  const DistributedDataParallel model(testing::make_invariant(kind));
  optimizers::Optimizer optimizer = momentum(model.module());
  const data::Example data = testing::invariant_data(kind, kInvariantSteps * kInvariantBatch);
  random::set_seed(11);
  const auto step = [&](const data::Example& examples) {
    optimizer.zero_grad();
    const Tensor loss = model.for_each_part(examples, [&](const data::Example& part) {
      Tensor mean = reduce_mean(
          nn::sparse_softmax_cross_entropy(part[1], model(part[0], {.training = true})));
      mean.backward();
      return mean.detach();
    });
    optimizer.step();
    return loss;
  };
  auto function_of_step = function([&](const Tensor& x, const Tensor& y) { return step({x, y}); });
  const std::int64_t count = kInvariantBatch / ranks;
  std::vector<double> losses;
  for (int i = 0; i < kInvariantSteps; ++i) {
    const data::Example mine = rows(data, i * kInvariantBatch + rank * count, count);
    Tensor loss = traced ? function_of_step(mine[0], mine[1]) : step(mine);
    loss = comm::all_reduce(loss, {.op = ReduceOp::kTreeSum});
    losses.push_back(loss.item<float>() / 8.0f);
  }
  return testing::invariant_text(losses, model.module());
}

void expect_as_alone(InvariantModel kind) {
  const std::string expected = train_alone(kind, 1);
  ASSERT_GT(testing::numbers_of(expected).size(), 100u) << expected;
  EXPECT_EQ(train_alone(kind, 2), expected) << "2 threads";
  for (const bool traced : {false, true})
    for (int ranks : {1, 2, 4}) {
      SCOPED_TRACE(std::to_string(ranks) + (traced ? " ranks, traced" : " ranks"));
      testing::expect_group({.size = ranks}, [&](int rank) {
        testing::use_cpus(1, 2);
        const ThreadBudget threads(ranks == 4 ? 2 : 1);
        EXPECT_EQ(train_as_rank(kind, rank, ranks, traced), expected);
      });
    }
}

TEST(DdpReplicaInvariance, LeNetHasTheSameBitsOnAnyRanks) {
  expect_as_alone(InvariantModel::kLeNet);
}
TEST(DdpReplicaInvarianceSlow, ResNet20HasTheSameBitsOnAnyRanks) {
  expect_as_alone(InvariantModel::kResNet20);
}
TEST(DdpReplicaInvariance, ATransformerHasTheSameBitsOnAnyRanks) {
  expect_as_alone(InvariantModel::kTransformer);
}

TEST(DdpReplicaInvariance, StepsWithoutTheModeAreUnchanged) {
  testing::expect_group({.size = 2}, [](int rank) {
    const DistributedDataParallel model(testing::make_invariant(InvariantModel::kLeNet));
    const data::Example data =
        rows(testing::invariant_data(InvariantModel::kLeNet, 8), rank * 4, 4);
    int calls = 0;
    model.for_each_part(data, [&](const data::Example& part) {
      ++calls;
      EXPECT_EQ(part[0].dim(0), 4);
      reduce_mean(nn::sparse_softmax_cross_entropy(part[1], model(part[0]))).backward();
    });
    EXPECT_EQ(calls, 1);
    EXPECT_TRUE(model.parameters().front().grad().defined());
  });
}

TEST(DdpReplicaInvariance, UnsupportedStepsAreRefused) {
  testing::expect_group({.size = 2}, [](int rank) {
    config::set_replica_invariant_parts(8);
    const DistributedDataParallel model(testing::make_invariant(InvariantModel::kLeNet));
    const data::Example data =
        rows(testing::invariant_data(InvariantModel::kLeNet, 16), rank * 8, 8);
    const auto step = [&](const data::Example& part) {
      reduce_mean(nn::sparse_softmax_cross_entropy(part[1], model(part[0]))).backward();
    };
    testing::expect_error<InvalidArgumentError>(
        [&] { model.for_each_part(rows(data, 0, 6), step); }, "a multiple of the 4 parts");
    model.for_each_part(data, step);
    testing::expect_error<FailedPreconditionError>([&] { model.for_each_part(data, step); },
                                                   "call zero_grad() first");
    for (Variable parameter : model.parameters()) parameter.zero_grad();
    const auto local = model.no_sync();
    testing::expect_error<UnimplementedError>([&] { model.for_each_part(data, step); },
                                              "under no_sync()");
  });
}

}  // namespace
}  // namespace tandem::replica_invariance_test
