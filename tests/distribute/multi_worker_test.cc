// Training over several processes equals training in one.
#include "distribute/multi_worker_training.h"
#include "support/files.h"
#include "support/gpus.h"

namespace tandem::multi_worker_test {
namespace {

using distribute::MultiWorkerMirroredStrategy;
using distribute::PerReplica;
using distribute::Strategy;
using testing::batches;
using testing::Config;
using testing::expect_near;
using testing::kSteps;
using testing::make_model;
using testing::numbers_of;
using testing::random_tensor;
using testing::run_workers;
using testing::text_of;
using testing::train;
using testing::train_alone;
using testing::train_in;
using testing::values_of;

void expect_equals_one_process(const Config& config) {
  const std::vector<double> expected = train_alone(config);
  ASSERT_GT(expected.size(), 100u);
  for (int workers : {1, 2, 3, 4}) {
    const std::vector<std::string> results = train_in(workers, config);
    for (const std::string& result : results) EXPECT_EQ(result, results[0]) << workers;
    expect_near(results[0], expected, std::to_string(workers) + " workers");
  }
}

TEST(MultiWorker, FitEqualsOneProcess) { expect_equals_one_process({}); }
TEST(MultiWorker, FitEqualsOneProcessEagerly) { expect_equals_one_process({.run_eagerly = true}); }

TEST(MultiWorker, SeveralReplicasPerWorkerEqualOneProcess) {
  for (bool eagerly : {false, true}) {
    const Config config{.run_eagerly = eagerly};
    const std::vector<double> expected = train_alone(config);
    const auto with_two_gpus = [&](int worker) {
      testing::use_gpus(2, 256);
      random::set_seed(static_cast<std::uint64_t>(worker));
      const MultiWorkerMirroredStrategy strategy({.timeout = testing::kFarAway});
      EXPECT_EQ(strategy.num_replicas_in_sync(), 4);
      EXPECT_EQ(strategy.num_local_replicas(), 2);
      return train(strategy, config);
    };
    const auto results = run_workers(2, with_two_gpus), again = run_workers(2, with_two_gpus);
    EXPECT_EQ(results[0], results[1]);
    EXPECT_EQ(results, again);
    expect_near(results[0], expected, "2 workers of 2 replicas");
  }
}

// A class with a step of its own.
class OwnModel : public Model {
 public:
  Tensor call(const Tensor& x) override { return logits(hidden(x)); }
  StepResults train_step(const Tensor& x, const Tensor& y) override {
    GradientTape tape;
    const Tensor y_pred = (*this)(x, true);
    const Tensor loss = compute_loss(x, y, y_pred);
    optimizer().apply_gradients(tape.gradient(loss, trainable_variables()), trainable_variables());
    StepResults results = compute_metrics(x, y, y_pred);
    results["first"] = reduce_mean(x);
    return results;
  }
  layers::Dense hidden{16, {.activation = "relu"}}, logits{3};
};

template <class M>
std::string outcome_of(M& model, const data::Dataset& data) {
  std::vector<double> numbers;
  const History history = model.fit(data, {.epochs = 4, .validation_data = data, .verbose = 0});
  for (const auto& [name, values] : history.history)
    numbers.insert(numbers.end(), values.begin(), values.end());
  const std::vector<Tensor> outputs = model.predict(data);
  for (const Tensor& output : outputs)
    for (double value : values_of(output)) numbers.push_back(value);
  for (const Variable& variable : model.variables())
    for (double value : values_of(variable.value())) numbers.push_back(value);
  return text_of(numbers);
}

std::string train_own_model(const Strategy& strategy) {
  const auto scope = strategy.scope();
  OwnModel model;
  model.build({-1, 6});
  model.compile({.optimizer = optimizers::SGD({.learning_rate = 0.1, .momentum = 0.9}),
                 .loss = losses::SparseCategoricalCrossentropy({.from_logits = true}),
                 .metrics = {"accuracy"}});
  return outcome_of(model, batches());
}

std::string train_two_outputs(const Strategy& strategy) {
  const auto scope = strategy.scope();
  const SymbolicInput x = Input({6});
  const SymbolicInput hidden = layers::Dense(16, {.activation = "relu"})(x);
  Model model(
      x, {layers::Dense(3, {.name = "class"})(hidden), layers::Dense(6, {.name = "same"})(hidden)});
  model.compile({.optimizer = optimizers::SGD({.learning_rate = 0.1, .momentum = 0.9}),
                 .loss = {losses::SparseCategoricalCrossentropy({.from_logits = true}), "mse"},
                 .loss_weights = {1.0, 0.3},
                 .metrics = {{"class", {"accuracy"}}, {"same", {"mae"}}}});
  const auto with_two_targets = [](const data::Example& batch) {
    return data::Example{batch[0], batch[1], batch[0]};
  };
  return outcome_of(model, batches().map(with_two_targets));
}

TEST(MultiWorker, OwnStepsAndSeveralOutputsEqualOneProcess) {
  for (const auto& training : {&train_own_model, &train_two_outputs}) {
    testing::ChildProcess alone([&] {
      random::set_seed(0);
      return training(distribute::OneDeviceStrategy("/cpu:0"));
    });
    const std::vector<double> expected = numbers_of(alone.result());
    ASSERT_GT(expected.size(), 100u);
    for (int workers : {1, 3}) {
      const auto results = run_workers(workers, [&](int index) {
        random::set_seed(static_cast<std::uint64_t>(index));
        return training(MultiWorkerMirroredStrategy({.timeout = testing::kFarAway}));
      });
      for (const std::string& result : results) EXPECT_EQ(result, results[0]);
      expect_near(results[0], expected, std::to_string(workers) + " workers");
    }
  }
}

// --- custom training loops ---

// Returns the losses of 50 steps, and the weights.
std::string train_by_hand(const Strategy& strategy, bool traced) {
  Sequential model;
  optimizers::Optimizer optimizer;
  metrics::Metric accuracy;
  {
    const auto scope = strategy.scope();
    model = Sequential({layers::Dense(16, {.activation = "relu", .input_shape = {6}}),
                        layers::Dropout(0.25), layers::Dense(3)});
    optimizer = optimizers::Adam({.learning_rate = 0.01});
    accuracy = metrics::SparseCategoricalAccuracy();
  }
  random::set_seed(77);
  const auto replica_step = [&](const data::Example& batch) {
    GradientTape tape;
    const Tensor logits = model(batch[0], {.training = true});
    const Tensor loss =
        nn::compute_average_loss(nn::sparse_softmax_cross_entropy(batch[1], logits));
    optimizer.apply_gradients(tape.gradient(loss, model.trainable_variables()),
                              model.trainable_variables());
    if (!traced) accuracy.update(batch[1], logits);
    return loss;
  };
  const auto step = [&](const PerReplica<data::Example>& batch) {
    return strategy.reduce(ReduceOp::kSum, strategy.run(replica_step, batch));
  };
  const auto replayed = function(step);
  std::vector<double> numbers;
  for (const auto& batch : strategy.experimental_distribute_dataset(batches().repeat())) {
    numbers.push_back((traced ? replayed(batch) : step(batch)).item<float>());
    if (numbers.size() == kSteps) break;
  }
  numbers.push_back(accuracy.result());
  for (const Variable& variable : model.variables())
    for (double value : values_of(variable.value())) numbers.push_back(value);
  return text_of(numbers);
}

TEST(MultiWorker, CustomLoopsEqualOneProcess) {
  for (bool traced : {false, true}) {
    testing::ChildProcess alone([&] {
      random::set_seed(0);
      return train_by_hand(distribute::OneDeviceStrategy("/cpu:0"), traced);
    });
    const std::vector<double> expected = numbers_of(alone.result());
    ASSERT_GT(expected.size(), 50u);
    for (int workers : {2, 4}) {
      const auto results = run_workers(workers, [&](int index) {
        random::set_seed(static_cast<std::uint64_t>(index));
        return train_by_hand(MultiWorkerMirroredStrategy({.timeout = testing::kFarAway}), traced);
      });
      for (const std::string& result : results) EXPECT_EQ(result, results[0]);
      expect_near(results[0], expected, traced ? "traced" : "eager");
    }
  }
}

// reduce() and gather() with one example for three workers, so that two of them are padding
// replicas.
TEST(MultiWorker, ReduceAndGatherOnlyCountReplicasWithExamples) {
  const auto results = run_workers(3, [](int) {
    const MultiWorkerMirroredStrategy strategy(
        {.timeout = testing::kFarAway, .devices = {"/cpu:0"}});
    std::vector<double> numbers;
    const Tensor rows = constant({{1.0, 2.0}, {3.0, 4.0}, {5.0, 6.0}, {-7.0, 8.0}});
    for (std::int64_t count : {4, 1}) {
      const auto data = data::Dataset::from_tensor_slices({slice_rows(rows, 0, count)}).batch(4);
      for (const auto& batch : strategy.experimental_distribute_dataset(data)) {
        const auto parts = strategy.run([](const data::Example& part) { return part[0]; }, batch);
        const auto sums =
            strategy.run([](const data::Example& part) { return reduce_sum(part[0]); }, batch);
        for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMean, ReduceOp::kMin, ReduceOp::kMax,
                                  ReduceOp::kProduct}) {
          numbers.push_back(strategy.reduce(op, sums).item<float>());
          for (double value : values_of(strategy.reduce(op, parts, 0))) numbers.push_back(value);
        }
        for (double value : values_of(strategy.gather(parts, 0))) numbers.push_back(value);
      }
    }
    return text_of(numbers);
  });
  for (const std::string& result : results) EXPECT_EQ(result, results[0]);
  // Of 4 rows the workers get 2, 1 and 1: sums of 10, 11 and 1.
  const std::vector<double> four = {22,  2,    20,  22.0 / 3, 0.5, 5, 1, -7, 2, 11, 5, 8,
                                    110, -105, 384, 1,        2,   3, 4, 5,  6, -7, 8};
  const std::vector<double> one = {3, 1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 2, 1, 2};
  std::vector<double> expected = four;
  expected.insert(expected.end(), one.begin(), one.end());
  expect_near(results[0], expected, "reduce and gather");
}

std::vector<double> twice(const std::vector<double>& numbers) {
  std::vector<double> result;
  for (double number : numbers) result.push_back(2 * number);
  return result;
}

// The same inside traced functions. They are retraced if the size of any worker's part changes.
TEST(MultiWorker, GathersInTracedFunctions) {
  const std::vector<double> all = {1, 2, 3, 4, 5, 6, -7, 8};
  const auto results = run_workers(3, [](int) {
    const MultiWorkerMirroredStrategy strategy(
        {.timeout = testing::kFarAway, .devices = {"/cpu:0"}});
    const Tensor rows = constant({{1.0, 2.0}, {3.0, 4.0}, {5.0, 6.0}, {-7.0, 8.0}});
    int traces = 0;
    const auto gather = function([&](const PerReplica<data::Example>& batch) {
      ++traces;
      const auto doubled =
          strategy.run([](const data::Example& part) { return part[0] * 2.0; }, batch);
      const auto columns = strategy.run(
          [](const data::Example& part) { return cast(transpose(part[0]), int32); }, batch);
      return std::pair(strategy.gather(doubled, 0), strategy.gather(columns, -1));
    });
    std::vector<double> numbers;
    for (std::int64_t count : {4, 3, 1, 4}) {  // with 1, two workers are padding replicas
      const auto data = data::Dataset::from_tensor_slices({slice_rows(rows, 0, count)}).batch(4);
      for (const auto& batch : strategy.experimental_distribute_dataset(data)) {
        const auto [joined, columns] = gather(batch);
        numbers.push_back(static_cast<double>(columns.dim(1)));
        for (const Tensor& tensor : {joined, transpose(columns)})
          for (double value : values_of(tensor)) numbers.push_back(value);
      }
    }
    numbers.push_back(traces);
    return text_of(numbers);
  });
  std::vector<double> expected;
  for (std::ptrdiff_t count : {4, 3, 1, 4}) {
    const std::vector<double> part(all.begin(), all.begin() + 2 * count);
    expected.push_back(static_cast<double>(count));
    for (double value : twice(part)) expected.push_back(value);
    expected.insert(expected.end(), part.begin(), part.end());
  }
  expected.push_back(3);  // traces
  for (const std::string& result : results) EXPECT_EQ(numbers_of(result), expected) << result;
}

// The size of the first worker's part and the total are equal in both steps; the function is
// retraced nevertheless.
TEST(MultiWorker, GathersWorkersOwnDataInTracedFunctions) {
  constexpr std::int64_t kSizes[2][3] = {{4, 2, 6}, {4, 6, 2}};
  const auto results = run_workers(3, [&](int worker) {
    const MultiWorkerMirroredStrategy strategy(
        {.timeout = testing::kFarAway, .devices = {"/cpu:0"}});
    const auto gather = function([&](const PerReplica<data::Example>& batch) {
      return strategy.gather(
          strategy.run([](const data::Example& part) { return part[0] + 0.0; }, batch), 0);
    });
    std::vector<double> numbers;
    for (int round = 0; round < 4; ++round) {
      const std::int64_t size = kSizes[round % 2][worker];
      const auto data = data::Dataset::from_tensor_slices({full({size}, 10.0 * round + worker)})
                            .batch(size)
                            .with_auto_shard(data::AutoShardPolicy::kOff);
      for (const auto& batch : strategy.experimental_distribute_dataset(data))
        for (double value : values_of(gather(batch))) numbers.push_back(value);
    }
    return text_of(numbers);
  });
  std::vector<double> expected;
  for (int round = 0; round < 4; ++round)
    for (int worker = 0; worker < 3; ++worker)
      expected.insert(expected.end(), static_cast<std::size_t>(kSizes[round % 2][worker]),
                      10.0 * round + worker);
  for (const std::string& result : results) EXPECT_EQ(numbers_of(result), expected) << result;
}

TEST(MultiWorker, GathersThatCannotBeTracedThrow) {
  const auto gathering = [](const InputSpec* spec, std::int64_t rows_of_second) {
    return run_workers(2, [=](int worker) {
      const MultiWorkerMirroredStrategy strategy(
          {.timeout = testing::kFarAway, .devices = {"/cpu:0"}});
      FunctionOptions options;
      if (spec) options.input_signature = {*spec};
      const auto gather = function(
          [&](const Tensor& x) {
            return strategy.gather(PerReplica<Tensor>(std::vector<Tensor>{x}), 0);
          },
          options);
      gather(ones({2, 3}));
      return std::to_string(gather(ones({worker == 1 ? rows_of_second : 2, 3})).dim(0));
    });
  };
  for (const std::string& text : gathering(nullptr, 2)) EXPECT_EQ(text, "4");
  // One worker calls with a different size.
  for (const std::string& text : gathering(nullptr, 5)) {
    // A worker that calls after the mismatch was detected gets AbortedError.
    EXPECT_TRUE(text.starts_with("InvalidArgumentError: ") || text.starts_with("AbortedError: "))
        << text;
    EXPECT_NE(text.find("ranks diverged"), std::string::npos) << text;
  }
  const InputSpec any_rows{.shape = {-1, 3}};
  for (const std::string& text : gathering(&any_rows, 2))
    EXPECT_TRUE(
        text.starts_with("UnimplementedError: [gather] expected values of known sizes in a "
                         "function traced on several workers"))
        << text;
}

TEST(MultiWorker, TwoRunsGiveTheSameBits) {
  for (bool eagerly : {false, true}) {
    const Config config{.run_eagerly = eagerly, .moments = true};
    const auto first = train_in(3, config), second = train_in(3, config);
    EXPECT_EQ(first, second);
    EXPECT_GT(numbers_of(first[0]).size(), 100u) << first[0];
  }
}

// --- input ---

// Worker w reads every n-th batch of 4, from the w-th on, as from its own files. Together the
// workers' steps are the global batches; at the end some workers have no batch left.
TEST(MultiWorker, WorkersMayHaveTheirOwnData) {
  const auto train_on = [](const Strategy& strategy, const data::Dataset& data) {
    random::set_seed(0);
    Sequential model;
    {
      const auto scope = strategy.scope();
      model = Sequential({layers::Dense(8, {.activation = "tanh", .input_shape = {6}}),
                          layers::Dropout(0.3), layers::Dense(3)});
      model.compile({.optimizer = optimizers::SGD({.learning_rate = 0.1}),
                     .loss = losses::SparseCategoricalCrossentropy({.from_logits = true}),
                     .metrics = {"accuracy"}});
    }
    const History history = model.fit(data, {.epochs = 5, .verbose = 0});
    std::vector<double> numbers = history.at("loss");
    for (double accuracy : history.at("accuracy")) numbers.push_back(accuracy);
    for (const auto& [name, value] : model.evaluate(data)) numbers.push_back(value);
    for (const Variable& variable : model.variables())
      for (double value : values_of(variable.value())) numbers.push_back(value);
    return text_of(numbers);
  };
  const auto in_batches = [](std::int64_t size) {
    std::vector<std::int32_t> labels;
    for (int i = 0; i < 20; ++i) labels.push_back(i * 7 % 3);
    return data::Dataset::from_tensor_slices(
               {random_tensor({20, 6}, 3, -1.0, 1.0, float32), constant(labels)})
        .batch(size);
  };
  testing::ChildProcess alone([&] {
    return train_on(distribute::DefaultStrategy(), in_batches(12));  // 12, 8
  });
  const std::vector<double> expected = numbers_of(alone.result());
  ASSERT_GT(expected.size(), 50u);
  const auto results = run_workers(3, [&](int worker) {
    return train_on(MultiWorkerMirroredStrategy({.timeout = testing::kFarAway}),
                    in_batches(4).shard(3, worker).with_auto_shard(
                        data::AutoShardPolicy::kOff));  // 4, 4 and 4; 4, 4 and none
  });
  for (const std::string& result : results) EXPECT_EQ(result, results[0]);
  expect_near(results[0], expected, "data of their own");
}

TEST(MultiWorker, OtherDataOnOneWorkerIsRefused) {
  const auto results = run_workers(2, [](int worker) {
    const MultiWorkerMirroredStrategy strategy({.timeout = testing::kFarAway});
    Sequential model = make_model(strategy);
    random::set_seed(static_cast<std::uint64_t>(worker));
    const auto shuffled = batches().shuffle(10);
    model.fit(shuffled, {.verbose = 0});
    return std::string("trained");
  });
  for (const std::string& result : results) {
    EXPECT_NE(result.find("the data of worker 1 differs from that of worker 0"), std::string::npos)
        << result;
    EXPECT_NE(result.find("Shuffle with the same seed"), std::string::npos) << result;
  }
}

TEST(MultiWorker, LessDataOnOneWorkerIsRefused) {
  const auto results = run_workers(2, [](int worker) {
    const MultiWorkerMirroredStrategy strategy({.timeout = testing::kFarAway});
    Sequential model = make_model(strategy);
    model.fit(batches().take(worker == 1 ? 4 : 5), {.verbose = 0});
    return std::string("trained");
  });
  for (const std::string& result : results) {
    EXPECT_NE(result.find("the data of worker 1 differs from that of worker 0"), std::string::npos)
        << result;
    EXPECT_NE(result.find("is one of 4: float32"), std::string::npos) << result;
    EXPECT_NE(result.find("it is one of 5: float32"), std::string::npos) << result;
  }
}

TEST(MultiWorker, AWorkerThatEvaluatesWhileOthersTrainIsNamed) {
  const auto results = run_workers(2, [](int worker) {
    const MultiWorkerMirroredStrategy strategy({.timeout = testing::kFarAway});
    Sequential model = make_model(strategy);
    if (worker == 1)
      model.evaluate(batches(), {.verbose = 0});
    else
      model.fit(batches(), {.verbose = 0});
    return std::string("trained");
  });
  for (const std::string& result : results)
    EXPECT_NE(result.find("expected the same calls on every worker: worker 0 is at 'start of fit', "
                          "worker 1 at 'first batch'"),
              std::string::npos)
        << result;
}

TEST(MultiWorker, OtherEpochsOnOneWorkerAreRefused) {
  const auto results = run_workers(2, [](int worker) {
    const MultiWorkerMirroredStrategy strategy({.timeout = testing::kFarAway});
    Sequential model = make_model(strategy);
    model.fit(batches(), {.epochs = worker + 1, .verbose = 0});
    return std::string("trained");
  });
  for (const std::string& result : results)
    EXPECT_NE(result.find("worker 0: 0 to 1 epochs"), std::string::npos) << result;
}

TEST(MultiWorker, MayShareTheJobOfAProcessGroup) {
  const testing::TemporaryDirectory directory;
  std::vector<testing::ChildProcess> ranks;
  for (int rank = 0; rank < 2; ++rank)
    ranks.emplace_back([&directory, rank] {
      unsetenv("TF_CONFIG");
      comm::init_process_group({.init_method = "file://" + (directory / "job").string(),
                                .timeout = testing::kFarAway,
                                .world_size = 2,
                                .rank = rank});
      double sum = 0;
      {
        const MultiWorkerMirroredStrategy strategy({.devices = {"/cpu:0"}});
        const auto ones = strategy.run([] { return tandem::ones({}); });
        sum = strategy.reduce(ReduceOp::kSum, ones).item<float>();
      }
      sum += comm::all_reduce(tandem::ones({})).item<float>();  // the group is still usable
      comm::destroy_process_group();
      return std::to_string(sum);
    });
  for (testing::ChildProcess& rank : ranks) EXPECT_EQ(rank.result(), std::to_string(4.0));
}

TEST(MultiWorker, WithOneWorkerItIsMirrored) {
  testing::ChildProcess process([] {
    setenv("TF_CONFIG",
           R"({"cluster":{"worker":["a:1"],"evaluator":["b:1"]},)"
           R"("task":{"type":"evaluator","index":0}})",
           1);
    const MultiWorkerMirroredStrategy strategy;
    return strategy.task_type() + " " + std::to_string(strategy.num_workers()) + " " +
           std::to_string(strategy.is_chief());
  });
  EXPECT_EQ(process.result(), "evaluator 1 1");
}

// --- state that differs between replicas ---

TEST(MultiWorker, OnReadVariablesAreReadByAllAndMirroredOnesWrittenByAll) {
  const auto results = run_workers(2, [](int worker) {
    const MultiWorkerMirroredStrategy strategy(
        {.timeout = testing::kFarAway, .devices = {"/cpu:0"}});
    Variable mean, sum, mirrored;
    {
      const auto scope = strategy.scope();
      mean = Variable(zeros({}), {.trainable = false,
                                  .name = "mean",
                                  .synchronization = VariableSynchronization::kOnRead,
                                  .aggregation = VariableAggregation::kMean});
      sum = Variable(zeros({}), {.trainable = false,
                                 .name = "sum",
                                 .synchronization = VariableSynchronization::kOnRead,
                                 .aggregation = VariableAggregation::kSum});
      mirrored = Variable(full({}, worker + 10.0),
                          {.name = "mirrored", .aggregation = VariableAggregation::kMean});
    }
    std::vector<double> numbers = {mirrored.value().item<float>()};  // the chief's: 10
    strategy.run([&] {
      const double own = distribute::replica_id_in_sync_group() + 1.0;
      mean.assign(full({}, own));
      sum.assign(full({}, own));
      mirrored.assign(full({}, own));
    });
    for (const Variable& variable : {mean, sum, mirrored})
      numbers.push_back(variable.value().item<float>());
    sum.assign(full({}, 8.0));
    numbers.push_back(sum.value().item<float>());
    return text_of(numbers);
  });
  EXPECT_EQ(numbers_of(results[0]), (std::vector<double>{10, 1.5, 3, 1.5, 8}));
  EXPECT_EQ(results[1], results[0]);
}

TEST(MultiWorker, EveryWorkerMaySave) {
  const testing::TemporaryDirectory directory;
  const auto results = run_workers(2, [&](int) {
    const MultiWorkerMirroredStrategy strategy({.timeout = testing::kFarAway});
    Sequential model = make_model(strategy, {.moments = true});
    model.fit(batches(), {.verbose = 0,
                          .callbacks = {callbacks::ModelCheckpoint(directory / "w{epoch}"),
                                        callbacks::CSVLogger(directory / "log.csv")}});
    model.save_weights(directory / "last");
    std::vector<double> numbers;
    for (const Variable& variable : model.variables())
      for (double value : values_of(variable.value())) numbers.push_back(value);
    return text_of(numbers);
  });
  EXPECT_EQ(results[0], results[1]);
  testing::ChildProcess reader([&] {
    Sequential model = make_model(distribute::DefaultStrategy(), {.moments = true});
    model.load_weights(directory / "last");
    std::vector<double> numbers;
    for (const Variable& variable : model.variables())
      for (double value : values_of(variable.value())) numbers.push_back(value);
    return text_of(numbers);
  });
  EXPECT_EQ(reader.result(), results[0]);
  EXPECT_EQ(directory.count_files(), 3u);
}

TEST(MultiWorker, KnowsItsCluster) {
  unsetenv("TF_CONFIG");
  const distribute::ClusterResolver alone = MultiWorkerMirroredStrategy().cluster_resolver();
  EXPECT_EQ(alone.task_type(), "worker");
  EXPECT_TRUE(alone.cluster_spec().empty());
  setenv("TF_CONFIG", R"({"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": 0}})",
         1);
  const MultiWorkerMirroredStrategy strategy({.communication_options = {}});
  EXPECT_EQ(strategy.cluster_resolver().cluster_spec().at("worker").front(), "a:1");
  EXPECT_EQ(strategy.cluster_resolver().task_id(), 0);
  unsetenv("TF_CONFIG");
}

}  // namespace
}  // namespace tandem::multi_worker_test
