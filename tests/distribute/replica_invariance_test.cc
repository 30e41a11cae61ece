// The replica-invariant mode: the same bits on any number of replicas, threads and processes.
#include <gtest/gtest.h>

#include <cmath>

#include "support/errors.h"
#include "support/gpus.h"
#include "support/invariance.h"
#include "support/waiting.h"

namespace tandem::replica_invariance_test {
namespace {

using distribute::for_each_part;
using distribute::MirroredStrategy;
using testing::ChildProcess;
using testing::fit_invariant;
using testing::InvariantModel;
using testing::InvariantRun;

std::string alone(const InvariantRun& run) {
  return ChildProcess([&] {
           testing::use_cpus(1, run.threads);
           return fit_invariant(distribute::DefaultStrategy(), run);
         })
      .result();
}

std::string mirrored(int replicas, const InvariantRun& run) {
  return ChildProcess([&] {
           testing::use_cpus(replicas, run.threads);
           std::vector<std::string> devices;
           for (int i = 0; i < replicas; ++i) devices.push_back("/cpu:" + std::to_string(i));
           return fit_invariant(MirroredStrategy({.devices = devices}), run);
         })
      .result();
}

std::vector<std::string> in_workers(int workers, int replicas, const InvariantRun& run) {
  return testing::run_workers(workers, [&](int) {
    testing::use_cpus(replicas, run.threads);
    std::vector<std::string> devices;
    for (int i = 0; i < replicas; ++i) devices.push_back("/cpu:" + std::to_string(i));
    return fit_invariant(
        distribute::MultiWorkerMirroredStrategy({.timeout = testing::kFarAway, .devices = devices}),
        run);
  });
}

void expect_invariant(InvariantModel model, std::int64_t last_batch = testing::kInvariantBatch) {
  InvariantRun run{.model = model, .last_batch = last_batch};
  const std::string expected = alone(run);
  const std::vector<double> numbers = testing::numbers_of(expected);
  ASSERT_GT(numbers.size(), 100u) << expected;
  for (double number : numbers) ASSERT_TRUE(std::isfinite(number));
  run.threads = 2;
  EXPECT_EQ(alone(run), expected) << "2 threads";
  EXPECT_EQ(mirrored(2, run), expected) << "Mirrored x2, 2 threads each";
  for (const std::string& worker : in_workers(2, 1, run))
    EXPECT_EQ(worker, expected) << "MultiWorkerMirrored x2, 2 threads each";
  run.threads = 1;
  EXPECT_EQ(mirrored(4, run), expected) << "Mirrored x4";
  for (const std::string& worker : in_workers(2, 1, run))
    EXPECT_EQ(worker, expected) << "MultiWorkerMirrored x2";
  run.run_eagerly = true;
  EXPECT_EQ(alone(run), expected) << "eager";
  EXPECT_EQ(mirrored(2, run), expected) << "Mirrored x2, eager";
  for (const std::string& worker : in_workers(2, 2, run))
    EXPECT_EQ(worker, expected) << "MultiWorkerMirrored of 2 workers x2, eager";
}

TEST(ReplicaInvariance, LeNetHasTheSameBitsOnAnyReplicas) {
  expect_invariant(InvariantModel::kLeNet);
}
TEST(ReplicaInvarianceSlow, ResNet20HasTheSameBitsOnAnyReplicas) {
  expect_invariant(InvariantModel::kResNet20);
}
TEST(ReplicaInvariance, ATransformerHasTheSameBitsOnAnyReplicas) {
  expect_invariant(InvariantModel::kTransformer);
}

TEST(ReplicaInvariance, GpusHaveTheSameBits) {
  const auto on_gpus = [](int replicas) {
    return ChildProcess([&] {
             testing::use_gpus(2, 1024);
             if (replicas == 0) return fit_invariant(distribute::OneDeviceStrategy("/gpu:0"), {});
             std::vector<std::string> devices;
             for (int i = 0; i < replicas; ++i) devices.push_back("/gpu:" + std::to_string(i));
             return fit_invariant(MirroredStrategy({.devices = devices}), {});
           })
        .result();
  };
  const std::string expected = on_gpus(0);
  ASSERT_GT(testing::numbers_of(expected).size(), 100u) << expected;
  EXPECT_EQ(on_gpus(1), expected);
  EXPECT_EQ(on_gpus(2), expected);
}

// Shows that the tests above can fail.
TEST(ReplicaInvariance, OtherPartsGiveOtherBits) {
  InvariantRun run{.model = InvariantModel::kLeNet};
  const std::string eight = alone(run);
  run.parts = 4;
  EXPECT_NE(alone(run), eight);
  run.parts = 0;
  EXPECT_NE(mirrored(4, run), alone(run));
}

// Fewer examples than parts: some replicas have none.
TEST(ReplicaInvariance, BatchesOfFewExamplesHaveTheSameBits) {
  for (const std::int64_t last : {13, 5, 3, 1}) {
    SCOPED_TRACE(last);
    expect_invariant(InvariantModel::kLeNet, last);
  }
}

// --- custom training loops ---

struct Loop {
  distribute::Strategy strategy;
  bool traced = false;
  bool counts = false;  // a variable that every part writes to
};

// The losses of 10 steps, a metric's result and the weights.
std::string train_in_parts(const Loop& loop, int batch = 16) {
  config::set_replica_invariant_parts(8);
  const auto scope = loop.strategy.scope();
  Model model = testing::make_invariant(InvariantModel::kLeNet);
  optimizers::Optimizer optimizer = optimizers::Adam({.learning_rate = 0.01});
  metrics::Metric accuracy = metrics::SparseCategoricalAccuracy();
  const Variable norm(
      zeros({1}), {.trainable = false, .name = "norm", .aggregation = VariableAggregation::kSum});
  const auto step = [&](const data::Example& examples) {
    return for_each_part(examples, [&](const data::Example& part) {
      const Tensor outputs = model(part[0], {.training = true});
      const Tensor loss =
          nn::compute_average_loss(nn::sparse_softmax_cross_entropy(part[1], outputs));
      optimizer.minimize(loss, model.trainable_variables());
      if (!loop.traced) accuracy.update(part[1], outputs.detach());
      Variable(norm).assign(reshape(reduce_sum(outputs.detach() * 0.01), {1}));
      return loss;
    });
  };
  const data::Example data = testing::invariant_data(InvariantModel::kLeNet, 10 * batch);
  const auto batches = loop.strategy.experimental_distribute_dataset(
      data::Dataset::from_tensor_slices(data).batch(batch));
  auto train = [&](const distribute::PerReplica<data::Example>& examples) {
    return loop.strategy.reduce(ReduceOp::kSum, loop.strategy.run(step, examples));
  };
  auto traced = function(train);
  std::vector<double> results;
  for (const auto& examples : batches) {
    const Tensor loss = loop.traced ? traced(examples) : train(examples);
    results.push_back(loss.item<float>());
    results.push_back(norm.value().to_vector<float>()[0]);
  }
  results.push_back(accuracy.result());
  return testing::invariant_text(results, model);
}

TEST(ReplicaInvariance, CustomLoopsHaveTheSameBits) {
  for (const bool traced : {false, true}) {
    SCOPED_TRACE(traced);
    const auto run = [&](int replicas) {
      return ChildProcess([&] {
               testing::use_cpus(replicas, 1);
               std::vector<std::string> devices;
               for (int i = 0; i < replicas; ++i) devices.push_back("/cpu:" + std::to_string(i));
               return train_in_parts(
                   {.strategy = MirroredStrategy({.devices = devices}), .traced = traced});
             })
          .result();
    };
    const std::string expected =
        ChildProcess([&] {
          testing::use_cpus(1, 1);
          return train_in_parts({.strategy = distribute::DefaultStrategy(), .traced = traced});
        }).result();
    ASSERT_GT(testing::numbers_of(expected).size(), 100u) << expected;
    for (int replicas : {1, 2, 4, 8}) EXPECT_EQ(run(replicas), expected) << replicas;
    for (const std::string& worker : testing::run_workers(2, [&](int) {
           testing::use_cpus(1, 1);
           return train_in_parts(
               {.strategy = distribute::MultiWorkerMirroredStrategy({.timeout = testing::kFarAway}),
                .traced = traced});
         }))
      EXPECT_EQ(worker, expected) << "2 workers";
  }
}

// --- errors ---

TEST(ReplicaInvariance, OtherNumbersOfPartsAndReplicasAreRefused) {
  testing::expect_error<InvalidArgumentError>(
      [] { config::set_replica_invariant_parts(6); },
      "expected a power of two of at most 1024 as the number of replica-invariant parts");
  config::set_logical_cpus(3);
  config::set_replica_invariant_parts(8);
  const MirroredStrategy three({.devices = {"/cpu:0", "/cpu:1", "/cpu:2"}});
  testing::expect_error<InvalidArgumentError>(
      [&] {
        three
            .experimental_distribute_dataset(
                data::Dataset::from_tensor_slices({zeros({8, 2})}).batch(8))
            .begin();
      },
      "expected 1, 2, 4, ... replicas, at most the 8 parts of a batch");
}

TEST(ReplicaInvariance, StepsOutsideForEachPartAreRefused) {
  config::set_replica_invariant_parts(4);
  const Variable weight(ones({2}));
  optimizers::Optimizer optimizer = optimizers::SGD({.learning_rate = 0.1});
  const std::vector<Variable> variables = {weight};
  const auto minimize = [&] { optimizer.minimize(reduce_sum(weight.value() * 2.0), variables); };
  testing::expect_error<FailedPreconditionError>(minimize,
                                                 "run it inside distribute::for_each_part()");
  const data::Example batch = {ones({8, 2})};
  testing::expect_error<UnimplementedError>(
      [&] {
        for_each_part(batch, [&](const data::Example&) {
          minimize();
          minimize();
        });
      },
      "expected one optimizer step per part, got a second one");
  testing::expect_error<RuntimeError>(
      [&] {
        for_each_part(batch, [&](const data::Example& part) {
          for_each_part(part, [](const data::Example&) {});
        });
      },
      "was called inside a part");
  auto traced = function([&](const Tensor& x) {
    optimizer.minimize(reduce_sum(weight.value() * x), variables);
    return x;
  });
  testing::expect_error<UnimplementedError>(
      [&] { for_each_part(batch, [&](const data::Example& part) { traced(part[0]); }); },
      "call for_each_part() inside the function instead");
}

TEST(ReplicaInvariance, WritesOfPartsBecomeOneValue) {
  config::set_replica_invariant_parts(4);
  const auto variable = [](VariableAggregation aggregation) {
    return Variable(full({1}, 10.0), {.trainable = false, .aggregation = aggregation});
  };
  Variable sum = variable(VariableAggregation::kSum), mean = variable(VariableAggregation::kMean),
           first = variable(VariableAggregation::kOnlyFirstReplica),
           none = variable(VariableAggregation::kNone);
  const data::Example batch = {constant({1.0f, 2.0f, 3.0f, 4.0f, 5.0f})};  // 2, 1, 1, 1
  for_each_part(batch, [&](const data::Example& part) {
    const Tensor total = reshape(reduce_sum(part[0]), {1});
    for (Variable* each : {&sum, &mean, &first}) each->assign(total);
    mean.assign_add(total);  // reads what the part wrote
    EXPECT_EQ(mean.value().item<float>(), 2.0f * total.item<float>());
  });
  EXPECT_EQ(sum.value().item<float>(), 15.0f);
  EXPECT_EQ(mean.value().item<float>(), 7.5f);
  EXPECT_EQ(first.value().item<float>(), 3.0f);
  testing::expect_error<InvalidArgumentError>(
      [&] { for_each_part(batch, [&](const data::Example&) { none.assign(zeros({1})); }); },
      "has VariableAggregation::kNone");
}

TEST(ReplicaInvariance, AStepSeesItsPartAsAReplica) {
  config::set_replica_invariant_parts(4);
  const data::Example batch = {reshape(constant({1.0f, 2.0f, 3.0f, 4.0f, 5.0f, 6.0f}), {6, 1})};
  std::vector<std::int64_t> sizes;
  std::vector<int> ids;
  std::vector<std::uint64_t> offsets;
  const Tensor sum = for_each_part(batch, [&](const data::Example& part) {
    sizes.push_back(part[0].dim(0));
    ids.push_back(distribute::replica_id_in_sync_group());
    offsets.push_back(random::get_state().offset);
    random::normal({2});
    return nn::compute_average_loss(reshape(part[0], {-1}));
  });
  EXPECT_EQ(sizes, (std::vector<std::int64_t>{2, 2, 1, 1}));
  EXPECT_EQ(ids, (std::vector<int>{0, 1, 2, 3}));
  EXPECT_EQ(offsets, std::vector<std::uint64_t>(4, offsets.front()));
  EXPECT_EQ(random::get_state().offset, offsets.front() + 1);
  EXPECT_FLOAT_EQ(sum.item<float>(), 3.5f);
}

}  // namespace
}  // namespace tandem::replica_invariance_test
