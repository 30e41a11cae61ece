// train_and_evaluate(): in one process, in the tasks of a cluster, from a stand-alone client.
#include "tandem/estimator.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <cstdlib>

#include "estimator/model_directory.h"
#include "rpc/grpc/grpc_transport.h"
#include "support/expects.h"
#include "support/files.h"
#include "support/forked_ranks.h"
#include "support/tensors.h"
#include "support/waiting.h"
#include "tandem/checkpoint.h"
#include "tandem/comm.h"
#include "tandem/config.h"
#include "tandem/parallel.h"
#include "tandem/parameter_server.h"
#include "tandem/random.h"

namespace tandem::train_and_evaluate_test {
namespace {

using estimator::Estimator;
using estimator::EstimatorOptions;
using estimator::EvalSpec;
using estimator::Evaluation;
using estimator::train_and_evaluate;
using estimator::TrainSpec;
using testing::expect_error;
using testing::read_file;
using testing::TemporaryDirectory;
using testing::values_of;
using testing::write_file;

Model compiled(Sequential model) {
  model.compile({.optimizer = optimizers::SGD({.learning_rate = 0.05, .momentum = 0.9}),
                 .loss = losses::SparseCategoricalCrossentropy({.from_logits = true}),
                 .metrics = {"accuracy"}});
  return model;
}
Model make_model() {
  random::set_seed(3);
  return compiled(Sequential({layers::Dense(8, {.activation = "relu", .input_shape = {4}}),
                              layers::BatchNormalization(), layers::Dense(3)}));
}
// A loss that does not depend on how a batch is split.
Model make_plain_model() {
  random::set_seed(3);
  return compiled(
      Sequential({layers::Dense(8, {.activation = "relu", .input_shape = {4}}), layers::Dense(3)}));
}

data::Dataset examples(std::int64_t count, std::uint32_t seed) {
  const Tensor x = testing::random_tensor({count, 4}, seed, -1.0, 1.0, float32);
  std::vector<std::int32_t> labels;
  for (std::int64_t i = 0; i < count; ++i) labels.push_back(static_cast<std::int32_t>(i % 3));
  return data::Dataset::from_tensor_slices({x, constant(labels)});
}

// 7 examples in the last of 5 batches.
data::Dataset training_data() {
  return examples(71, 5).shuffle(71, {.seed = 2}).batch(16).repeat();
}
data::Dataset test_data() { return examples(50, 6).batch(20); }

EstimatorOptions options_in(const TemporaryDirectory& folder, const std::string& name) {
  return {.model_fn = make_model,
          .model_dir = folder / name,
          .save_checkpoints_steps = 4,
          .evaluator_timeout = testing::kFarAway};
}
TrainSpec until(std::int64_t steps) { return {.input_fn = training_data, .max_steps = steps}; }
const EvalSpec kEvaluate = {.input_fn = test_data};

std::map<std::string, std::vector<double>> weights_in(const std::filesystem::path& path) {
  std::map<std::string, std::vector<double>> weights;
  for (const auto& [name, tensor] : load_safetensors(path).tensors)
    weights[name] = values_of(tensor);
  return weights;
}

std::size_t lines_of(const std::filesystem::path& path) {
  const std::string text = read_file(path);
  return static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
}

void expect_close(const Evaluation& a, const Evaluation& b) {
  EXPECT_EQ(a.global_step, b.global_step);
  for (const char* name : {"loss", "accuracy"})
    EXPECT_NEAR(a.metrics.at(name), b.metrics.at(name), 1e-5) << name;
}

TEST(TrainAndEvaluate, InOneProcess) {
  const TemporaryDirectory folder;
  EstimatorOptions options = options_in(folder, "run");
  options.keep_checkpoint_max = 2;
  const auto last = train_and_evaluate(Estimator(options), until(10), kEvaluate);
  ASSERT_TRUE(last);
  EXPECT_EQ(last->global_step, 10);
  EXPECT_EQ(lines_of(folder / "run" / "eval" / "evaluations.jsonl"), 3u);  // steps 4, 8, 10
  EXPECT_FALSE(std::filesystem::exists(folder / "run" / "model-4.safetensors"));
  EXPECT_TRUE(std::filesystem::exists(folder / "run" / "model-8.safetensors"));

  // The weights after training without evaluations.
  Model model = make_model();
  model.fit(training_data(), {.epochs = 1, .steps_per_epoch = 10, .verbose = 0});
  const auto saved = weights_in(folder / "run" / "model-10.safetensors");
  for (const Variable& variable : model.variables())
    EXPECT_EQ(saved.at(variable.name()), values_of(variable)) << variable.name();
  EXPECT_EQ(model.evaluate(test_data()), last->metrics);
}

TEST(TrainAndEvaluate, ResumesWhereItStopped) {
  const TemporaryDirectory folder;
  const Estimator whole(options_in(folder, "whole")), parts(options_in(folder, "parts"));
  // Killed after its sixth step, so that the checkpoint is of step 4.
  const auto codes = run_processes(1, [&](int) {
    int batches = 0;
    EstimatorOptions options = options_in(folder, "parts");
    const TrainSpec dying = {.input_fn =
                                 [&] {
                                   return training_data().map([&](const data::Example& example) {
                                     if (++batches == 7) _exit(9);
                                     return example;
                                   });
                                 },
                             .max_steps = 10};
    train_and_evaluate(Estimator(options), dying, kEvaluate);
  });
  EXPECT_EQ(codes, ExitCodes{9});
  const auto expected = train_and_evaluate(whole, until(10), kEvaluate);
  const auto resumed = train_and_evaluate(parts, until(10), kEvaluate);
  EXPECT_EQ(resumed->metrics, expected->metrics);
  EXPECT_EQ(weights_in(folder / "parts" / "model-10.safetensors"),
            weights_in(folder / "whole" / "model-10.safetensors"));

  // Training has ended: a second call does nothing.
  const std::string before = read_file(folder / "parts" / "eval" / "evaluations.jsonl");
  EXPECT_EQ(train_and_evaluate(parts, until(10), kEvaluate)->metrics, expected->metrics);
  EXPECT_EQ(read_file(folder / "parts" / "eval" / "evaluations.jsonl"), before);
  // With larger max_steps, it starts another pass over the data.
  EXPECT_EQ(train_and_evaluate(parts, until(13), kEvaluate)->global_step, 13);
  EXPECT_TRUE(std::filesystem::exists(folder / "parts" / "model-13.safetensors"));
}

TEST(TrainAndEvaluate, EvaluationsSurviveARoundTrip) {
  const TemporaryDirectory folder;
  const estimator::ModelDirectory directory(folder / "run");
  EXPECT_FALSE(directory.last_evaluation(""));
  directory.append("", {.global_step = 3, .metrics = {{"loss", 0.1}}});
  directory.append("", {.global_step = 5, .metrics = {{"loss", std::nan("")}, {"accuracy", 0.5}}});
  directory.append("other", {.global_step = 9, .metrics = {}});
  const auto last = directory.last_evaluation("");
  EXPECT_EQ(last->global_step, 5);
  EXPECT_TRUE(std::isnan(last->metrics.at("loss")));
  EXPECT_EQ(last->metrics.at("accuracy"), 0.5);
  EXPECT_EQ(directory.last_evaluation("other")->global_step, 9);
}

distribute::Strategy workers() {
  return distribute::MultiWorkerMirroredStrategy({.timeout = testing::kFarAway});
}

// Runs train_and_evaluate() in another process, because a client must not start the runtime.
Evaluation alone(const TemporaryDirectory& folder, std::int64_t steps) {
  EstimatorOptions options = options_in(folder, "alone");
  options.model_fn = make_plain_model;
  const Estimator estimator(options);
  const auto codes =
      run_processes(1, [&](int) { train_and_evaluate(estimator, until(steps), kEvaluate); });
  EXPECT_EQ(codes, ExitCodes{0});
  // A second call finds that training has ended, and returns the last evaluation.
  return *train_and_evaluate(estimator, until(steps), kEvaluate);
}

TEST(TrainAndEvaluate, AStandAloneClientStartsTheTasks) {
  const TemporaryDirectory folder;
  const Evaluation expected = alone(folder, 50);
  for (const estimator::ClusterSpec& cluster :
       {estimator::ClusterSpec{.workers = 2, .evaluator = true},
        estimator::ClusterSpec{.workers = 2, .chief = true},
        estimator::ClusterSpec{.workers = 3, .chief = true, .evaluator = true},
        estimator::ClusterSpec{.workers = 1, .evaluator = true}}) {
    const std::string name =
        std::to_string(cluster.workers) + (cluster.chief ? " and a chief" : "");
    EstimatorOptions options = options_in(folder, name);
    options.model_fn = make_plain_model;
    options.train_distribute = workers;
    options.cluster = cluster;
    const auto last = train_and_evaluate(Estimator(options), until(50), kEvaluate);
    ASSERT_TRUE(last);
    expect_close(*last, expected);
  }
}

// The chief trains on parameter servers, and another process evaluates its checkpoints.
TEST(TrainAndEvaluate, ParameterServers) {
  TANDEM_REQUIRE(rpc::has_grpc(), "grpc");
  const TemporaryDirectory folder;
  const double expected = alone(folder, 50).metrics.at("loss");
  for (const bool evaluator : {true, false}) {
    EstimatorOptions options = options_in(folder, evaluator ? "evaluator" : "alone");
    options.model_fn = make_plain_model;
    options.train_distribute = [] {
      return distribute::ParameterServerStrategy(distribute::TFConfigClusterResolver());
    };
    options.cluster = {.workers = 2, .chief = true, .ps = 2, .evaluator = evaluator};
    const auto last = train_and_evaluate(Estimator(options), until(50), kEvaluate);
    ASSERT_TRUE(last);
    EXPECT_EQ(last->global_step, 50);
    // Steps of two workers are not in a fixed order, so the numbers are near.
    EXPECT_NEAR(last->metrics.at("loss"), expected, 0.05);
  }
  EstimatorOptions options = options_in(folder, "refused");
  options.cluster = {.workers = 2, .ps = 1};
  expect_error<InvalidArgumentError>([&] { Estimator{options}; },
                                     "expected a chief and at least one worker");
}

TEST(TrainAndEvaluate, TwoRunsGiveTheSameBits) {
  const TemporaryDirectory folder;
  const auto weights = [&](const std::string& name) {
    return weights_in(folder / name / "model-10.safetensors");
  };
  for (const std::string name : {"first", "second"}) {
    EstimatorOptions options = options_in(folder, name);
    options.train_distribute = workers;
    options.cluster = {.workers = 3, .evaluator = true};
    train_and_evaluate(Estimator(options), until(10), kEvaluate);
  }
  EXPECT_FALSE(weights("first").empty());
  EXPECT_EQ(weights("first"), weights("second"));
}

// Returns `data` that kills task `killed` at its second batch. The evaluator is task 2.
std::function<data::Dataset()> killing(int killed, data::Dataset (*data)()) {
  return [=] {
    const std::string config = std::getenv("TF_CONFIG");
    const auto says = [&](const char* text) { return config.find(text) != std::string::npos; };
    const int task = says(R"("type":"evaluator")") ? 2 : says(R"("index":1)") ? 1 : 0;
    if (task != killed) return data();
    return data().map([batches = std::make_shared<int>(0)](const data::Example& example) {
      if (++*batches == 2) raise(SIGKILL);
      return example;
    });
  };
}

TEST(TrainAndEvaluate, AKilledTaskIsReported) {
  for (int killed : {0, 1, 2}) {
    const TemporaryDirectory folder;
    EstimatorOptions options = options_in(folder, "run");
    options.train_distribute = workers;
    options.cluster = {.workers = 2, .evaluator = true};
    expect_error<parallel::ProcessExitedError>(
        [&] {
          train_and_evaluate(Estimator(options),
                             {.input_fn = killing(killed, training_data), .max_steps = 1'000'000},
                             {.input_fn = killing(killed, test_data)});
        },
        "process " + std::to_string(killed) + " terminated with signal SIGKILL");
  }
}

TEST(TrainAndEvaluate, AFailedTaskIsReported) {
  const TemporaryDirectory folder;
  EstimatorOptions options = options_in(folder, "run");
  options.train_distribute = workers;
  options.cluster = {.workers = 2, .evaluator = true};
  EvalSpec broken = kEvaluate;
  broken.input_fn = []() -> data::Dataset { throw NotFoundError("the test data is not there"); };
  expect_error<parallel::ProcessRaisedError>(
      [&] { train_and_evaluate(Estimator(options), until(1'000'000), broken); },
      "Process 2 terminated with the following error: NotFoundError: the test data is not there");
}

TEST(TrainAndEvaluate, ParameterServersNeedAChief) {
  const TemporaryDirectory folder;
  setenv("TF_CONFIG",
         R"({"cluster": {"worker": ["127.0.0.1:1"], "ps": ["127.0.0.1:2"]},
             "task": {"type": "worker", "index": 0}})",
         1);
  expect_error<InvalidArgumentError>(
      [&] { train_and_evaluate(Estimator(options_in(folder, "run")), until(8), kEvaluate); },
      "a cluster with parameter servers needs a chief");
}

TEST(TrainAndEvaluate, AnEvaluatorTimesOut) {
  const TemporaryDirectory folder;
  setenv("TF_CONFIG",
         R"({"cluster": {"worker": ["127.0.0.1:1"], "evaluator": ["127.0.0.1:2"]},
             "task": {"type": "evaluator", "index": 0}})",
         1);
  EstimatorOptions options = options_in(folder, "run");
  options.evaluator_timeout = std::chrono::milliseconds(300);
  expect_error<DeadlineExceededError>(
      [&] { train_and_evaluate(Estimator(options), until(8), kEvaluate); },
      "for 300 ms; the last one is of step 0, max_steps is 8");
}

TEST(TrainAndEvaluate, RefusesInvalidArguments) {
  const TemporaryDirectory folder;
  const auto rejected = [&](const std::function<void()>& call, const std::string& text) {
    expect_error<InvalidArgumentError>(call, "[train_and_evaluate] " + text);
  };
  rejected([] { Estimator({.model_dir = "x"}); }, "expected a model_fn");
  rejected([] { Estimator({.model_fn = make_model}); }, "expected a model_dir");
  EstimatorOptions options = options_in(folder, "run");
  options.save_checkpoints_steps = 0;
  rejected([&] { Estimator{options}; }, "expected save_checkpoints_steps of at least 1, got 0");
  options = options_in(folder, "run");
  options.cluster = {.workers = 0};
  rejected([&] { Estimator{options}; }, "expected a cluster of at least one chief or worker");
  const Estimator good(options_in(folder, "run"));
  rejected([&] { train_and_evaluate(good, {}, kEvaluate); }, "expected an input_fn in both specs");
  rejected([&] { train_and_evaluate(good, until(0), kEvaluate); },
           "Must specify max_steps > 0, given: 0");
  options.cluster = {.workers = 1, .evaluator = true};
  rejected([&] { train_and_evaluate(Estimator(options), {.input_fn = training_data}, kEvaluate); },
           "a cluster with an evaluator needs max_steps");
  std::filesystem::create_directories(folder / "run");
  write_file(folder / "run" / "checkpoint", "{");
  expect_error<DataLossError>([&] { train_and_evaluate(good, until(8), kEvaluate); },
                              "checkpoint' is damaged");
}

}  // namespace
}  // namespace tandem::train_and_evaluate_test
