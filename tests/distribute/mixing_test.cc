// Values of one strategy used under another, and calls that are allowed outside the scope.
#include <gtest/gtest.h>

#include "support/errors.h"
#include "support/gpus.h"
#include "support/tensors.h"
#include "tandem/tandem.h"

namespace tandem::mixing_test {
namespace {

using distribute::MirroredStrategy;
using distribute::PerReplica;
using distribute::Strategy;
using testing::any_error_of;
using testing::error_of;
using testing::expect_error;
using testing::expect_parts;

MirroredStrategy cpus(int count, int from = 0) {
  config::set_logical_cpus(4);
  distribute::MirroredOptions options;
  for (int i = 0; i < count; ++i) options.devices.push_back("/cpu:" + std::to_string(from + i));
  return MirroredStrategy(options);
}

Variable counter(const Strategy& strategy) {
  auto scope = strategy.scope();
  return Variable(
      constant(0.0),
      {.trainable = false, .name = "counter", .aggregation = VariableAggregation::kSum});
}

TEST(MixedStrategies, AVariableIsUsedInReplicasOfItsOwnStrategyAlone) {
  const MirroredStrategy four = cpus(4), two = cpus(2), twin = cpus(4);
  Variable v = counter(four);
  const auto add = [&] { v.assign_add(constant(1.0)); };
  expect_parts(
      error_of<RuntimeError>([&] { two.run(add); }),
      {"Mixing different tandem::distribute::Strategy objects: "
       "MirroredStrategy(CPU:0, CPU:1, CPU:2, CPU:3) is not MirroredStrategy(CPU:0, CPU:1)",
       "'counter'"});
  EXPECT_THROW(two.run([&] { return v.value(); }), RuntimeError);
  expect_parts(error_of<RuntimeError>([&] { twin.run(add); }), {"two objects"});
  const auto traced = function([&] { two.run(add); });
  EXPECT_THROW(traced(), RuntimeError);

  // Nothing has changed, and training continues.
  for (const Strategy& strategy : std::vector<Strategy>{four, distribute::DefaultStrategy()})
    EXPECT_EQ(strategy.run([&] { return v.value(); })[0].item<float>(), 0.0f);
  four.run(add);
  EXPECT_EQ(v.value().item<float>(), 4.0f);
  v.assign(constant(7.0));
  EXPECT_EQ(four.run([&] { return v.value(); })[3].item<float>(), 7.0f);
}

TEST(MixedStrategies, AVariableWithOneCopyIsUsedUnderAll) {
  const MirroredStrategy two = cpus(2);
  const distribute::OneDeviceStrategy one("/cpu:1");
  const Variable plain(constant(3.0)), on_one = counter(one);
  EXPECT_EQ(two.run([&] { return plain + on_one; })[1].item<float>(), 3.0f);
}

TEST(MixedStrategies, AnOptimizerStepsUnderTheStrategyOfItsVariables) {
  const MirroredStrategy first = cpus(2), second = cpus(2, 2);
  Variable v;
  {
    auto scope = first.scope();
    v = Variable(constant({1.0, 2.0}), {.name = "v"});
  }
  auto optimizer = optimizers::SGD({.learning_rate = 0.5});
  const auto step = [&] { optimizer.apply_gradients({ones({2})}, {v}); };
  EXPECT_THROW(second.run(step), RuntimeError);
  first.run(step);
  EXPECT_EQ(v.value().to_vector<float>(), (std::vector<float>{0.0f, 1.0f}));
}

TEST(MixedStrategies, PerReplicaValuesAreOfTheStrategyThatRuns) {
  const MirroredStrategy one = cpus(1), two = cpus(2);
  const auto data = data::Dataset::from_tensor_slices({range(4)}).batch(4);
  const auto size = [](const data::Example& batch) { return batch[0].size(); };
  const auto of_one = one.experimental_distribute_dataset(data);
  const auto of_two = two.experimental_distribute_dataset(data);
  for (const auto& batch : of_one) {
    EXPECT_EQ(one.run(size, batch)[0], 4);
    expect_parts(
        error_of<RuntimeError>([&] { two.run(size, batch); }),
        {"Mixing different", "MirroredStrategy(CPU:0) is not MirroredStrategy(CPU:0, CPU:1)"});
  }
  for (const auto& batch : of_two) {
    EXPECT_EQ(two.run(size, batch)[1], 2);
    EXPECT_THROW(one.run(size, batch), RuntimeError);
    EXPECT_THROW(distribute::DefaultStrategy().run(size, batch), RuntimeError);
    const auto traced = function([&](const PerReplica<data::Example>& parts) {
      return one.run([](const data::Example& part) { return part[0]; }, parts);
    });
    EXPECT_THROW(traced(batch), RuntimeError);
  }
  const auto results = two.run([] { return constant(1.0); });
  EXPECT_THROW(one.reduce(ReduceOp::kSum, results), RuntimeError);
  EXPECT_THROW(one.gather(results, 0), RuntimeError);
  const auto passed_on = two.run([](const Tensor& value) { return value; }, results);
  EXPECT_EQ(two.reduce(ReduceOp::kSum, passed_on).item<float>(), 2.0f);
}

TEST(MixedStrategies, PerReplicaValuesAreAsManyAsReplicas) {
  const MirroredStrategy two = cpus(2);
  const auto value_of = [](const Tensor& value) { return value; };
  const std::vector<Tensor> three(3, constant({1.0}));
  for (const auto& values :
       {PerReplica<Tensor>(three), PerReplica<Tensor>(std::vector<Tensor>{three[0]})})
    expect_error<InvalidArgumentError>([&] { two.run(value_of, values); },
                                       "[run] expected per-replica values of 2 replica(s), as "
                                       "MirroredStrategy(CPU:0, CPU:1) has in this process, got "
                                       "values of " +
                                           std::to_string(values.size()));
  EXPECT_THROW(two.reduce(ReduceOp::kSum, PerReplica<Tensor>(three)), InvalidArgumentError);
  EXPECT_THROW(two.gather(PerReplica<Tensor>(three), 0), InvalidArgumentError);
  EXPECT_THROW(PerReplica<Tensor>(three, distribute::BatchSplit::even(4, 2)), InvalidArgumentError);
}

TEST(CrossReplicaContext, IsRequiredBySomeMethods) {
  const MirroredStrategy two = cpus(2);
  const PerReplica<Tensor> values(std::vector<Tensor>{constant({1.0}), constant({2.0})});
  const auto data = data::Dataset::from_tensor_slices({range(4)}).batch(4);
  const std::vector<std::pair<std::string, std::function<void()>>> calls = {
      {"reduce", [&] { two.reduce(ReduceOp::kSum, constant(1.0)); }},
      {"reduce", [&] { two.reduce(ReduceOp::kSum, values); }},
      {"gather", [&] { two.gather(values, 0); }},
      {"run", [&] { two.run([] {}); }},
      {"run", [&] { distribute::DefaultStrategy().run([] {}); }},
      {"experimental_distribute_dataset", [&] { two.experimental_distribute_dataset(data); }}};
  for (const auto& [name, call] : calls) {
    const std::string expected = "Method requires being in cross-replica context: " + name +
                                 "() was called inside a replica of MirroredStrategy(CPU:0, CPU:1)";
    EXPECT_EQ(error_of<RuntimeError>([&] { two.run(call); }).rfind(expected, 0), 0u) << name;
    const auto traced = function([&] { two.run(call); });
    EXPECT_EQ(error_of<RuntimeError>([&] { traced(); }).rfind(expected, 0), 0u) << name;
  }
}

TEST(CrossReplicaContext, MustBeThatOfTheCalledStrategy) {
  const MirroredStrategy two = cpus(2), others = cpus(2, 2);
  const auto scope = two.scope();
  expect_parts(error_of<RuntimeError>([&] { others.run([] {}); }),
               {"Mixing different tandem::distribute::Strategy objects: MirroredStrategy(CPU:0, "
                "CPU:1) is not MirroredStrategy(CPU:2, CPU:3). run() of the second"});
  expect_parts(error_of<RuntimeError>([&] { static_cast<void>(others.scope()); }),
               {"The scope of the second was opened inside that of the first"});
}

}  // namespace
}  // namespace tandem::mixing_test
