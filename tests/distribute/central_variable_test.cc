// The variables of CentralStorageStrategy: one copy that all replicas read and assign.
#include <gtest/gtest.h>

#include "runtime/variable_impl.h"
#include "support/copies.h"
#include "support/errors.h"
#include "support/gpus.h"
#include "support/tensors.h"
#include "support/trace.h"
#include "tandem/tandem.h"

namespace tandem::central_variable_test {
namespace {

using distribute::CentralStorageStrategy;
using distribute::MirroredStrategy;
using distribute::PerReplica;
using distribute::Strategy;
using testing::error_of;
using testing::expect_error;
using testing::expect_parts;
using testing::values_of;

using Numbers = std::vector<double>;

// "GPU:0" of a full name.
std::string short_name(const std::string& device) { return device.substr(device.rfind(':') - 3); }

Variable make(const Strategy& strategy, VariableAggregation aggregation, double value = 0.0) {
  const auto scope = strategy.scope();
  return Variable(full({2}, value), {.name = "v", .aggregation = aggregation});
}

// How the replicas run a step: operation by operation, in a traced function, or as functions that
// each replica calls.
enum class Mode { kEager, kTraced, kInReplicas };

template <class Step>
void run(const Strategy& strategy, Mode mode, const Step& step,
         const PerReplica<Tensor>& values = PerReplica<Tensor>(std::vector<Tensor>{
             full({2}, 2.0), full({2}, 6.0)})) {
  switch (mode) {
    case Mode::kEager: strategy.run(step, values); return;
    case Mode::kTraced:
      function([&](const PerReplica<Tensor>& x) { strategy.run(step, x); })(values);
      return;
    case Mode::kInReplicas: {
      const auto replayed = function(step);
      strategy.run([&](const Tensor& x) { replayed(x); }, values);
      return;
    }
  }
}

class CentralVariable : public ::testing::TestWithParam<Mode> {};
INSTANTIATE_TEST_SUITE_P(Eager, CentralVariable, ::testing::Values(Mode::kEager));
INSTANTIATE_TEST_SUITE_P(Traced, CentralVariable, ::testing::Values(Mode::kTraced));
INSTANTIATE_TEST_SUITE_P(InReplicas, CentralVariable, ::testing::Values(Mode::kInReplicas));

TEST_P(CentralVariable, AssignedValuesAreReducedAndAssignedOnce) {
  testing::use_gpus(2, 64);
  const CentralStorageStrategy two;
  Variable sum = make(two, VariableAggregation::kSum), mean = make(two, VariableAggregation::kMean),
           first = make(two, VariableAggregation::kOnlyFirstReplica);
  for (int i = 0; i < 2; ++i)
    run(two, GetParam(), [&](const Tensor& x) {
      sum.assign_add(x);
      mean.assign(x);
      first.assign_sub(x);
    });
  EXPECT_EQ(values_of(sum), (Numbers{16, 16}));
  EXPECT_EQ(values_of(mean), (Numbers{4, 4}));
  EXPECT_EQ(values_of(first), (Numbers{-4, -4}));
  sum.assign(full({2}, 7.0));  // between steps
  sum.assign_add(full({2}, 1.0));
  EXPECT_EQ(values_of(sum), (Numbers{8, 8}));
}

TEST_P(CentralVariable, EveryReplicaReadsWhatWasAssignedBefore) {
  testing::use_gpus(3, 64);
  for (const char* parameters : {"/cpu:0", "/gpu:0", "/gpu:2"}) {
    SCOPED_TRACE(parameters);
    const CentralStorageStrategy two(
        {.compute_devices = {"/gpu:0", "/gpu:1"}, .parameter_device = parameters});
    Variable v = make(two, VariableAggregation::kSum, 1.0),
             seen = make(two, VariableAggregation::kSum);
    const auto step = [&](const Tensor& x) {
      const Tensor before = v.value();
      v.assign_add(x);
      const Tensor between = v.value();
      v.assign_add(x);
      seen.assign(before * 10000.0 + between * 100.0 + v.value());
    };
    run(two, GetParam(), step);
    EXPECT_EQ(values_of(seen), (Numbers(2, 2 * (10000 + 900 + 17))));
    run(two, GetParam(), step);
    EXPECT_EQ(values_of(seen), (Numbers(2, 2 * (170000 + 2500 + 33))));
  }
}

// As an adversarial step: the second loss depends on what the first one's update wrote.
TEST_P(CentralVariable, AnUpdateIsSeenByALaterLossOfTheSameStep) {
  testing::use_gpus(2, 64);
  const auto train = [&](const Strategy& strategy, Mode mode) {
    Variable a = make(strategy, VariableAggregation::kNone, 1.0),
             b = make(strategy, VariableAggregation::kNone, -0.5);
    optimizers::Optimizer of_a = optimizers::SGD({.learning_rate = 0.1, .momentum = 0.9}),
                          of_b = optimizers::Adam({.learning_rate = 0.1});
    const PerReplica<Tensor> values = strategy.num_replicas_in_sync() == 2
                                          ? PerReplica<Tensor>({full({2}, 2.0), full({2}, 6.0)})
                                          : PerReplica<Tensor>({full({2}, 8.0)});
    for (int i = 0; i < 3; ++i)
      run(
          strategy, mode,
          [&](const Tensor& x) {
            of_a.minimize(reduce_sum(a.value() * b.value() * x) * 0.25, {a});
            of_b.minimize(reduce_sum(a.value() * b.value() * x) * 0.25, {b});
          },
          values);
    Numbers result = values_of(a);
    for (const double value : values_of(b)) result.push_back(value);
    return result;
  };
  const Numbers actual = train(CentralStorageStrategy(), GetParam()),
                expected = train(distribute::OneDeviceStrategy("/cpu:0"), Mode::kEager);
  for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(actual[i], expected[i], 1e-5) << i;
}

TEST_P(CentralVariable, AReplicaAloneReadsWhatItHasWritten) {
  testing::use_gpus(1, 64);
  const CentralStorageStrategy one({.compute_devices = {"/gpu:0"}, .parameter_device = "/cpu:0"});
  Variable v = make(one, VariableAggregation::kNone, 1.0),
           seen = make(one, VariableAggregation::kNone);
  const PerReplica<Tensor> values({full({2}, 2.0)});
  for (int i = 0; i < 2; ++i)
    run(
        one, GetParam(),
        [&](const Tensor& x) {
          const Tensor before = v.value();
          v.assign_add(x);
          seen.assign(before * 100.0 + v.value());
        },
        values);
  EXPECT_EQ(values_of(seen), (Numbers(2, 305)));
  EXPECT_EQ(short_name(v.device()), "CPU:0");
}

TEST_P(CentralVariable, AssigningNeedsAnAggregation) {
  testing::use_gpus(2, 64);
  const CentralStorageStrategy two;
  Variable none = make(two, VariableAggregation::kNone);
  expect_parts(error_of<InvalidArgumentError>(
                   [&] { run(two, GetParam(), [&](const Tensor& x) { none.assign(x); }); }),
               {"You must specify an aggregation method to update a AggregatingVariable in Replica "
                "Context.",
                "'v'"});
  none.assign(full({2}, 3.0));
  EXPECT_EQ(values_of(none), (Numbers{3, 3}));
}

// The batch has 2 examples for 3 replicas.
TEST_P(CentralVariable, ReplicasWithoutExamplesContributeNothing) {
  testing::use_gpus(3, 64);
  const Strategy central = CentralStorageStrategy(), mirrored = MirroredStrategy();
  for (const Strategy& strategy : {central, mirrored}) {
    SCOPED_TRACE(strategy.name());
    Variable sum = make(strategy, VariableAggregation::kSum, 1.0),
             mean = make(strategy, VariableAggregation::kMean),
             first = make(strategy, VariableAggregation::kOnlyFirstReplica);
    const auto step = [&](const Tensor& x) {
      sum.assign_add(x);
      mean.assign(x);
      first.assign(x);
    };
    run(strategy, GetParam(), step,
        PerReplica<Tensor>({full({2}, 2.0), full({2}, 6.0), Tensor()},
                           {.offsets = {0, 1, 2}, .counts = {1, 1, 0}, .total = 2}));
    for (const Tensor& copy : testing::copies_of(sum)) EXPECT_EQ(values_of(copy), (Numbers{9, 9}));
    for (const Tensor& copy : testing::copies_of(mean)) EXPECT_EQ(values_of(copy), (Numbers{4, 4}));
    for (const Tensor& copy : testing::copies_of(first))
      EXPECT_EQ(values_of(copy), (Numbers{2, 2}));
  }
}

TEST(CentralVariable, IsSynchronizedOnWrite) {
  testing::use_gpus(2, 64);
  const CentralStorageStrategy two;
  const auto scope = two.scope();
  const Variable moment(full({2}, 0.0), {.trainable = false,
                                         .synchronization = VariableSynchronization::kOnRead,
                                         .aggregation = VariableAggregation::kMean});
  EXPECT_EQ(moment.synchronization(), VariableSynchronization::kOnWrite);
  EXPECT_EQ(moment.aggregation(), VariableAggregation::kMean);
  expect_error<InvalidArgumentError>(
      [] { Variable(zeros({1}), {.name = "w", .aggregation = VariableAggregation(9)}); },
      "Invalid variable aggregation mode: 9 for variable: w");
}

TEST(CentralVariable, AStepCopiesItOncePerReplica) {
  testing::use_gpus(2, 64);
  const CentralStorageStrategy two;
  Variable v = make(two, VariableAggregation::kSum);
  const auto memory = [&] { return impl_of(v.value()).data(); };
  two.run([&] {
    const Tensor before = v.value();
    EXPECT_EQ(memory(), impl_of(before).data());
    v.assign(ones({2}));
    EXPECT_NE(memory(), impl_of(before).data());
    EXPECT_EQ(values_of(before), (Numbers{0, 0}));
    EXPECT_EQ(values_of(v), (Numbers{2, 2}));
  });
}

// How often a traced step copies the bytes of a weight, which it uses three times, from the host to
// GPUs and back.
std::pair<int, int> copies_in_step(const Strategy& strategy) {
  Variable w;
  optimizers::Optimizer optimizer = optimizers::SGD({.learning_rate = 0.1});
  {
    const auto scope = strategy.scope();
    w = Variable(ones({6, 6}));
  }
  const auto step = function([&](const PerReplica<data::Example>& batch) {
    strategy.run(
        [&](const data::Example& mine) {
          const Tensor y = matmul(matmul(matmul(mine[0], w), w), w);
          optimizer.minimize(nn::compute_average_loss(reduce_sum(square(y), {.axis = Dims{1}})),
                             {w});
        },
        batch);
  });
  const testing::TemporaryDirectory directory;
  for (const auto& batch :
       strategy.experimental_distribute_dataset(data::Dataset::from_tensors({ones({4, 6})}))) {
    step(batch);
    profiler::start({.file = directory / "t"});
    step(batch);
    profiler::stop();
  }
  std::pair<int, int> copies;
  for (const testing::TraceEvent& event : testing::read_trace(directory / "t")) {
    if (!event.args.contains("bytes") || event.args["bytes"] != 6 * 6 * 4) continue;
    copies.first += event.name == "copy from the host" ? 1 : 0;
    copies.second += event.name == "copy to the host" ? 1 : 0;
  }
  return copies;
}

TEST(CentralVariable, ATracedStepCopiesItOncePerReplica) {
  testing::use_gpus(2, 64);
  using Copies = std::pair<int, int>;
  EXPECT_EQ(copies_in_step(distribute::OneDeviceStrategy("/gpu:0")), Copies(0, 0));
  EXPECT_EQ(copies_in_step(CentralStorageStrategy({.compute_devices = {"/gpu:0"}})), Copies(0, 0));
  // The weight to memory of the program, and from there to the GPU; its gradient.
  EXPECT_EQ(copies_in_step(CentralStorageStrategy(
                {.compute_devices = {"/gpu:0"}, .parameter_device = "/cpu:0"})),
            Copies(2, 1));
  // The weight as before, to two GPUs; the gradients, and their sum to the GPUs and for the update.
  EXPECT_EQ(copies_in_step(CentralStorageStrategy()), Copies(5, 3));
}

// --- memory ---

TEST(CentralVariableMemory, IsOnTheParameterDeviceAlone) {
  constexpr std::int64_t kBytes = (128 * 256 + 256 + 256 + 1) * 4;
  testing::use_gpus(3);
  const CentralStorageStrategy strategy(
      {.compute_devices = {"/gpu:0", "/gpu:1"}, .parameter_device = "/gpu:2"});
  const auto scope = strategy.scope();
  Sequential model({layers::Dense(256, {.input_shape = {128}}), layers::Dense(1)});
  for (const bool eagerly : {true, false}) {
    model.compile({.optimizer = optimizers::SGD({.learning_rate = 0.01, .momentum = 0.9}),
                   .loss = "mse",
                   .run_eagerly = eagerly});
    model.fit(ones({32, 128}), ones({32, 1}), {.batch_size = 16, .verbose = 0});
    model.evaluate(ones({32, 128}), ones({32, 1}));
    for (const std::string& device : strategy.devices()) {
      const config::MemoryInfo memory = config::get_memory_info(device);
      EXPECT_EQ(memory.by_tag.weights, 0) << device;
      EXPECT_EQ(memory.by_tag.optimizer, 0) << device;
      if (!eagerly) continue;  // a traced step keeps its arena
      EXPECT_EQ(memory.by_tag.activations, 0) << device;
    }
    const config::MemoryInfo memory = config::get_memory_info("/gpu:2");
    for (const std::int64_t bytes : {memory.by_tag.weights, memory.by_tag.optimizer}) {
      EXPECT_GE(bytes, kBytes);
      EXPECT_LT(bytes, kBytes * 5 / 4);
    }
  }
  for (const Variable& variable : model.optimizer().variables())
    if (is_floating(variable.dtype())) {
      EXPECT_EQ(short_name(variable.device()), "GPU:2");
      EXPECT_EQ(testing::copies_of(variable).size(), 1u);
    }
  for (const Variable& variable : model.variables()) {
    EXPECT_EQ(short_name(variable.device()), "GPU:2");
    EXPECT_EQ(testing::copies_of(variable).size(), 1u);
  }
}

TEST(CentralVariableMemory, AConversionKeepsOneCopy) {
  testing::use_gpus(2, 64);
  const CentralStorageStrategy two;
  const Variable v = make(two, VariableAggregation::kNone, 1.0);
  v.impl().convert(float16);
  EXPECT_EQ(testing::copies_of(v).size(), 1u);
  EXPECT_EQ(short_name(v.device()), "CPU:0");
  const auto devices = two.run([&] { return v.value().device(); });
  EXPECT_EQ(short_name(devices[1]), "GPU:1");
}

// --- the strategy ---

TEST(CentralStorageStrategy, ChoosesDevices) {
  testing::use_gpus(2, 64);
  ::testing::internal::CaptureStderr();
  const CentralStorageStrategy all;
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(log.find("ParameterServerStrategy (CentralStorageStrategy if you are using a single "
                     "machine) with compute_devices = ['/job:localhost/replica:0/task:0/device:GPU:"
                     "0', '/job:localhost/replica:0/task:0/device:GPU:1'], variable_device = "
                     "'/job:localhost/replica:0/task:0/device:CPU:0'"),
            std::string::npos)
      << log;
  EXPECT_EQ(all.name(), "CentralStorageStrategy");
  EXPECT_EQ(all.num_replicas_in_sync(), 2);
  EXPECT_EQ(short_name(all.parameter_device()), "CPU:0");
  const CentralStorageStrategy one({.compute_devices = {"/gpu:1"}});
  EXPECT_EQ(short_name(one.parameter_device()), "GPU:1");
  EXPECT_EQ(error_of<InvalidArgumentError>([] {
              CentralStorageStrategy({.compute_devices = {"/gpu:0", "/GPU:0"}});
            }),
            "No duplicates allowed in `compute_devices` argument: (/gpu:0, /GPU:0)");
  expect_parts(error_of<InvalidArgumentError>(
                   [] { CentralStorageStrategy({.parameter_device = "/gpu:7"}); }),
               {"[CentralStorageStrategy]", "/gpu:7"});
}

TEST(CentralStorageStrategy, ComputesOnTheCpuWithoutGpus) {
  testing::use_gpus(0);
  const CentralStorageStrategy strategy;
  EXPECT_EQ(strategy.num_replicas_in_sync(), 1);
  EXPECT_EQ(short_name(strategy.devices().front()), "CPU:0");
  EXPECT_EQ(short_name(strategy.parameter_device()), "CPU:0");
}

TEST(CentralStorageStrategy, DividesGlobalBatches) {
  testing::use_gpus(2, 64);
  const CentralStorageStrategy strategy;
  std::vector<Numbers> parts;
  std::vector<std::string> devices;
  for (const auto& batch : strategy.experimental_distribute_dataset(
           data::Dataset::from_tensor_slices({range(5)}).batch(2)))
    for (const auto& part : batch.values()) {
      if (part.empty()) continue;
      parts.push_back(values_of(part[0]));
      devices.push_back(short_name(part[0].device()));
    }
  EXPECT_EQ(parts, (std::vector<Numbers>{{0}, {1}, {2}, {3}, {4}}));
  EXPECT_EQ(devices, (std::vector<std::string>{"GPU:0", "GPU:1", "GPU:0", "GPU:1", "GPU:0"}));
}

TEST(CentralStorageStrategy, AReplicasErrorEndsTheStepOfAll) {
  testing::use_gpus(2, 64);
  const CentralStorageStrategy two;
  Variable v = make(two, VariableAggregation::kSum, 1.0);
  for (int round = 0; round < 3; ++round) {
    EXPECT_EQ(error_of<NotFoundError>([&] {
                two.run([&] {
                  if (distribute::replica_id_in_sync_group() == 1)
                    throw NotFoundError("[test] of replica 1");
                  v.assign(full({2}, 2.0));  // waits for the other replica
                });
              }),
              "[test] of replica 1");
    two.run([&] { v.assign(full({2}, 3.0)); });
    EXPECT_EQ(values_of(v), (Numbers{6, 6}));
  }
  expect_error<InvalidArgumentError>(
      [&] {
        two.run([&] {
          if (distribute::replica_id_in_sync_group() == 0) v.assign(full({2}, 2.0));
        });
      },
      "replica 1 ended its step without this collective");
}

// --- control flow ---

TEST(CentralVariable, AReadAndAnUpdateInOneBranchOfATracedStepAreRefused) {
  testing::use_gpus(2, 64);
  const CentralStorageStrategy two;
  Variable v = make(two, VariableAggregation::kNone, 1.0);
  optimizers::Optimizer optimizer = optimizers::SGD({.learning_rate = 0.5});
  const auto replica_step = [&](const Tensor& p) {
    cond(
        p,
        [&] {
          optimizer.apply_gradients({v.value() * 2.0}, {v}, {.skip_gradients_aggregation = true});
        },
        [] {});
  };
  two.run(replica_step, constant(true));
  EXPECT_EQ(values_of(v), (Numbers{0, 0}));
  const auto traced = function([&](const Tensor& p) { two.run(replica_step, p); });
  expect_parts(error_of<UnimplementedError>([&] { traced(constant(true)); }),
               {"'v'", "is read and then updated in the body of a loop or a branch",
                "CentralStorageStrategy(GPU:0, GPU:1)"});
}

}  // namespace
}  // namespace tandem::central_variable_test
