// The coordinator with workers that are lost and restarted. Each worker is a server in this
// process.
#include "ps/coordinator.h"

#include <gtest/gtest.h>

#include <atomic>

#include "ps/in_process.h"
#include "ps/server_service.h"
#include "rpc/grpc/grpc_transport.h"
#include "support/expects.h"
#include "support/tensors.h"

namespace tandem::ps {
namespace {

using namespace std::chrono_literals;
using tandem::testing::expect_error;
using testing::trace;

// One server and two workers, and the function v += value; return value * 2.
class Coordinated : public ::testing::Test {
 protected:
  static constexpr std::size_t kWorkers = 2;

  void SetUp() override {
    TANDEM_REQUIRE(rpc::has_grpc(), "grpc");
    server_ = rpc::make_grpc_server({.token = "secret"});
    serve(*server_, store);
    server_->start();
    for (std::size_t i = 0; i < kWorkers; ++i) start_worker(i, 0);
    Variable v(zeros({2}), {.name = "v"});
    const auto traced = trace(
        [&](const auto& inputs) {
          v.assign_add(inputs[0]);
          return std::vector<Tensor>{inputs[0] * 2.0};
        },
        {zeros({2})});
    function_ = split(*traced, testing::variable_3);
    store.create(3, "v", zeros({2}));
    store.add_update(0, 0, function_.message.updates(0).part());
  }

  void start_worker(std::size_t i, std::uint16_t port) {
    const auto client = std::make_shared<ServerClient>(channel(server_->port(), "ps:0"),
                                                       ServerClient::Limits{.call = 10s});
    states_[i] = std::make_unique<Worker>(std::vector{client});
    workers_[i] = rpc::make_grpc_server({.port = port, .token = "secret"});
    serve(*workers_[i], *states_[i]);
    workers_[i]->start();
  }
  void restart_worker(std::size_t i) {
    const std::uint16_t port = workers_[i]->port();
    workers_[i]->stop(0ms);
    workers_[i].reset();
    start_worker(i, port);
  }

  static std::shared_ptr<rpc::Channel> channel(std::uint16_t port, std::string task) {
    return rpc::make_grpc_channel({.host = "127.0.0.1",
                                   .port = port,
                                   .task = std::move(task),
                                   .caller = "test",
                                   .token = "secret"});
  }
  std::unique_ptr<Coordinator> coordinator(const Coordinator::Options& options = {}) {
    std::vector<Coordinator::WorkerTask> tasks;
    for (std::size_t i = 0; i < kWorkers; ++i) {
      const std::string name = fmt::format("worker:{}", i);
      tasks.push_back({.name = name, .channel = channel(workers_[i]->port(), name)});
    }
    auto made = std::make_unique<Coordinator>(std::move(tasks), options);
    made->add_function(0, function_.message);
    return made;
  }
  static FunctionRun add(double value) { return {.function = 0, .arguments = {full({2}, value)}}; }

  ParameterStore store;
  std::unique_ptr<rpc::Server> server_;
  std::unique_ptr<Worker> states_[kWorkers];
  std::unique_ptr<rpc::Server> workers_[kWorkers];
  SplitFunction function_;
};

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
  EXPECT_EQ(store.read(3).value.to_vector<float>()[1], 49.0f * 50 / 2);
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
  for (std::size_t i = 0; i < kWorkers; ++i) {
    const auto client = std::make_shared<ServerClient>(channel(server_->port(), "ps:0"),
                                                       ServerClient::Limits{.call = 300ms});
    const std::uint16_t port = workers_[i]->port();
    workers_[i]->stop(0ms);
    states_[i] = std::make_unique<Worker>(std::vector{client});
    workers_[i] = rpc::make_grpc_server({.port = port, .token = "secret"});
    serve(*workers_[i], *states_[i]);
    workers_[i]->start();
  }
  const auto coordinated = coordinator();
  coordinated->schedule(add(1));
  coordinated->join();
  server_->stop(0ms);
  server_.reset();
  coordinated->schedule(add(1));
  EXPECT_THROW(coordinated->join(), Error);
}

// Workers are stopped and started again while they run closures. Each closure's update is applied
// once.
TEST_F(Coordinated, RestartedWorkersLoseAndRepeatNoUpdate) {
  constexpr int kClosures = 400;
  const auto coordinated = coordinator();
  std::vector<std::shared_ptr<RemoteResult>> results;
  for (int i = 0; i < kClosures; ++i) {
    results.push_back(coordinated->schedule(add(1)));
    if (i % 80 == 40) {
      while (coordinated->counts().finished < i - 20) std::this_thread::sleep_for(1ms);
      restart_worker(static_cast<std::size_t>(i / 80) % kWorkers);
    }
  }
  coordinated->join();
  const ParameterStore::Read read = store.read(3);
  EXPECT_EQ(read.version, static_cast<std::uint64_t>(kClosures));
  EXPECT_EQ(read.value.to_vector<float>()[0], static_cast<float>(kClosures));
  EXPECT_EQ(coordinated->counts().finished, kClosures);
  EXPECT_GE(coordinated->counts().lost_workers, 3);
  for (const auto& result : results) EXPECT_EQ(result->state(), RemoteResult::State::kReady);
}

TEST_F(Coordinated, WorkerThatStaysAwayIsReplacedByTheOther) {
  const auto coordinated = coordinator();
  workers_[0]->stop(0ms);
  workers_[0].reset();
  for (int i = 0; i < 20; ++i) coordinated->schedule(add(1));
  coordinated->join();
  EXPECT_EQ(store.read(3).version, 20u);
}

TEST_F(Coordinated, WorkersThatStayAwayAreAnErrorAfterTheLimit) {
  const auto coordinated = coordinator({.recovery_limit = 200ms});
  for (std::size_t i = 0; i < kWorkers; ++i) {
    workers_[i]->stop(0ms);
    workers_[i].reset();
  }
  const auto lost = coordinated->schedule(add(1));
  expect_error<UnavailableError>([&] { coordinated->join(); },
                                 "was lost and has not come back within 200 ms");
  EXPECT_EQ(lost->state(), RemoteResult::State::kAborted);
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
  EXPECT_LE(store.num_remembered(), 5u);
}

TEST_F(Coordinated, EndCancelsWhatIsQueued) {
  std::shared_ptr<RemoteResult> last;
  {
    const auto coordinated = coordinator();
    for (std::size_t i = 0; i < kWorkers; ++i) {
      workers_[i]->stop(0ms);
      workers_[i].reset();
    }
    last = coordinated->schedule(add(1));
  }
  EXPECT_EQ(last->state(), RemoteResult::State::kAborted);
  expect_error<AbortedError>([&] { last->wait(0ms); }, "");
}

}  // namespace
}  // namespace tandem::ps
