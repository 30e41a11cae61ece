// Workers that get several closures at the same time.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <optional>
#include <set>
#include <thread>

#include "data/description.h"
#include "data/pipelines.h"
#include "ps/in_process.h"
#include "ps/local_cluster.h"
#include "ps/proto/worker_calls.pb.h"
#include "support/expects.h"
#include "support/tensors.h"
#include "support/waiting.h"

namespace tandem::ps::several_closures_test {
namespace {

using namespace std::chrono_literals;
using data::describe;
using tandem::testing::eventually;
using tandem::testing::expect_error;
using tandem::testing::numbers;
using testing::LocalCluster;

// Counts the runs under way. May lose the first reply with element 0, after that of another run.
class CountingChannel final : public rpc::Channel {
 public:
  explicit CountingChannel(std::shared_ptr<rpc::Channel> channel) : channel_(std::move(channel)) {}
  std::unique_ptr<rpc::Call> start(const std::string& method, rpc::Message request,
                                   const rpc::CallOptions& options) override {
    auto call = channel_->start(method, std::move(request), options);
    if (method != "Worker/Run") return call;
    return std::make_unique<Counted>(std::move(call), *this);
  }

  std::atomic<int> running = 0;
  std::atomic<bool> lose_first_element = false;

 private:
  class Counted final : public rpc::Call {
   public:
    Counted(std::unique_ptr<rpc::Call> call, CountingChannel& channel)
        : call_(std::move(call)), channel_(channel) {
      ++channel_.running;
    }
    ~Counted() override { --channel_.running; }
    bool done() const override { return call_->done(); }
    rpc::Message wait() override {
      rpc::Message reply = call_->wait();
      ++channel_.replies_;
      if (channel_.lose_first_element && element_of(reply) == 0) {
        channel_.lose_first_element = false;
        EXPECT_TRUE(eventually([&] { return channel_.replies_ == 2; }));
        std::this_thread::sleep_for(50ms);  // the coordinator has probably seen the second
        throw rpc::PeerUnavailableError("the reply was lost");
      }
      return reply;
    }
    void cancel() override { call_->cancel(); }

   private:
    std::unique_ptr<rpc::Call> call_;
    CountingChannel& channel_;
  };

  static int element_of(const rpc::Message& reply) {
    AttachedTensors results(reply.attachments, "a test");
    const auto header = parse<proto::RunReply>(reply, "a test");
    return results.next(header.results(0)).item<std::int32_t>();
  }

  std::atomic<int> replies_ = 0;
  std::shared_ptr<rpc::Channel> channel_;
};

// A worker and a server. Both functions return the next element; function 0 also adds 1 to v.
class SeveralClosures : public ::testing::Test {
 protected:
  void SetUp() override {
    TANDEM_REQUIRE(rpc::has_grpc(), "grpc");
    cluster.emplace(1, 1, 3s);
    channel = std::make_shared<CountingChannel>(cluster->channel_to_worker(0));
    Variable v(constant(0.0f), {.name = "v"});
    update_ = split_step([&] { v.assign_add(ones({})); });
    cluster->stores[0]->create(3, "v", zeros({}));
    cluster->stores[0]->add_update(0, 0, update_.message.updates(0).part());
  }

  void coordinate(std::size_t closures, std::chrono::milliseconds end_limit = 20s) {
    coordinator.emplace(std::vector<Coordinator::WorkerTask>{{"worker:0", channel}},
                        cluster->clients(),
                        Coordinator::Options{.settle_limit = 1s,
                                             .queue = {.end_limit = end_limit},
                                             .closures_per_worker = closures});
    coordinator->add_function(0, update_.message);
    coordinator->add_function(1, split_step([] {}).message);
    coordinator->add_iterator(7, describe(numbers(100)));
  }
  std::shared_ptr<RemoteResult> schedule(std::uint64_t function) {
    return coordinator->schedule({.function = function, .iterators = {7}});
  }
  static int value(const std::shared_ptr<RemoteResult>& result) {
    return result->wait(20s)[0].item<std::int32_t>();
  }
  bool eventually_run(int closures) const {
    return eventually([&] { return channel->running == closures; });
  }

  std::optional<LocalCluster> cluster;
  std::shared_ptr<CountingChannel> channel;
  std::optional<Coordinator> coordinator;

 private:
  template <class F>
  static SplitFunction split_step(F update) {
    data::Iterator elements = numbers(1).iterate();
    tandem::detail::FunctionTraces traces({.name = "step"});
    tandem::detail::FunctionCall call;
    call.passes = {elements.pass()};
    const auto traced = traces.trace(call, [&](const std::vector<Tensor>&) {
      update();
      return std::vector<Tensor>{elements.next()[0] + 0};
    });
    return split(*traced, testing::variable_3);
  }

  SplitFunction update_;
};

class ClosuresAtATime : public SeveralClosures, public ::testing::WithParamInterface<int> {};

TEST_P(ClosuresAtATime, AWorkerGetsAsManyAsItMayHave) {
  coordinate(static_cast<std::size_t>(GetParam()));
  cluster->stop_server(0);
  for (int i = 0; i < 6; ++i) schedule(0);
  EXPECT_TRUE(eventually_run(GetParam()));
  std::this_thread::sleep_for(50ms);  // more would probably have been sent
  EXPECT_EQ(channel->running, GetParam());
  cluster->start_server(0);
  coordinator->join();
  EXPECT_EQ(coordinator->counts().finished, 6);
  EXPECT_EQ(cluster->stores[0]->read(3).value.item<float>(), 6);
}

INSTANTIATE_TEST_SUITE_P(All, ClosuresAtATime, ::testing::Values(1, 3));

// So that the elements of the closures that have finished are the first ones.
TEST_F(SeveralClosures, EndInTheOrderOfTheirElements) {
  coordinate(2);
  cluster->stop_server(0);
  const auto first = schedule(0);
  ASSERT_TRUE(eventually_run(1));
  std::this_thread::sleep_for(50ms);  // it takes its element now
  const auto second = schedule(1);    // which waits for nothing else
  ASSERT_TRUE(eventually_run(2));
  std::this_thread::sleep_for(50ms);
  EXPECT_EQ(second->state(), RemoteResult::State::kNotReady);
  cluster->start_server(0);
  EXPECT_EQ(value(first), 0);
  EXPECT_EQ(value(second), 1);
}

// The worker dies with three closures, none of which has sent its update.
TEST_F(SeveralClosures, LostWorkerCountsOnceAndItsClosuresEach) {
  coordinate(3);
  cluster->stop_server(0);
  std::vector<std::shared_ptr<RemoteResult>> results;
  for (int i = 0; i < 5; ++i) results.push_back(schedule(0));
  ASSERT_TRUE(eventually_run(3));
  cluster->stop_worker(0);
  cluster->start_server(0);
  cluster->start_worker(0);
  coordinator->join();
  std::vector<int> elements;
  for (const auto& result : results) elements.push_back(value(result));
  std::sort(elements.begin(), elements.end());
  EXPECT_EQ(elements, (std::vector<int>{0, 1, 2, 3, 4}));
  EXPECT_EQ(cluster->stores[0]->read(3).value.item<float>(), 5);
  const Coordinator::Counts counts = coordinator->counts();
  EXPECT_EQ(counts.finished, 5);
  EXPECT_EQ(counts.lost_workers, 1);
  EXPECT_EQ(counts.put_back, 3);
  EXPECT_EQ(counts.staleness.updates, 5u);
}

// Else the worker would continue after the second element, or give it twice.
TEST_F(SeveralClosures, AReplyThatOvertookALostOneIsLostToo) {
  coordinate(2);
  channel->lose_first_element = true;
  const auto first = schedule(0), second = schedule(0);
  const std::set<int> elements = {value(first), value(second)};
  EXPECT_EQ(elements, (std::set<int>{0, 1}));
  EXPECT_EQ(value(schedule(0)), 2);
  const Coordinator::Counts counts = coordinator->counts();
  EXPECT_EQ(counts.lost_workers, 1);
  EXPECT_EQ(counts.put_back, 2);
  EXPECT_EQ(counts.staleness.updates, 3u);
  EXPECT_EQ(cluster->stores[0]->read(3).value.item<float>(), 3);
}

TEST_F(SeveralClosures, AnErrorCancelsTheOthersOfItsWorker) {
  coordinate(3, 100ms);
  cluster->stop_server(0);
  std::vector<std::shared_ptr<RemoteResult>> results;
  for (int i = 0; i < 2; ++i) results.push_back(schedule(0));
  ASSERT_TRUE(eventually_run(2));
  const auto failed = coordinator->schedule(
      {.function = 1, .arguments = {zeros({})}, .iterators = {7}});  // which expects none
  expect_error<InvalidArgumentError>([&] { coordinator->join(); }, "expected 0 arguments, got 1");
  for (const auto& result : results)
    expect_error<UnavailableError>([&] { result->wait(0s); },
                                   "It is not known whether its updates were applied: ");
  EXPECT_EQ(channel->running, 0);
  cluster->start_server(0);
  EXPECT_GE(value(schedule(0)), 2);
  EXPECT_EQ(cluster->stores[0]->read(3).value.item<float>(), 1);  // of the last one alone
}

TEST_F(SeveralClosures, AClosureWasAppliedIfAndOnlyIfItHasItsResult) {
  coordinate(3);
  int applied = 0;
  for (int round = 0; round < 8; ++round) {
    std::vector<std::shared_ptr<RemoteResult>> results;
    for (int i = 0; i < 12; ++i) try {
        results.push_back(i == 4 ? coordinator->schedule(
                                       {.function = 1, .arguments = {zeros({})}, .iterators = {7}})
                                 : schedule(0));
      } catch (const InvalidArgumentError&) {  // the error came while this loop was running
        break;
      }
    try {
      coordinator->join();
    } catch (const InvalidArgumentError&) {
    }
    for (const auto& result : results)
      applied += result->state() == RemoteResult::State::kReady ? 1 : 0;
    EXPECT_EQ(cluster->stores[0]->read(3).value.item<float>(), static_cast<float>(applied));
  }
}

}  // namespace
}  // namespace tandem::ps::several_closures_test
