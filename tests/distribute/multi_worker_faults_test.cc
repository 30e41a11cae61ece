// Workers that die, fail or never start, and training that resumes afterwards.
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <csignal>
#include <stdexcept>

#include "comm/gloo/gloo_backend.h"
#include "comm/rendezvous/socket.h"
#include "support/expects.h"
#include "support/files.h"
#include "support/tensors.h"
#include "support/waiting.h"
#include "support/workers.h"
#include "tandem/tandem.h"

namespace tandem::multi_worker_faults_test {
namespace {

using callbacks::Callback;
using callbacks::LambdaCallback;
using callbacks::Logs;
using distribute::Communication;
using distribute::MultiWorkerMirroredStrategy;
using distribute::Strategy;
using namespace testing;
using namespace std::chrono_literals;

data::Dataset batches() {
  std::vector<std::int32_t> labels;
  for (int i = 0; i < 34; ++i) labels.push_back(i * 7 % 3);
  return data::Dataset::from_tensor_slices(
             {random_tensor({34, 6}, 3, -1.0, 1.0, float32), constant(labels)})
      .shuffle(34, {.seed = 2})
      .batch(8);
}

// `moments`: adds batch normalisation, whose moments differ between replicas.
Sequential make_model(const Strategy& strategy, bool moments) {
  random::set_seed(4);
  const auto scope = strategy.scope();
  std::vector<Layer> layers = {layers::Dense(16, {.activation = "relu", .input_shape = {6}}),
                               layers::Dropout(0.3), layers::Dense(3)};
  if (moments) layers.insert(layers.begin() + 1, layers::BatchNormalization());
  Sequential model(layers);
  model.compile({.optimizer = optimizers::SGD({.learning_rate = 0.1, .momentum = 0.9}),
                 .loss = losses::SparseCategoricalCrossentropy({.from_logits = true}),
                 .metrics = {"accuracy"}});
  return model;
}

std::string train(int epochs, const std::vector<Callback>& callbacks = {}, bool moments = true,
                  Communication communication = Communication::kAuto) {
  const MultiWorkerMirroredStrategy strategy(
      {.communication_options = {communication}, .timeout = testing::kFarAway});
  Sequential model = make_model(strategy, moments);
  const History history =
      model.fit(batches(), {.epochs = epochs, .verbose = 0, .callbacks = callbacks});
  std::vector<double> numbers;
  for (const auto& [name, values] : history.history)
    numbers.insert(numbers.end(), values.begin(), values.end());
  for (const Variable& variable : model.variables())
    for (double value : values_of(variable.value())) numbers.push_back(value);
  for (const Variable& variable : model.optimizer().variables())
    for (double value : values_of(variable.value())) numbers.push_back(value);
  return text_of(numbers);
}

// Calls `act` after step number `steps`.
Callback after(int steps, std::function<void()> act) {
  return LambdaCallback(
      {.on_train_batch_end = [left = std::make_shared<int>(steps), act = std::move(act)](
                                 Model&, std::int64_t, const Logs&) {
        if (--*left == 0) act();
      }});
}
std::vector<Callback> none() { return {}; }
std::vector<Callback> one(const Callback& callback) {
  std::vector<Callback> callbacks;
  callbacks.push_back(callback);
  return callbacks;
}
void die() { raise(SIGKILL); }

void expect_names(const std::string& text, const std::string& kind, const std::string& who) {
  EXPECT_EQ(text.substr(0, text.find(':')), kind) << text;
  EXPECT_NE(text.find(who), std::string::npos) << text;
}

// The message depends on which of two mechanisms detects the worker's death first.
void expect_failed_for(const std::string& text, int killed) {
  const std::string kind = text.substr(0, text.find(':'));
  EXPECT_TRUE(kind == "UnavailableError" || kind == "AbortedError") << text;
  EXPECT_NE(text.find("rank " + std::to_string(killed)), std::string::npos) << text;
}

void expect_killed_worker_is_named(Communication communication) {
  for (int killed : {0, 1, 2}) {
    const auto results = run_workers(3, [&](int worker) {
      return train(100'000, worker == killed ? one(after(20, die)) : none(), true, communication);
    });
    for (int worker = 0; worker < 3; ++worker) {
      const std::string& text = results[static_cast<std::size_t>(worker)];
      if (worker == killed)
        EXPECT_EQ(text, "");
      else
        expect_failed_for(text, killed);
    }
  }
}

TEST(MultiWorkerFaults, AKilledWorkerIsNamed) {
  expect_killed_worker_is_named(Communication::kShm);
}
TEST(MultiWorkerFaults, AKilledWorkerIsNamedOverGloo) {
  TANDEM_REQUIRE(has_gloo(), "gloo");
  expect_killed_worker_is_named(Communication::kGloo);
}

TEST(MultiWorkerFaults, AMissingWorkerIsNamed) {
  const auto ports = testing::free_ports(3);
  const auto meet = [](int) {
    MultiWorkerMirroredStrategy({.timeout = 5s});
    return std::string("met");
  };
  for (int missing : {1, 2}) {
    std::vector<ChildProcess> workers;
    for (int worker = 0; worker < 3; ++worker)
      if (worker != missing) workers.push_back(testing::start_worker(ports, worker, meet));
    // One worker runs into the timeout. The other does, too, or is notified of it, or that
    // the first worker is gone.
    bool found = false;
    for (ChildProcess& worker : workers) {
      const std::string text = worker.result();
      EXPECT_NE(text.find("Error: "), std::string::npos) << text;
      const bool names = text.find("rank " + std::to_string(missing)) != std::string::npos;
      EXPECT_TRUE(names || text.find("rank 0") != std::string::npos) << text;
      found = found || (names && text.starts_with("DeadlineExceededError"));
    }
    EXPECT_TRUE(found);
  }
  ChildProcess alone = testing::start_worker(ports, 0, meet);
  const std::string text = alone.result();
  expect_names(text, "DeadlineExceededError",
               "rank 1 is the worker at 127.0.0.1:" + std::to_string(ports[1]));
}

TEST(MultiWorkerFaults, AWorkersErrorReachesTheOthers) {
  const auto results = run_workers(2, [](int worker) {
    const auto fail = [] { throw std::runtime_error("no more of this"); };
    return train(100'000, worker == 1 ? one(after(7, fail)) : none());
  });
  expect_names(results[0], "AbortedError", "rank 1");
  EXPECT_NE(results[0].find("no more of this"), std::string::npos) << results[0];
  EXPECT_EQ(results[1], "std::exception: no more of this");
}

// The workers' calls, and parts of the error that each of them gets.
void expect_parting(const std::function<void(const Strategy&, int worker)>& call,
                    const std::vector<std::string>& parts) {
  for (Communication communication : {Communication::kShm, Communication::kGloo}) {
    if (communication == Communication::kGloo) TANDEM_REQUIRE(has_gloo(), "gloo");
    const auto results = run_workers(3, [&](int worker) {
      const MultiWorkerMirroredStrategy strategy({.communication_options = {communication},
                                                  .timeout = testing::kFarAway,
                                                  .devices = {"/cpu:0"}});
      call(strategy, worker);
      return std::string("no error");
    });
    for (const std::string& text : results)
      for (const std::string& part : parts) expect_names(text, "InvalidArgumentError", part);
  }
}

TEST(MultiWorkerFaults, MismatchedWorkersGetAnError) {
  expect_parting([](const Strategy& strategy,
                    int worker) { strategy.reduce(ReduceOp::kSum, zeros({worker == 2 ? 5 : 4})); },
                 {"ranks diverged", "rank 2 called all_reduce (sum) of 5 float32", "of 4 float32"});
  expect_parting(
      [](const Strategy& strategy, int worker) {
        strategy.reduce(ReduceOp::kSum, zeros({4}, {.dtype = worker == 0 ? int32 : float32}));
      },
      {"ranks diverged", "rank 0 called all_reduce (sum) of 4 int32", "of 4 float32"});
  expect_parting(
      [](const Strategy& strategy, int worker) {
        strategy.reduce(worker == 1 ? ReduceOp::kMax : ReduceOp::kSum, zeros({4}));
      },
      {"ranks diverged", "rank 1 called all_reduce (max)", "all_reduce (sum)"});
  expect_parting(
      [](const Strategy& strategy, int worker) {
        const distribute::PerReplica<Tensor> value(std::vector<Tensor>{zeros({4})});
        if (worker == 1) strategy.gather(value, 0);
        strategy.reduce(ReduceOp::kSum, value);
      },
      {"ranks diverged", "rank 1 called exchange", "called all_reduce (sum)"});
  // Another model.
  expect_parting(
      [](const Strategy& strategy, int worker) {
        const auto scope = strategy.scope();
        Sequential model({layers::Dense(worker == 1 ? 4 : 3, {.input_shape = {6}})});
        model.compile({.optimizer = optimizers::SGD({.learning_rate = 0.1}), .loss = "mse"});
      },
      {"ranks diverged", "rank 1 called broadcast of 24 float32", "'initial value of dense/kernel'",
       "of 18 float32"});
  expect_parting(
      [](const Strategy& strategy, int worker) {
        const auto scope = strategy.scope();
        std::vector<Layer> stack = {layers::Dense(3, {.input_shape = {6}})};
        if (worker != 1) stack.push_back(layers::BatchNormalization());
        stack.push_back(layers::Dense(2));
        Sequential model(stack);
        model.compile({.optimizer = optimizers::SGD({.learning_rate = 0.1}), .loss = "mse"});
      },
      {"ranks diverged", "rank 1 called broadcast of 6 float32",
       "'initial value of dense_1/kernel'", "'initial value of batch_normalization/gamma'"});
}

TEST(MultiWorkerFaults, AWorkerThatLeavesEarlyIsNamed) {
  for (Communication communication : {Communication::kShm, Communication::kGloo}) {
    if (communication == Communication::kGloo) TANDEM_REQUIRE(has_gloo(), "gloo");
    const auto results = run_workers(3, [&](int worker) {
      const MultiWorkerMirroredStrategy strategy({.communication_options = {communication},
                                                  .timeout = testing::kFarAway,
                                                  .devices = {"/cpu:0"}});
      for (int i = 0; i < (worker == 1 ? 3 : 10); ++i) strategy.reduce(ReduceOp::kSum, zeros({}));
      return std::string("through");
    });
    EXPECT_EQ(results[1], "through");
    for (std::size_t worker : {0u, 2u}) expect_failed_for(results[worker], 1);
  }
}

// Another program listens at the address of the first worker.
TEST(MultiWorkerFaults, ATakenPortIsAClearError) {
  const auto ports = testing::free_ports(2);
  const Socket stranger = listen_on({"127.0.0.1", ports[0]});
  const auto meet = [](int) {
    MultiWorkerMirroredStrategy({.timeout = 5s});
    return std::string("met");
  };
  ChildProcess first = testing::start_worker(ports, 0, meet);
  ChildProcess second = testing::start_worker(ports, 1, meet);
  expect_names(first.result(), "AlreadyExistsError",
               "failed to bind to 127.0.0.1:" + std::to_string(ports[0]));
  expect_names(second.result(), "DeadlineExceededError",
               "not found at 127.0.0.1:" + std::to_string(ports[0]));
}

TEST(MultiWorkerFaults, AWrongTokenIsRefused) {
  const auto ports = testing::free_ports(2);
  const auto meet = [](int worker) {
    setenv("TANDEM_JOB_TOKEN", worker == 0 ? "right" : "wrong", 1);
    MultiWorkerMirroredStrategy({.timeout = 5s});
    return std::string("met");
  };
  ChildProcess first = testing::start_worker(ports, 0, meet);
  ChildProcess second = testing::start_worker(ports, 1, meet);
  expect_names(second.result(), "InvalidArgumentError",
               "has another token, or is another user's: TANDEM_JOB_TOKEN");
  expect_names(first.result(), "DeadlineExceededError", "rank 1 of 2 did not join");
}

TEST(MultiWorkerFaults, AfterAFailureTheJobIsOver) {
  const auto results = run_workers(2, [](int worker) {
    const MultiWorkerMirroredStrategy strategy({.timeout = testing::kFarAway});
    std::string text;
    for (int i = 0; i < 2; ++i) {
      try {
        strategy.run([&] {
          if (worker == 0) throw std::runtime_error("worker 0 cannot");
        });
        strategy.reduce(ReduceOp::kSum, zeros({}));
      } catch (const std::exception& error) {
        text += std::string(error.what()) + "\n";
      }
    }
    return text;
  });
  EXPECT_EQ(results[0],
            "worker 0 cannot\n[MultiWorkerMirroredStrategy] the job is over: this worker has "
            "failed: worker 0 cannot\n");
  EXPECT_NE(results[1].find("rank 0"), std::string::npos) << results[1];
}

TEST(MultiWorkerFaults, TrainingResumesWithTheSameBitsAfterAKill) {
  for (int workers : {2, 3}) {
    const auto whole = run_workers(workers, [](int) { return train(4); });
    ASSERT_GT(numbers_of(whole[0]).size(), 100u) << whole[0];
    for (const auto& [killed, steps] : {std::pair(1, 3), std::pair(0, 7), std::pair(1, 13)}) {
      const testing::TemporaryDirectory directory;
      const auto backup = [&] {
        return callbacks::BackupAndRestore(directory / "backup", {.save_freq = 2});
      };
      const auto broken = run_workers(workers, [&, killed = killed, steps = steps](int worker) {
        std::vector<Callback> callbacks = {backup()};
        if (worker == killed) callbacks.push_back(after(steps, die));
        return train(4, callbacks);
      });
      EXPECT_EQ(broken[static_cast<std::size_t>(killed)], "");
      EXPECT_EQ(run_workers(workers, [&](int) { return train(4, {backup()}); }), whole)
          << workers << " workers, " << killed << " killed after " << steps;
    }
  }
}

// Each worker has its own directory, as on hosts without a shared file system. Only the chief's
// is used.
TEST(MultiWorkerFaults, AllWorkersResumeFromTheChiefsBackup) {
  const auto whole = run_workers(2, [](int) { return train(3); });
  const testing::TemporaryDirectory directory;
  const auto part = [&](int worker, bool stops) {
    std::vector<Callback> callbacks = {
        callbacks::BackupAndRestore(directory / std::to_string(worker), {.save_freq = 1})};
    if (stops) callbacks.push_back(after(8, [] { throw std::runtime_error("crash"); }));
    return train(3, callbacks);
  };
  run_workers(2, [&](int worker) { return part(worker, true); });
  EXPECT_EQ(run_workers(2, [&](int worker) { return part(worker, false); }), whole);
}

TEST(MultiWorkerFaults, ACheckpointResumesOnAnotherNumberOfWorkers) {
  const auto train_on = [](int workers, const std::vector<Callback>& callbacks) {
    return run_workers(workers, [&](int) { return train(3, callbacks, false); })[0];
  };
  const std::vector<double> whole = numbers_of(train_on(1, {}));
  ASSERT_GT(whole.size(), 100u);
  for (const auto& [before, later] : {std::pair(2, 3), std::pair(3, 1), std::pair(1, 2)}) {
    const testing::TemporaryDirectory directory;
    const auto backup = callbacks::BackupAndRestore(directory / "backup", {.save_freq = 1});
    train_on(before, {backup, after(8, [] { throw std::runtime_error("crash"); })});
    const std::vector<double> numbers = numbers_of(train_on(later, {backup}));
    ASSERT_EQ(numbers.size(), whole.size());
    for (std::size_t i = 0; i < numbers.size(); ++i)
      EXPECT_NEAR(numbers[i], whole[i], 1e-5 * std::fmax(1.0, std::abs(whole[i])))
          << before << " to " << later << ", number " << i;
  }
}

TEST(MultiWorkerFaults, AWrongTfConfigIsRefused) {
  ChildProcess process([] {
    setenv("TF_CONFIG", R"({"cluster":{"worker":["a:1","b:1"]},"task":{"type":"ps","index":0}})",
           1);
    MultiWorkerMirroredStrategy();
    return std::string();
  });
  expect_names(process.result(), "InvalidArgumentError",
               "`task_type` 'ps' not found in cluster_spec.");
}

}  // namespace
}  // namespace tandem::multi_worker_faults_test
