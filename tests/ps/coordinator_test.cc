// The coordinator with workers that are lost and restarted. Each worker is a server in this
// process.
#include "ps/coordinator.h"

#include <gtest/gtest.h>

#include <optional>
#include <thread>

#include "ps/held_channel.h"
#include "ps/in_process.h"
#include "ps/local_cluster.h"
#include "support/errors.h"
#include "support/expects.h"
#include "support/tensors.h"
#include "support/waiting.h"

namespace tandem::ps::coordinator_test {
namespace {

using namespace std::chrono_literals;
using tandem::testing::expect_error;
using testing::LocalCluster;
using testing::trace;

// One server and two workers, and the function v += value; return value * 2.
class Coordinated : public ::testing::Test {
 protected:
  static constexpr std::size_t kWorkers = 2;

  void SetUp() override {
    TANDEM_REQUIRE(rpc::has_grpc(), "grpc");
    Variable v(zeros({2}), {.name = "v"});
    const auto traced = trace(
        [&](const auto& inputs) {
          v.assign_add(inputs[0]);
          return std::vector<Tensor>{inputs[0] * 2.0};
        },
        {zeros({2})});
    function_ = split(*traced, testing::variable_3);
    start_cluster(20s);
  }

  void start_cluster(std::chrono::milliseconds server_limit) {
    cluster.emplace(1, kWorkers, server_limit);
    store().create(3, "v", zeros({2}));
    store().add_update(0, 0, function_.message.updates(0).part());
  }
  ParameterStore& store() { return *cluster->stores[0]; }
  std::unique_ptr<Coordinator> coordinator(const Coordinator::Options& options = {}) {
    return coordinator(options, cluster->tasks());
  }
  std::unique_ptr<Coordinator> coordinator(const Coordinator::Options& options,
                                           std::vector<Coordinator::WorkerTask> tasks) {
    auto made = std::make_unique<Coordinator>(std::move(tasks), cluster->clients(), options);
    made->add_function(0, function_.message);
    return made;
  }
  static FunctionRun add(double value) { return {.function = 0, .arguments = {full({2}, value)}}; }

  std::optional<LocalCluster> cluster;

 private:
  SplitFunction function_;
};

// The threads of the coordinator call the workers and servers themselves: without gRPC, for the
// thread sanitizer.
class WithoutANetwork : public ::testing::TestWithParam<Decisions::Rules> {};

TEST_P(WithoutANetwork, ThreadsShareTheQueueTheDecisionsAndTheServers) {
  constexpr int kWorkers = 3, kCallers = 2, kCalls = 120;
  Variable v(zeros({2, 1}), {.name = "v"});
  testing::InProcess run(trace(
                             [&](const auto& inputs) {
                               v.assign_add(inputs[0]);
                               return std::vector<Tensor>{inputs[0] * 2.0};
                             },
                             {zeros({2, 1})}),
                         2, 2);
  std::vector<std::shared_ptr<ServerClient>> clients;
  for (testing::DirectServer& server : run.servers) {
    server.on_reply = nullptr;
    clients.push_back(std::make_shared<ServerClient>(
        std::make_shared<testing::DirectChannel>(server), ServerClient::Limits()));
  }
  std::vector<std::unique_ptr<Worker>> workers;
  std::vector<testing::DirectServer> served(kWorkers);
  std::vector<Coordinator::WorkerTask> tasks;
  for (testing::DirectServer& server : served) {
    serve(server, *workers.emplace_back(std::make_unique<Worker>(clients)));
    tasks.push_back({.name = fmt::format("worker:{}", tasks.size()),
                     .channel = std::make_shared<testing::DirectChannel>(server)});
  }
  Coordinator coordinator(std::move(tasks), clients,
                          {.rules = GetParam(), .closures_per_worker = 2});
  coordinator.add_function(testing::InProcess::kFunction, run.message());
  {
    std::vector<std::jthread> callers;
    for (int i = 0; i < kCallers; ++i)
      callers.emplace_back([&] {
        for (int call = 0; call < kCalls; ++call)
          coordinator.schedule(
              {.function = testing::InProcess::kFunction, .arguments = {ones({2, 1})}});
      });
  }
  coordinator.join();
  const float steps = static_cast<float>(kCallers * kCalls) / GetParam().calls_per_update;
  EXPECT_EQ(run.variable("v").to_vector<float>(), (std::vector<float>{steps, steps}));
  EXPECT_EQ(coordinator.counts().finished, kCallers * kCalls);
}

INSTANTIATE_TEST_SUITE_P(Rules, WithoutANetwork,
                         ::testing::Values(Decisions::Rules{}, Decisions::Rules{.max_staleness = 0},
                                           Decisions::Rules{.max_staleness = 3,
                                                            .calls_per_update = 2}));

TEST_F(Coordinated, ClosuresRunAndReturnTheirResults) {
  const auto coordinated = coordinator();
  std::vector<std::shared_ptr<RemoteResult>> results;
  for (int i = 0; i < 50; ++i) results.push_back(coordinated->schedule(add(i)));
  coordinated->join();
  EXPECT_TRUE(coordinated->done());
  for (int i = 0; i < 50; ++i) {
    const auto& result = *results[static_cast<std::size_t>(i)];
    EXPECT_EQ(result.state(), RemoteResult::State::kReady);
    EXPECT_EQ(result.wait(0ms)[0].to_vector<float>()[0], static_cast<float>(2 * i));
  }
  EXPECT_EQ(store().read(3).value.to_vector<float>()[1], 49.0f * 50 / 2);
  EXPECT_EQ(coordinated->counts().finished, 50);
}

TEST_F(Coordinated, ErrorOfAFunctionIsThrownOnceAndTheNextClosuresRun) {
  const auto coordinated = coordinator();
  const auto failed = coordinated->schedule({.function = 0, .arguments = {zeros({5})}});
  expect_error<InvalidArgumentError>([&] { coordinated->join(); },
                                     "expected input 0 of shape (2,)");
  EXPECT_EQ(failed->state(), RemoteResult::State::kAborted);
  expect_error<InvalidArgumentError>([&] { failed->wait(0ms); }, "expected input 0");
  coordinated->schedule(add(1))->wait(20s);
  coordinated->join();
  expect_error<NotFoundError>([&] { coordinated->schedule({.function = 8}); },
                              "function 8 was not added");
}

TEST_F(Coordinated, LostServerIsAnError) {
  start_cluster(2s);
  const auto coordinated = coordinator({.settle_limit = 100ms});
  coordinated->schedule(add(1));
  coordinated->join();
  cluster->stop_server(0);
  coordinated->schedule(add(1));
  const std::string text = tandem::testing::any_error_of([&] { coordinated->join(); });
  EXPECT_EQ(text.find("UnavailableError: [worker:"), 0u) << text;
  EXPECT_NE(text.find("ps:0"), std::string::npos) << text;
}

class ClosuresPerWorker : public Coordinated, public ::testing::WithParamInterface<std::size_t> {};

// Workers are stopped and started again while they run closures. Each closure's update is applied
// once.
TEST_P(ClosuresPerWorker, RestartedWorkersLoseAndRepeatNoUpdate) {
  constexpr int kClosures = 400, kRestarts = 5;
  const auto coordinated = coordinator({.closures_per_worker = GetParam()});
  std::vector<std::shared_ptr<RemoteResult>> results;
  for (int i = 0; i < kClosures; ++i) {
    results.push_back(coordinated->schedule(add(1)));
    if (i % 80 == 40) {
      while (coordinated->counts().finished < i - 20) std::this_thread::sleep_for(1ms);
      cluster->restart_worker(static_cast<std::size_t>(i / 80) % kWorkers);
    }
  }
  coordinated->join();
  const ParameterStore::Read read = store().read(3);
  EXPECT_EQ(read.version, static_cast<std::uint64_t>(kClosures));
  EXPECT_EQ(read.value.to_vector<float>()[0], static_cast<float>(kClosures));
  const Coordinator::Counts counts = coordinated->counts();
  EXPECT_EQ(counts.finished, kClosures);
  EXPECT_EQ(counts.staleness.updates, static_cast<std::uint64_t>(kClosures));
  EXPECT_GE(counts.lost_workers, 3);
  EXPECT_LE(counts.lost_workers, kRestarts);
  EXPECT_GE(counts.put_back, counts.lost_workers);
  EXPECT_LE(counts.put_back, counts.lost_workers * static_cast<std::int64_t>(GetParam()));
  for (const auto& result : results) EXPECT_EQ(result->state(), RemoteResult::State::kReady);
}

INSTANTIATE_TEST_SUITE_P(All, ClosuresPerWorker, ::testing::Values(1, 3));

TEST_F(Coordinated, WorkerThatStaysAwayIsReplacedByTheOther) {
  const auto coordinated = coordinator();
  cluster->stop_worker(0);
  for (int i = 0; i < 20; ++i) coordinated->schedule(add(1));
  coordinated->join();
  EXPECT_EQ(store().read(3).version, 20u);
}

TEST_F(Coordinated, WorkersThatStayAwayAreAnErrorAfterTheLimit) {
  const auto coordinated = coordinator({.recovery_limit = 200ms});
  for (std::size_t i = 0; i < kWorkers; ++i) cluster->stop_worker(i);
  const auto lost = coordinated->schedule(add(1));
  expect_error<UnavailableError>([&] { coordinated->join(); },
                                 "was lost and has not come back within 200 ms");
  EXPECT_EQ(lost->state(), RemoteResult::State::kAborted);
}

// As in TensorFlow, while the error of the first one is pending.
TEST_F(Coordinated, ResultsAreFetchedAfterTheErrorOfAnotherClosure) {
  const auto coordinated = coordinator();
  for (std::size_t i = 0; i < kWorkers; ++i) cluster->stop_worker(i);
  std::vector<std::shared_ptr<RemoteResult>> results;
  for (int i = 0; i < 6; ++i)
    results.push_back(coordinated->schedule(
        i == 0 ? FunctionRun{.function = 0, .arguments = {zeros({5})}} : add(i)));
  for (std::size_t i = 0; i < kWorkers; ++i) cluster->start_worker(i);
  EXPECT_THROW(results[0]->wait(RemoteResult::kLimit), InvalidArgumentError);
  for (int i = 1; i < 6; ++i)
    EXPECT_EQ(
        results[static_cast<std::size_t>(i)]->wait(RemoteResult::kLimit)[0].to_vector<float>()[0],
        static_cast<float>(2 * i));
  EXPECT_THROW(coordinated->join(), InvalidArgumentError);
  EXPECT_EQ(store().read(3).version, 5u);
}

// A worker has two closures. It does not answer the first, and the other fails.
TEST_F(Coordinated, ACancelledClosureSaysWhetherItWasApplied) {
  using What = testing::HeldChannel::What;
  for (const What what : {What::kRequest, What::kReply}) {
    start_cluster(20s);
    std::vector<Coordinator::WorkerTask> tasks = cluster->tasks();
    tasks.resize(1);
    const auto held = std::make_shared<testing::HeldChannel>(tasks[0].channel, what);
    tasks[0].channel = held;
    const auto coordinated =
        coordinator({.queue = {.end_limit = 1ms}, .closures_per_worker = 2}, std::move(tasks));
    const auto first = coordinated->schedule(add(1));
    ASSERT_TRUE(tandem::testing::eventually(
        [&] { return what == What::kReply ? store().read(3).version == 1 : held->started == 1; }));
    coordinated->schedule({.function = 0, .arguments = {zeros({5})}});
    EXPECT_THROW(coordinated->join(), InvalidArgumentError);
    if (what == What::kReply)
      expect_error<DataLossError>([&] { first->wait(0ms); },
                                  "was cancelled after 1 of its 1 updates were applied");
    else
      expect_error<AbortedError>([&] { first->wait(0ms); }, "None of its updates was applied");
    coordinated->schedule(add(1))->wait(20s);
  }
}

// Its end is not known for up to an hour.
TEST_F(Coordinated, ServersForgetTheClosuresAfterOneThatHangs) {
  std::vector<Coordinator::WorkerTask> tasks = cluster->tasks();
  tasks.resize(1);
  const auto held = std::make_shared<testing::HeldChannel>(tasks[0].channel);
  tasks[0].channel = held;
  const auto coordinated = coordinator({.closures_per_worker = 2}, std::move(tasks));
  const auto first = coordinated->schedule(add(1));
  ASSERT_TRUE(tandem::testing::eventually([&] { return store().read(3).version == 1; }));
  for (int i = 0; i < 50; ++i) coordinated->schedule(add(1))->wait(20s);
  EXPECT_EQ(first->state(), RemoteResult::State::kNotReady);
  EXPECT_LE(store().num_remembered(), 2u);  // that one, and the last
  EXPECT_EQ(store().read(3).version, 51u);
}

// Cancelled closures do not make the servers remember all later ones.
TEST_F(Coordinated, ServersForgetFinishedClosuresAfterAnError) {
  const auto coordinated = coordinator();
  for (int i = 0; i < 20; ++i) {
    // The error is thrown by the call that comes after the failure, which may be any but the first.
    const auto fail_once = [&] {
      coordinated->schedule({.function = 0, .arguments = {zeros({5})}});
      coordinated->schedule(add(1));
      coordinated->join();
    };
    coordinated->schedule(add(1));
    EXPECT_THROW(fail_once(), InvalidArgumentError);
  }
  for (int i = 0; i < 5; ++i) coordinated->schedule(add(1));
  coordinated->join();
  EXPECT_LE(store().num_remembered(), 5u);
}

TEST_F(Coordinated, EndCancelsWhatIsQueued) {
  std::shared_ptr<RemoteResult> last;
  {
    const auto coordinated = coordinator();
    for (std::size_t i = 0; i < kWorkers; ++i) cluster->stop_worker(i);
    last = coordinated->schedule(add(1));
  }
  EXPECT_EQ(last->state(), RemoteResult::State::kAborted);
  expect_error<AbortedError>([&] { last->wait(0ms); }, "");
}

}  // namespace
}  // namespace tandem::ps::coordinator_test
