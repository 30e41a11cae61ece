// ParameterServerStrategy and ClusterCoordinator, compared with training on one device.
#include <gtest/gtest.h>

#include <map>
#include <numeric>
#include <vector>

#include "ps/local_cluster.h"
#include "support/grpc.h"
#include "support/tensors.h"

namespace tandem::ps::strategy_test {
namespace {

using distribute::ClusterCoordinator;
using distribute::ParameterServerStrategy;
using distribute::RemoteValue;
using tandem::testing::expect_error;
using testing::LocalCluster;

class ParameterServers : public tandem::testing::GrpcTest {};

std::vector<float> values(const Tensor& tensor) { return tensor.to_vector<float>(); }

TEST_F(ParameterServers, VariablesAreSpreadOverTheServersInTurn) {
  const LocalCluster cluster(2, 1);
  const ParameterServerStrategy strategy = cluster.strategy();
  const auto scope = strategy.scope();
  const Variable a(constant({1.f, 2.f})), b(constant({3.f})), c(constant({4.f}));
  EXPECT_EQ(cluster.stores[0]->num_variables(), 2u);
  EXPECT_EQ(cluster.stores[1]->num_variables(), 1u);
  EXPECT_EQ(values(a.value()), (std::vector<float>{1, 2}));
}

TEST_F(ParameterServers, ProgramsOfTheChiefReadAndAssign) {
  const LocalCluster cluster(2, 1);
  const ParameterServerStrategy strategy = cluster.strategy();
  const auto scope = strategy.scope();
  Variable a(constant({1.f, 2.f}));
  a.assign(constant({5.f, 6.f}));
  a.assign_add(constant({1.f, 1.f}));
  EXPECT_EQ(values(a.value()), (std::vector<float>{6, 7}));
  const auto twice = function([&](const Tensor& x) { return a.value() * x; });
  EXPECT_EQ(values(twice(constant({2.f, 2.f}))), (std::vector<float>{12, 14}));
  const auto update = function([&](const Tensor& x) { a.assign(x); });
  expect_error<FailedPreconditionError>(
      [&] {
        update(constant({0.f, 0.f}));
      },
      "expected ClusterCoordinator::schedule()");
}

// Closures of a function that is gone still run.
TEST_F(ParameterServers, FunctionsThatAreGoneAreRemovedFromTheTasks) {
  LocalCluster cluster(2, 1);
  const ParameterServerStrategy strategy = cluster.strategy();
  const auto scope = strategy.scope();
  Variable a(constant({1.f, 2.f})), b(constant({3.f}));
  ClusterCoordinator coordinator(strategy);
  constexpr int kFunctions = 12;
  const auto kept = function([&](const Tensor& x) { b.assign_add(x); });
  coordinator.schedule(kept, constant({1.f}));
  for (int i = 0; i < kFunctions; ++i) {
    const auto added = function([&, i](const Tensor& x) {
      a.assign_add(x * static_cast<double>(i));
      b.assign_add(constant({1.f}));
    });
    for (int call = 0; call < 3; ++call) coordinator.schedule(added, constant({1.f, 1.f}));
    if (i % 2 == 0) coordinator.join();
  }
  coordinator.join();
  coordinator.schedule(kept, constant({1.f}));
  coordinator.join();
  EXPECT_EQ(values(a.value()), (std::vector<float>{1 + 3 * 66, 2 + 3 * 66}));
  EXPECT_EQ(values(b.value()), std::vector<float>{3 + 2 + 3 * kFunctions});
  // Those of `kept`, of the last function, and of those whose closures had not ended.
  EXPECT_LE(cluster.stores[0]->num_updates(), 3u);
  EXPECT_LE(cluster.stores[1]->num_updates(), 4u);
  EXPECT_LE(cluster.worker(0).num_functions(), 4u);
}

TEST_F(ParameterServers, ACallThatIsNotScheduledTakesNoRandomNumbersAndNoStep) {
  const LocalCluster cluster(1, 1);
  const ParameterServerStrategy strategy = cluster.strategy();
  const auto scope = strategy.scope();
  ClusterCoordinator coordinator(strategy);
  Variable v(zeros({}));
  optimizers::Optimizer sgd = optimizers::SGD({.learning_rate = 1.0});
  const auto step = function([&](const Tensor& x) {
    sgd.apply_gradients({x}, {v});
    return random::normal({});
  });
  const auto bad =
      function([&](const Tensor& index) { return gather(v.value() * ones({4}), index); });
  const auto random_of_call = [&](bool fail_before) {
    random::set_seed(3);
    if (fail_before) {
      const RemoteValue failed = coordinator.schedule(bad, constant({99}));
      EXPECT_THROW(failed.fetch(), Error);
      EXPECT_THROW(coordinator.schedule(step, ones({})), Error);
    }
    return coordinator.schedule(step, ones({})).fetch().item<float>();
  };
  const float expected = random_of_call(false);
  EXPECT_EQ(random_of_call(true), expected);
  EXPECT_EQ(sgd.iterations(), 2);
}

// With the slots of their optimizers. Closures that use them still run.
TEST_F(ParameterServers, VariablesThatAreGoneAreRemovedFromTheServers) {
  LocalCluster cluster(2, 1);
  const ParameterServerStrategy strategy = cluster.strategy();
  const auto scope = strategy.scope();
  ClusterCoordinator coordinator(strategy);
  Variable kept(constant({1.f, 2.f}));
  const auto variables = [&] {
    return cluster.stores[0]->num_variables() + cluster.stores[1]->num_variables();
  };
  std::vector<RemoteValue> losses;
  for (int model = 0; model < 10; ++model) {
    Variable weight(constant({3.f, 4.f}));
    optimizers::Optimizer sgd = optimizers::SGD({.learning_rate = 0.5, .momentum = 0.9});
    const auto step = function([&](const Tensor& x) {
      GradientTape tape;
      const Tensor loss = reduce_sum(weight.value() * x * kept.value());
      sgd.apply_gradients(tape.gradient(loss, std::vector<Variable>{weight}), {weight});
      return loss;
    });
    for (int call = 0; call < 3; ++call)
      losses.push_back(coordinator.schedule(step, constant({1.f, 1.f})));
    if (model == 4) {
      coordinator.join();
      EXPECT_LE(variables(), 1u + 2 * 5);
    }
  }
  coordinator.join();
  const auto last = function([&](const Tensor& x) { kept.assign_add(x); });
  coordinator.schedule(last, constant({1.f, 1.f}));
  coordinator.join();
  EXPECT_EQ(variables(), 1u);
  EXPECT_EQ(values(kept.value()), (std::vector<float>{2, 3}));
  for (std::size_t i = 0; i < losses.size(); i += 3)
    EXPECT_EQ(losses[i].fetch().item<float>(), 3 + 2 * 4);
}

TEST_F(ParameterServers, EagerStepsOfTheChiefEqualOneDevice) {
  const LocalCluster cluster(2, 1);
  const auto train = [](int steps) {
    random::set_seed(3);
    Variable w(random::normal({4, 2}));
    optimizers::Optimizer adam = optimizers::Adam({.learning_rate = 0.1});
    for (int i = 0; i < steps; ++i) {
      GradientTape tape;
      const Tensor loss = reduce_sum(square(matmul(ones({3, 4}), w)));
      adam.apply_gradients(tape.gradient(loss, std::vector<Variable>{w}), {w});
    }
    return values(w.value());
  };
  const std::vector<float> expected = train(5);
  const ParameterServerStrategy strategy = cluster.strategy();
  const auto scope = strategy.scope();
  EXPECT_EQ(train(5), expected);
}

// A model with dropout and batch normalization, whose steps run one after the other.
struct Trained {
  std::vector<float> losses;
  std::vector<std::vector<float>> weights;
};

template <class RunStep>
Trained train_in_order(const RunStep& run) {
  random::set_seed(7);
  Sequential model({layers::Dense(8, {.activation = "relu", .input_shape = Shape{4}}),
                    layers::BatchNormalization(), layers::Dropout(0.3), layers::Dense(1)});
  optimizers::Optimizer adam =
      optimizers::Adam({.learning_rate = optimizers::schedules::exponential_decay(0.05, 2, 0.5)});
  const Tensor x = random::normal({16, 4}), y = random::normal({16, 1});
  const auto step = function([&](const Tensor& inputs, const Tensor& targets) {
    GradientTape tape;
    const Tensor loss = reduce_mean(square(model(inputs, {.training = true}) - targets));
    adam.apply_gradients(tape.gradient(loss, model.trainable_variables()),
                         model.trainable_variables());
    return loss;
  });
  Trained trained;
  for (int i = 0; i < 6; ++i) trained.losses.push_back(run(step, x, y).template item<float>());
  for (const Variable& variable : model.variables()) trained.weights.push_back(values(variable));
  return trained;
}

void expect_steps_in_order_to_equal_one_device(const distribute::ParameterServerOptions& options) {
  const Trained expected = train_in_order([](auto& step, auto& x, auto& y) { return step(x, y); });
  const LocalCluster cluster(2, 2);
  const ParameterServerStrategy strategy = cluster.strategy(options);
  const auto scope = strategy.scope();
  ClusterCoordinator coordinator(strategy);
  const Trained trained = train_in_order([&](auto& step, auto& x, auto& y) {
    const RemoteValue loss = coordinator.schedule(step, x, y);
    coordinator.join();
    EXPECT_EQ(loss.status(), distribute::RemoteValueStatus::kReady);
    return loss.fetch();
  });
  EXPECT_EQ(trained.losses, expected.losses);
  EXPECT_EQ(trained.weights, expected.weights);
}

TEST_F(ParameterServers, ScheduledStepsInOrderEqualOneDevice) {
  expect_steps_in_order_to_equal_one_device({});
}

TEST_F(ParameterServers, ScheduledStepsWithShardsEqualOneDevice) {
  expect_steps_in_order_to_equal_one_device(
      {.variable_partitioner = distribute::FixedShardsPartitioner({.num_shards = 3})});
}

TEST_F(ParameterServers, ManyCallsOfSeveralWorkersAreAllApplied) {
  LocalCluster cluster(2, 3);
  const ParameterServerStrategy strategy = cluster.strategy();
  const auto scope = strategy.scope();
  ClusterCoordinator coordinator(strategy);
  Variable sum(zeros({3}));
  const auto add = function([&](const Tensor& x) {
    sum.assign_add(x);
    return x * 2.0;
  });
  std::vector<RemoteValue> results;
  for (int i = 0; i < 200; ++i) {
    results.push_back(coordinator.schedule(add, full({3}, static_cast<double>(i))));
    if (i == 60) cluster.stop_worker(1);
    if (i == 120) cluster.start_worker(1);
  }
  coordinator.join();
  EXPECT_TRUE(coordinator.done());
  EXPECT_EQ(values(sum.value()), std::vector<float>(3, 199 * 100));
  const std::vector<Tensor> fetched = coordinator.fetch(results);
  EXPECT_EQ(values(fetched[150]), std::vector<float>(3, 300));
}

TEST_F(ParameterServers, AnErrorIsThrownOnceAndTheCoordinatorGoesOn) {
  const LocalCluster cluster(1, 2);
  const ParameterServerStrategy strategy = cluster.strategy();
  const auto scope = strategy.scope();
  ClusterCoordinator coordinator(strategy);
  Variable table(ones({4, 2}));
  const auto look_up = function([&](const Tensor& ids) { return gather(table.value(), ids); });
  const RemoteValue bad = coordinator.schedule(look_up, constant({9}));
  expect_error<InvalidArgumentError>([&] { coordinator.join(); }, "9");
  expect_error<InvalidArgumentError>([&] { bad.fetch(); }, "9");
  const RemoteValue good = coordinator.schedule(look_up, constant({1}));
  coordinator.join();
  EXPECT_EQ(values(good.fetch()), (std::vector<float>{1, 1}));
}

TEST_F(ParameterServers, RefusesForeignVariablesAndStrategies) {
  const LocalCluster cluster(1, 1);
  const ParameterServerStrategy strategy = cluster.strategy();
  Variable local(ones({2}), {.name = "local"});
  ClusterCoordinator coordinator(strategy);
  const auto read = function([&](const Tensor& x) { return local.value() + x; }, {.name = "read"});
  expect_error<FailedPreconditionError>([&] { coordinator.schedule(read, ones({2})); },
                                        "[read] uses variable 'local'");
  expect_error<InvalidArgumentError>(
      [] { ClusterCoordinator(distribute::MirroredStrategy()); },
      "Only ParameterServerStrategy is supported to work with ClusterCoordinator currently.");
  expect_error<FailedPreconditionError>([] { RemoteValue().fetch(); }, "empty value");
}

TEST_F(ParameterServers, ACallGetsTheValueOfItsWorker) {
  LocalCluster cluster(1, 2);
  const ParameterServerStrategy strategy = cluster.strategy();
  const auto scope = strategy.scope();
  ClusterCoordinator coordinator(strategy);
  const auto values_from = [&](float first) {
    return coordinator.create_per_worker_values(
        [first](int worker) { return constant(first + static_cast<float>(worker)); });
  };
  const distribute::PerWorkerValues ones = values_from(1), tens = values_from(10);
  EXPECT_EQ(tens.value(1).item<float>(), 11);
  const auto step =
      function([](const Tensor& a, const Tensor& b, const Tensor& c, const Tensor& d) {
        return stack({a, b, c, d});
      });
  // The second worker is away, then the first.
  for (const int worker : {0, 1}) {
    cluster.stop_worker(static_cast<std::size_t>(1 - worker));
    const auto w = static_cast<float>(worker);
    for (int i = 0; i < 3; ++i)
      EXPECT_EQ(values(coordinator.schedule(step, tens, constant(5.f), ones, tens).fetch()),
                (std::vector<float>{10 + w, 5, 1 + w, 10 + w}));
    cluster.start_worker(static_cast<std::size_t>(1 - worker));
  }
  expect_error<InvalidArgumentError>(
      [&] { coordinator.create_per_worker_values([](int worker) { return zeros({worker + 1}); }); },
      "expected a value of shape (1,) and dtype float32 for worker 1, as for worker 0, got (2,)");
  expect_error<OutOfRangeError>([&] { tens.value(2); }, "expected a worker below 2, got 2");
  expect_error<FailedPreconditionError>(
      [&] { coordinator.schedule(step, distribute::PerWorkerValues(), ones, ones, ones); },
      "create_per_worker_values(), got an empty value");
}

TEST_F(ParameterServers, WorkersTakeElementsOfTheirOwnDatasets) {
  LocalCluster cluster(1, 2);
  const ParameterServerStrategy strategy = cluster.strategy();
  const auto scope = strategy.scope();
  ClusterCoordinator coordinator(strategy);
  Variable sum(zeros({}));
  const auto numbers = [](const distribute::InputContext& context) {
    EXPECT_EQ(context.num_input_pipelines, 1);
    std::vector<float> values(1000);
    std::iota(values.begin(), values.end(), 1.0f);
    return data::Dataset::from_tensor_slices({constant(values)});
  };
  const distribute::PerWorkerDataset data = coordinator.create_per_worker_dataset(numbers);
  ASSERT_EQ(data.element_spec().size(), 1u);
  const auto step = function([&](data::Iterator& elements) {
    const Tensor value = elements.next()[0];
    sum.assign_add(value);
    return value;
  });
  std::vector<RemoteValue> results;
  for (int i = 0; i < 50; ++i) {
    results.push_back(coordinator.schedule(step, data));
    if (i == 20) cluster.stop_worker(0);
    if (i == 25) cluster.start_worker(0);
  }
  coordinator.join();
  // Each worker has counted from 1 without leaving a number out.
  std::map<float, int> times;
  float total = 0;
  for (const RemoteValue& result : results) {
    const float value = result.fetch().item<float>();
    ++times[value];
    total += value;
  }
  float expected = 1;
  for (const auto& [value, count] : times) {
    EXPECT_EQ(value, expected++);
    EXPECT_LE(count, 2);
  }
  EXPECT_EQ(sum.value().item<float>(), total);
  const data::Iterator local = data::Dataset::from_tensor_slices({ones({3})}).iterate();
  const auto cast_step = function([](data::Iterator& elements) { return elements.next()[0]; });
  expect_error<InvalidArgumentError>([&] { coordinator.schedule(cast_step, local); },
                                     "create_per_worker_dataset()");
}

TEST_F(ParameterServers, TakeTensorFlowsForms) {
  const LocalCluster cluster(1, 1);
  const ParameterServerStrategy strategy = cluster.strategy();
  const distribute::MirroredStrategy other({.devices = {"/cpu:0"}});
  const auto foreign =
      other.experimental_distribute_dataset(data::Dataset::from_tensor_slices({ones({2})}));
  const auto scope = strategy.scope();
  ClusterCoordinator coordinator(strategy);
  const auto make = [] { return data::Dataset::from_tensor_slices({constant({1.0, 2.0})}); };
  const distribute::PerWorkerDataset data = coordinator.create_per_worker_dataset(make);
  Variable sum(zeros({}));
  const auto step = function([&](data::Iterator& elements) {
    const Tensor value = elements.next()[0];
    sum.assign_add(value);
    return value;
  });
  EXPECT_EQ(coordinator.schedule(step, {data}).fetch().item<float>(), 1.0f);
  EXPECT_EQ(coordinator.schedule(step, {data}).fetch().item<float>(), 2.0f);
  coordinator.join();
  EXPECT_EQ(sum.value().item<float>(), 3.0f);
  const auto distributed = [&] {
    return strategy.distribute_datasets_from_function([&](const distribute::InputContext& context) {
      EXPECT_EQ(context.num_input_pipelines, 1);
      return make();
    });
  };
  const auto iterator = coordinator.create_per_worker_dataset(distributed).iterator();
  EXPECT_EQ(coordinator.schedule(step, {iterator}).fetch().item<float>(), 1.0f);
  EXPECT_EQ(coordinator.schedule(step, {iterator.begin()}).fetch().item<float>(), 2.0f);
  EXPECT_THROW(coordinator.create_per_worker_dataset(foreign), InvalidArgumentError);
}

// --- fit, evaluate, predict ---

struct Data {
  Tensor x, y;
};

Data make_data() {
  random::set_seed(11);
  const Tensor x = random::normal({96, 4});
  return {x, reduce_sum(x, {.axis = {1}, .keepdims = true})};
}

Sequential make_model() {
  random::set_seed(5);
  Sequential model(
      {layers::Dense(16, {.activation = "relu", .input_shape = Shape{4}}), layers::Dense(1)});
  model.compile(
      {.optimizer = optimizers::Adam({.learning_rate = 0.02}), .loss = "mse", .metrics = {"mae"}});
  return model;
}

TEST_F(ParameterServers, FitLearnsAndEvaluateAndPredictAreExact) {
  LocalCluster cluster(2, 3);
  const ParameterServerStrategy strategy = cluster.strategy();
  const Data data = make_data();
  Sequential model;
  {
    const auto scope = strategy.scope();
    model = make_model();
  }
  const History history = model.fit(data.x, data.y, {.epochs = 25, .batch_size = 16, .verbose = 0});
  EXPECT_LT(history.history.at("loss").back(), 0.2 * history.history.at("loss").front());
  cluster.stop_worker(1);
  const auto evaluated = model.evaluate(data.x, data.y, {.batch_size = 10, .verbose = 0});
  const Tensor predicted = model.predict(data.x, {.batch_size = 7, .verbose = 0});
  const Tensor errors = predicted - data.y;
  EXPECT_NEAR(evaluated.at("loss"), reduce_mean(square(errors)).item<float>(), 1e-6);
  EXPECT_NEAR(evaluated.at("mae"), reduce_mean(abs(errors)).item<float>(), 1e-6);
}

// The error of a batch is thrown by the loop that runs it, and by no later one.
TEST_F(ParameterServers, AFailedEvaluationLeavesNoError) {
  const LocalCluster cluster(1, 2);
  const ParameterServerStrategy strategy = cluster.strategy();
  Sequential model;
  {
    const auto scope = strategy.scope();
    model = Sequential(
        {layers::Embedding(4, 3, {.input_shape = {2}}), layers::Flatten(), layers::Dense(1)});
    model.compile({.optimizer = "sgd", .loss = "mse"});
  }
  const Tensor ids = constant(std::vector<std::int32_t>(24, 1)).reshape({12, 2});
  const Tensor bad = ids + 8, targets = ones({12, 1});
  expect_error<InvalidArgumentError>([&] { model.evaluate(bad, targets, {.batch_size = 2}); },
                                     "[0, 4), got 9");
  EXPECT_GT(model.evaluate(ids, targets, {.batch_size = 2}).at("loss"), 0.0);
  expect_error<InvalidArgumentError>([&] { model.predict(bad, {.batch_size = 2}); },
                                     "[0, 4), got 9");
  EXPECT_EQ(model.fit(ids, targets, {.epochs = 1, .verbose = 0}).epoch.size(), 1u);
}

}  // namespace
}  // namespace tandem::ps::strategy_test
