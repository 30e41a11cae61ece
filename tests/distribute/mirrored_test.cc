#include <gtest/gtest.h>

#include <cmath>
#include <sstream>
#include <thread>

#include "runtime/variable_impl.h"
#include "support/gpus.h"
#include "support/strategies.h"
#include "support/tensors.h"
#include "support/waiting.h"
#include "tandem/tandem.h"

namespace tandem::mirrored_test {
namespace {

using distribute::MirroredStrategy;
using distribute::PerReplica;
using distribute::Strategy;
using testing::cpus;
using testing::uneven;

// A two-layer perceptron, written with single operations.
struct Net {
  Variable w1, b1, w2, b2;
  explicit Net(double dropout = 0.0) : rate(dropout) {
    random::set_seed(5);
    w1 = Variable(random::normal({6, 16}, 0.0, 0.4), {.name = "w1"});
    b1 = Variable(zeros({16}), {.name = "b1"});
    w2 = Variable(random::normal({16, 3}, 0.0, 0.4), {.name = "w2"});
    b2 = Variable(zeros({3}), {.name = "b2"});
  }
  std::vector<Variable> variables() const { return {w1, b1, w2, b2}; }
  Tensor operator()(const Tensor& x) const {
    Tensor hidden = nn::dense(x, w1, b1, nn::Activation::kRelu);
    if (rate > 0) hidden = nn::dropout(hidden, rate);
    return nn::dense(hidden, w2, b2);
  }
  double rate;
};

// Trains 50 steps by SGD with momentum; returns the weights of every replica.
std::vector<std::vector<std::vector<float>>> train(const Strategy& strategy,
                                                   const data::Dataset& data, double dropout = 0.0,
                                                   int steps = 50) {
  std::unique_ptr<Net> net;
  optimizers::Optimizer optimizer;
  {
    auto scope = strategy.scope();
    net = std::make_unique<Net>(dropout);
    optimizer = optimizers::SGD({.learning_rate = 0.1, .momentum = 0.9});
  }
  random::set_seed(77);
  const auto step = [&](const data::Example& batch) {
    GradientTape tape;
    const Tensor loss =
        nn::compute_average_loss(nn::sparse_softmax_cross_entropy(batch[1], (*net)(batch[0])));
    optimizer.apply_gradients(tape.gradient(loss, net->variables()), net->variables());
    return loss;
  };
  int taken = 0;
  for (const auto& batch : strategy.experimental_distribute_dataset(data)) {
    strategy.run(step, batch);
    if (++taken == steps) break;
  }
  std::vector<std::vector<std::vector<float>>> weights;
  for (int replica = 0; replica < strategy.num_replicas_in_sync(); ++replica) {
    auto& mine = weights.emplace_back();
    for (const Variable& variable : net->variables())
      mine.push_back(
          variable.impl().storage().value(static_cast<std::size_t>(replica)).to_vector<float>());
  }
  return weights;
}

void expect_close(const std::vector<std::vector<float>>& a,
                  const std::vector<std::vector<float>>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t v = 0; v < a.size(); ++v) {
    ASSERT_EQ(a[v].size(), b[v].size());
    double largest = 0;
    for (float value : b[v]) largest = std::max(largest, std::abs(static_cast<double>(value)));
    for (std::size_t i = 0; i < a[v].size(); ++i)
      EXPECT_NEAR(a[v][i], b[v][i],
                  1e-5 * std::max(largest, std::abs(static_cast<double>(b[v][i]))))
          << v << ' ' << i;
  }
}

TEST(Mirrored, TwoReplicasEqualOneDevice) {
  const MirroredStrategy two = cpus(2);
  const distribute::OneDeviceStrategy one("/cpu:0");
  const auto data = uneven(27, 8);  // 8, 8, 8, 3
  expect_close(train(two, data)[0], train(one, data)[0]);
}

TEST(Mirrored, TwoEmulatedGpusEqualOneDevice) {
  testing::use_gpus(2, 256);
  const MirroredStrategy two({.devices = {"/gpu:0", "/gpu:1"}});
  const distribute::OneDeviceStrategy one("/cpu:0");
  const auto data = uneven(27, 8);
  expect_close(train(two, data)[0], train(one, data)[0]);
}

TEST(Mirrored, ACpuAndAGpuEqualOneDevice) {
  testing::use_gpus(1, 256);
  const MirroredStrategy two({.devices = {"/cpu:0", "/gpu:0"}});
  const distribute::OneDeviceStrategy one("/cpu:0");
  const auto data = uneven(27, 8);
  expect_close(train(two, data)[0], train(one, data)[0]);
}

TEST(Mirrored, EveryCrossDeviceOperationGivesTheSame) {
  config::set_logical_cpus(3);
  const distribute::OneDeviceStrategy one("/cpu:0");
  const auto data = uneven(25, 7);
  const auto expected = train(one, data)[0];
  for (const auto& ops :
       {distribute::CrossDeviceOps(), distribute::NcclAllReduce(),
        distribute::NcclAllReduce({.num_packs = 0}), distribute::HierarchicalCopyAllReduce(),
        distribute::HierarchicalCopyAllReduce({.num_packs = 0}),
        distribute::HierarchicalCopyAllReduce({.num_packs = 4}), distribute::ReductionToOneDevice(),
        distribute::ReductionToOneDevice({.reduce_to_device = "/cpu:2"})}) {
    const MirroredStrategy three(
        {.devices = {"/cpu:0", "/cpu:1", "/cpu:2"}, .cross_device_ops = ops});
    expect_close(train(three, data)[0], expected);
  }
}

TEST(Mirrored, GradientsAreSummedOnADeviceWithoutAReplica) {
  testing::use_gpus(3, 64);
  const auto data = uneven(25, 7);
  const auto expected = train(distribute::OneDeviceStrategy("/cpu:0"), data)[0];
  for (const char* device : {"/cpu:0", "/gpu:2"}) {
    const MirroredStrategy two(
        {.devices = {"/gpu:0", "/gpu:1"},
         .cross_device_ops = distribute::ReductionToOneDevice({.reduce_to_device = device})});
    const auto weights = train(two, data);
    expect_close(weights[0], expected);
    EXPECT_EQ(weights[0], weights[1]);
  }
}

TEST(Mirrored, ReplicasStayBitwiseEqual) {
  const MirroredStrategy strategy = cpus(2);
  const auto weights = train(strategy, uneven(27, 8));
  EXPECT_EQ(weights[0], weights[1]);
}

TEST(Mirrored, TheSameSeedGivesTheSameBits) {
  const MirroredStrategy strategy = cpus(2);
  const auto data = uneven(27, 8);
  EXPECT_EQ(train(strategy, data, 0.3), train(strategy, data, 0.3));
}

TEST(Mirrored, DropoutEqualsThatOfOneDevice) {
  const MirroredStrategy two = cpus(2);
  const distribute::OneDeviceStrategy one("/cpu:0");
  const auto data = uneven(27, 8);
  expect_close(train(two, data, 0.3)[0], train(one, data, 0.3)[0]);
}

TEST(Mirrored, ReplicasWithoutExamplesStayEqual) {
  config::set_logical_cpus(3);
  const MirroredStrategy three({.devices = {"/cpu:0", "/cpu:1", "/cpu:2"}});
  const distribute::OneDeviceStrategy one("/cpu:0");
  const auto data = uneven(9, 4);  // 4, 4, 1: the last batch is too small for all
  const auto weights = train(three, data);
  expect_close(weights[0], train(one, data)[0]);
  EXPECT_EQ(weights[0], weights[1]);
  EXPECT_EQ(weights[0], weights[2]);
}

TEST(Mirrored, ReplicasRunConcurrently) {
  const MirroredStrategy strategy = cpus(2);
  std::atomic<int> inside{0};
  strategy.run([&] {
    ++inside;
    testing::eventually([&] { return inside == 2; });
  });
  EXPECT_EQ(inside, 2);
}

TEST(Mirrored, RunGivesEachReplicaItsValue) {
  const MirroredStrategy strategy = cpus(2);
  const PerReplica<int> mine(std::vector<int>{10, 20});
  const auto result = strategy.run(
      [](int value, int shared) { return value + shared + distribute::replica_id_in_sync_group(); },
      mine, 5);
  EXPECT_EQ(result.values(), (std::vector<int>{15, 26}));
}

TEST(Mirrored, ArgumentsMayBeInBracesOrInATuple) {
  const MirroredStrategy strategy = cpus(2);
  const PerReplica<int> mine(std::vector<int>{10, 20});
  const auto twice = [](int value) { return 2 * value; };
  const auto difference = [](int a, int b) { return a - b; };
  const auto sum_of = [](const std::tuple<int, int>& pair) {
    return std::get<0>(pair) + std::get<1>(pair);
  };
  EXPECT_EQ(strategy.run(twice, {mine}).values(), (std::vector<int>{20, 40}));
  EXPECT_EQ(strategy.run(difference, {mine, mine}).values(), (std::vector<int>{0, 0}));
  EXPECT_EQ(strategy.run(difference, std::tuple{mine, 1}).values(), (std::vector<int>{9, 19}));
  EXPECT_EQ(strategy.run(sum_of, std::tuple{3, 4}).values(), (std::vector<int>{7, 7}));
}

TEST(Mirrored, DevicesMayBeGivenByNameAlone) {
  config::set_logical_cpus(2);
  const MirroredStrategy two({"/cpu:0", "/cpu:1"}), one({"/cpu:1"});
  EXPECT_EQ(two.num_replicas_in_sync(), 2);
  EXPECT_EQ(one.devices(), std::vector<std::string>{two.devices()[1]});
  const distribute::CentralStorageStrategy central({"/cpu:0", "/cpu:1"});
  EXPECT_EQ(central.devices(), two.devices());
}

TEST(Mirrored, BatchesOfPairsDecompose) {
  const MirroredStrategy strategy = cpus(2);
  const auto data = data::Dataset::from_tensor_slices({range(4), range(4) + 10}).batch(3);
  const auto sum = [](const Tensor& x, const Tensor& y) { return reduce_sum(x) + reduce_sum(y); };
  std::vector<std::int32_t> sums, again;
  for (const auto& [x, y] : strategy.experimental_distribute_dataset(data))
    sums.push_back(strategy.reduce(ReduceOp::kSum, strategy.run(sum, {x, y})).item<std::int32_t>());
  for (const auto& batch : strategy.experimental_distribute_dataset(data))
    again.push_back(strategy.reduce(ReduceOp::kSum, strategy.run(sum, batch)).item<std::int32_t>());
  EXPECT_EQ(sums, (std::vector<std::int32_t>{36, 16}));
  EXPECT_EQ(again, sums);
}

TEST(Mirrored, BatchesOfOtherThanPairsDoNotDecompose) {
  const MirroredStrategy strategy = cpus(2);
  const auto data = data::Dataset::from_tensor_slices({range(4)}).batch(2);
  testing::expect_error<InvalidArgumentError>(
      [&] {
        for (const auto& [x, y] : strategy.experimental_distribute_dataset(data))
          static_cast<void>(x.size() + y.size());
      },
      "expected examples of 2 components, got 1");
}

TEST(PerReplicaValues, AreReadAndPrinted) {
  const MirroredStrategy strategy = cpus(2);
  const PerReplica<int> values(std::vector<int>{1, 2});
  EXPECT_EQ(strategy.experimental_local_results(values), (std::vector<int>{1, 2}));
  std::ostringstream out;
  out << values;
  EXPECT_EQ(out.str(), "PerReplica:{\n  0: 1,\n  1: 2\n}");
}

TEST(Mirrored, SplitsUnevenBatchesEvenly) {
  const MirroredStrategy strategy = cpus(2);
  const auto data = data::Dataset::from_tensor_slices({range(6)}).batch(4);
  std::vector<std::vector<std::int32_t>> parts;
  for (const auto& batch : strategy.experimental_distribute_dataset(data))
    for (const auto& part : batch.values()) parts.push_back(part[0].to_vector<std::int32_t>());
  EXPECT_EQ(parts, (std::vector<std::vector<std::int32_t>>{{0, 1}, {2, 3}, {4}, {5}}));
}

TEST(PerReplicaValues, AnIndexBeyondTheReplicasIsAnError) {
  PerReplica<int> values(std::vector<int>{1, 2});
  const std::string expected = "[PerReplica] expected an index below 2, got 31";
  testing::expect_error<OutOfRangeError>([&] { values[31]; }, expected);
  testing::expect_error<OutOfRangeError>([&] { static_cast<void>(values.present(31)); }, expected);
}

TEST(BatchSplit, SizesDifferByAtMostOne) {
  const auto split = distribute::BatchSplit::even(4, 3);
  EXPECT_EQ(split.counts, (std::vector<std::int64_t>{2, 1, 1}));
  EXPECT_EQ(split.offsets, (std::vector<std::int64_t>{0, 2, 3}));
}

TEST(Mirrored, ScalarsCannotBeSplit) {
  const MirroredStrategy strategy = cpus(2);
  const auto data = data::Dataset::from_tensor_slices({range(6)});
  try {
    for (const auto& batch : strategy.experimental_distribute_dataset(data))
      static_cast<void>(batch);
    FAIL();
  } catch (const InvalidArgumentError& error) {
    EXPECT_EQ(
        std::string(error.what())
            .rfind("Expected a dataset whose elements have rank >= 1 but found a dataset whose "
                   "elements are scalars.",
                   0),
        0u);
  }
}

TEST(Mirrored, ReduceCombinesReplicas) {
  const MirroredStrategy strategy = cpus(2);
  const PerReplica<Tensor> values(std::vector<Tensor>{constant({1.0, 5.0, 3.0}), constant({4.0})});
  const auto reduce = [&](ReduceOp op) { return strategy.reduce(op, values, 0).item<float>(); };
  EXPECT_FLOAT_EQ(reduce(ReduceOp::kSum), 13.0f);
  EXPECT_FLOAT_EQ(reduce(ReduceOp::kMean), 3.25f);  // mean over elements, not over replicas
  EXPECT_FLOAT_EQ(reduce(ReduceOp::kMin), 1.0f);
  EXPECT_FLOAT_EQ(reduce(ReduceOp::kMax), 5.0f);
  EXPECT_FLOAT_EQ(strategy.reduce(ReduceOp::SUM, values, {.axis = 0}).item<float>(), 13.0f);
  const PerReplica<Tensor> scalars(std::vector<Tensor>{constant(2.0), constant(6.0)});
  EXPECT_FLOAT_EQ(strategy.reduce(ReduceOp::kSum, scalars).item<float>(), 8.0f);
  EXPECT_FLOAT_EQ(strategy.reduce(ReduceOp::kMean, scalars).item<float>(), 4.0f);
  EXPECT_FLOAT_EQ(strategy.reduce(ReduceOp::Sum, scalars, {.axis = std::nullopt}).item<float>(),
                  8.0f);
  EXPECT_EQ(strategy.gather(values, 0).to_vector<float>(),
            (std::vector<float>{1.0f, 5.0f, 3.0f, 4.0f}));
}

TEST(Mirrored, AReplicasErrorIsThrownAndTheStrategyStaysUsable) {
  const MirroredStrategy strategy = cpus(2);
  Variable v;
  {
    auto scope = strategy.scope();
    v = Variable(constant(1.0), {.trainable = false, .aggregation = VariableAggregation::kSum});
  }
  for (int round = 0; round < 3; ++round) {
    try {
      strategy.run([&] {
        if (distribute::replica_id_in_sync_group() == 1)
          throw NotFoundError("replica 1 lost its way");
        v.assign(constant(2.0));  // blocks until the other replica assigns
      });
      FAIL();
    } catch (const NotFoundError& error) {
      EXPECT_STREQ(error.what(), "replica 1 lost its way");
    }
    strategy.run([&] { v.assign(constant(3.0)); });
    EXPECT_FLOAT_EQ(v.value().item<float>(), 6.0f);
  }
}

TEST(Mirrored, MismatchedReplicasThrow) {
  const MirroredStrategy strategy = cpus(2);
  Variable v;
  {
    auto scope = strategy.scope();
    v = Variable(constant(1.0), {.trainable = false, .aggregation = VariableAggregation::kSum});
  }
  try {
    strategy.run([&] {
      if (distribute::replica_id_in_sync_group() == 0) v.assign(constant(2.0));
    });
    FAIL();
  } catch (const InvalidArgumentError& error) {
    EXPECT_NE(std::string(error.what()).find("replica 1 ended its step without this collective"),
              std::string::npos)
        << error.what();
  }
}

TEST(Mirrored, VariablesAreMadeInTheScopeOnly) {
  const MirroredStrategy strategy = cpus(2);
  EXPECT_THROW(strategy.run([] { Variable v(constant(1.0)); }), FailedPreconditionError);
}

TEST(MirroredVariable, WritingInAReplicaNeedsAnAggregation) {
  const MirroredStrategy strategy = cpus(2);
  Variable none, sum, mean, first;
  {
    auto scope = strategy.scope();
    none = Variable(constant(0.0));
    sum = Variable(constant(0.0), {.aggregation = VariableAggregation::kSum});
    mean = Variable(constant(0.0), {.aggregation = VariableAggregation::kMean});
    first = Variable(constant(0.0), {.aggregation = VariableAggregation::kOnlyFirstReplica});
  }
  const PerReplica<Tensor> values(std::vector<Tensor>{constant(2.0), constant(6.0)});
  try {
    strategy.run([&](const Tensor& value) { none.assign(value); }, values);
    FAIL();
  } catch (const InvalidArgumentError& error) {
    EXPECT_EQ(std::string(error.what())
                  .rfind("You must specify an aggregation method to update a MirroredVariable in "
                         "Replica Context.",
                         0),
              0u);
  }
  strategy.run(
      [&](const Tensor& value) {
        sum.assign(value);
        mean.assign_add(value);
        first.assign(value);
      },
      values);
  for (std::size_t copy = 0; copy < 2; ++copy) {
    EXPECT_FLOAT_EQ(sum.impl().storage().value(copy).item<float>(), 8.0f);
    EXPECT_FLOAT_EQ(mean.impl().storage().value(copy).item<float>(), 4.0f);
    EXPECT_FLOAT_EQ(first.impl().storage().value(copy).item<float>(), 2.0f);
  }
  none.assign(constant(7.0));  // between steps: every copy
  EXPECT_FLOAT_EQ(none.impl().storage().value(1).item<float>(), 7.0f);
}

TEST(OnReadVariable, IsAggregatedWhenRead) {
  const MirroredStrategy strategy = cpus(2);
  Variable sum, mean;
  {
    auto scope = strategy.scope();
    sum = Variable(constant(0.0), {.trainable = false,
                                   .synchronization = VariableSynchronization::kOnRead,
                                   .aggregation = VariableAggregation::kSum});
    mean = Variable(constant(0.0), {.trainable = false,
                                    .synchronization = VariableSynchronization::kOnRead,
                                    .aggregation = VariableAggregation::kMean});
  }
  const PerReplica<Tensor> values(std::vector<Tensor>{constant(2.0), constant(6.0)});
  strategy.run(
      [&](const Tensor& value) {
        sum.assign_add(value);
        mean.assign(value);
      },
      values);
  EXPECT_FLOAT_EQ(sum.value().item<float>(), 8.0f);
  EXPECT_FLOAT_EQ(mean.value().item<float>(), 4.0f);
  sum.assign(constant(10.0));  // restoring a checkpoint must give the same sum
  EXPECT_FLOAT_EQ(sum.value().item<float>(), 10.0f);
  EXPECT_FLOAT_EQ(sum.impl().storage().value(0).item<float>(), 5.0f);
  EXPECT_THROW(sum.assign_add(constant(1.0)), InvalidArgumentError);
}

TEST(StrategyScope, ScopesAndReplicasSetTheContext) {
  const MirroredStrategy strategy = cpus(2);
  EXPECT_TRUE(distribute::in_replica_context());
  EXPECT_FALSE(distribute::has_strategy());
  {
    auto scope = strategy.scope();
    auto again = strategy.scope();
    EXPECT_TRUE(distribute::has_strategy());
    EXPECT_TRUE(distribute::in_cross_replica_context());
    EXPECT_EQ(distribute::get_strategy().name(), "MirroredStrategy");
    strategy.run([] {
      EXPECT_TRUE(distribute::in_replica_context());
      EXPECT_TRUE(distribute::has_strategy());
    });
  }
  EXPECT_FALSE(distribute::has_strategy());
}

TEST(StrategyScope, StrategiesDoNotMix) {
  const MirroredStrategy strategy = cpus(2);
  const distribute::OneDeviceStrategy other("/cpu:0");
  auto scope = strategy.scope();
  EXPECT_THROW(static_cast<void>(other.scope()), RuntimeError);
  EXPECT_THROW(strategy.run([&] { strategy.run([] {}); }), RuntimeError);
  EXPECT_THROW(strategy.run([&] { static_cast<void>(strategy.scope()); }), RuntimeError);
}

TEST(MirroredStrategy, TakesAllGpusByDefault) {
  testing::use_gpus(3, 64);
  EXPECT_EQ(MirroredStrategy().num_replicas_in_sync(), 3);
}

TEST(MirroredStrategy, RefusesBadDevices) {
  testing::use_gpus(0);
  config::set_logical_cpus(2);
  try {
    MirroredStrategy({.devices = {"/cpu:0", "/CPU:0"}});
    FAIL();
  } catch (const InvalidArgumentError& error) {
    EXPECT_STREQ(error.what(), "No duplicates allowed in `devices` argument: (/cpu:0, /CPU:0)");
  }
  EXPECT_THROW(MirroredStrategy({.devices = {"/gpu:0"}}), InvalidArgumentError);
}

TEST(CrossDeviceOps, RefuseNegativePacks) {
  try {
    distribute::HierarchicalCopyAllReduce({.num_packs = -1});
    FAIL();
  } catch (const InvalidArgumentError& error) {
    EXPECT_STREQ(error.what(), "HierarchicalCopy requires num_packs >= 0, but -1 is specified");
  }
  try {
    distribute::NcclAllReduce({.num_packs = -1});
    FAIL();
  } catch (const InvalidArgumentError& error) {
    EXPECT_STREQ(error.what(), "NCCL all-reduce requires num_packs >= 0, but -1 is specified");
  }
}

}  // namespace
}  // namespace tandem::mirrored_test
