// How the ranks of a job choose a backend.
#include "group/connect.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "comm/gloo/gloo_backend.h"
#include "comm/rendezvous/rendezvous.h"
#include "comm/rendezvous/socket.h"
#include "device/device_manager.h"
#include "support/errors.h"
#include "support/expects.h"
#include "support/files.h"
#include "support/forked_store.h"
#include "support/processes.h"
#include "support/waiting.h"

namespace tandem::connect_test {
namespace {

// A rank that shares only a store with the others.
class StoreJob final : public Job {
 public:
  StoreJob(int rank, int size, std::shared_ptr<Store> store)
      : rank_(rank), size_(size), store_(std::move(store)) {}
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  const std::string& master() const override { return master_; }
  const std::shared_ptr<Store>& store() const override { return store_; }
  const std::shared_ptr<Membership>& membership() const override { return membership_; }
  void shut_down(std::chrono::milliseconds) override {}

 private:
  int rank_, size_;
  std::string master_ = "127.0.0.1";
  std::shared_ptr<Store> store_;
  std::shared_ptr<Membership> membership_;
};

TEST(Connect, ManyChoicesOfABackendTakeNoMoreOfTheStoreThanOne) {
  constexpr int kRanks = 3;
  const auto store = std::make_shared<ForkedStore>();
  const auto choose = [&] {
    std::vector<std::thread> ranks;
    for (int rank = 0; rank < kRanks; ++rank)
      ranks.emplace_back([&, rank] {
        StoreJob job(rank, kRanks, store);
        const std::string backend =
            choose_backend(job, {.backend = "auto", .time_limit = testing::kFarAway});
        EXPECT_FALSE(backend.empty());
      });
    for (std::thread& rank : ranks) rank.join();
    return store->keys().size();
  };
  const std::size_t keys = choose();
  for (int i = 0; i < 5; ++i) EXPECT_EQ(choose(), keys);
}

TEST(Connect, RanksThatAskForDifferentBackendsGetOneError) {
  const auto store = std::make_shared<ForkedStore>();
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 3; ++rank)
    ranks.emplace_back([&, rank] {
      StoreJob job(rank, 3, store);
      EXPECT_EQ(testing::error_of<InvalidArgumentError>([&] {
                  choose_backend(job, {.backend = rank == 1 ? "gloo" : "auto",
                                       .time_limit = testing::kFarAway});
                }),
                "[connect] every rank must name the same backend: rank 0 named auto, rank 1 gloo");
    });
  for (std::thread& rank : ranks) rank.join();
}

// Remembers the keys that this process sets.
class RememberedStore final : public Store {
 public:
  explicit RememberedStore(std::shared_ptr<Store> store) : store_(std::move(store)) {}
  void set(const std::string& key, std::string_view value) override {
    keys += key + "\n";
    store_->set(key, value);
  }
  std::string get(const std::string& key, TimePoint deadline) override {
    return store_->get(key, deadline);
  }
  std::int64_t add(const std::string& key, std::int64_t delta) override {
    return store_->add(key, delta);
  }
  void remove(const std::string& key) override { store_->remove(key); }

  std::string keys;

 private:
  std::shared_ptr<Store> store_;
};

// Each agreement takes several round trips, which are long between distant hosts.
TEST(Connect, RanksAgreeOnceBeforeTheyConnectByGloo) {
  TANDEM_REQUIRE(has_gloo(), "gloo");
  const auto shared = std::make_shared<ForkedStore>();
  std::vector<testing::ChildProcess> ranks;
  for (int rank = 0; rank < 2; ++rank)
    ranks.emplace_back([&, rank] {
      const auto store = std::make_shared<RememberedStore>(shared);
      StoreJob job(rank, 2, store);
      connect(job, *DeviceManager::get().devices(DeviceType::kCpu, "test").front(),
              {.backend = "gloo", .time_limit = testing::kFarAway});
      return store->keys;
    });
  for (testing::ChildProcess& rank : ranks) {
    const std::string keys = rank.result();
    EXPECT_NE(keys.find("connect/seats"), std::string::npos) << keys;
    EXPECT_EQ(keys.find("/hosts"), std::string::npos) << keys;
  }
}

class ConnectFaults : public ::testing::Test {
 protected:
  // Runs body as each of three ranks of a job; returns what they say.
  std::vector<std::string> run(const std::function<std::string(Job&)>& body) const {
    std::vector<testing::ChildProcess> ranks;
    for (int rank = 0; rank < 3; ++rank)
      ranks.emplace_back([&, rank] {
        const auto job = rendezvous(
            "file://" + (folder_ / "job").string(),
            {.rank = rank, .world_size = 3, .heartbeat = std::chrono::milliseconds(100)});
        std::string text = body(*job);
        job->shut_down();
        return text;
      });
    std::vector<std::string> results;
    for (testing::ChildProcess& rank : ranks) results.push_back(rank.result());
    return results;
  }
  static void connect_by_gloo(Job& job, std::chrono::milliseconds limit = testing::kFarAway) {
    connect(job, *DeviceManager::get().devices(DeviceType::kCpu, "test").front(),
            {.backend = "gloo", .time_limit = limit});
  }

 private:
  const testing::TemporaryDirectory folder_;
};

// The others would wait for their whole time limit.
TEST_F(ConnectFaults, ARankThatLeavesInGoodOrderBeforeItConnectsIsNamed) {
  const auto messages = run([](Job& job) {
    if (job.rank() != 1) connect_by_gloo(job);
    return std::string("left");
  });
  EXPECT_EQ(messages[1], "left");
  for (const int other : {0, 2})  // the later one gets the error of the other
    testing::expect_parts(messages[static_cast<std::size_t>(other)],
                          {"AbortedError: [membership] ", "rank 1 (process ",
                           "has left the job, and this rank waits for all ranks"});
}

// Rank 1, which times out first, is not to blame.
TEST_F(ConnectFaults, TheErrorOfTheFirstRankThatTimesOutReachesTheOthers) {
  const auto messages = run([](Job& job) {
    try {
      if (job.rank() == 2) job.store()->get("never set", Clock::now() + testing::kFarAway);
      // A rank that starts late is not what rank 1 waits for.
      if (job.rank() == 0) job.store()->set("rank 0 has started", "");
      job.store()->get("rank 0 has started", Clock::now() + testing::kFarAway);
      connect_by_gloo(job, job.rank() == 1 ? std::chrono::milliseconds(1000) : testing::kFarAway);
    } catch (const DeadlineExceededError& error) {
      return std::string(error.what());
    }
    return std::string();
  });
  EXPECT_EQ(messages[1], "[connect] rank 2 did not call connect() within 1000 ms");
  for (const int other : {0, 2})
    testing::expect_parts(messages[static_cast<std::size_t>(other)],
                          {"AbortedError: [membership] rank 1 (process ",
                           " aborted: DeadlineExceededError: [connect] rank 2 did not call"});
}

// Rank 1 takes rank 0, the host of the server, for lost, and tells its peers so by shared memory.
TEST_F(ConnectFaults, ARankThatLosesItsConnectionIsNamed) {
  const auto messages = run([](Job& job) {
    const auto communicator =
        connect(job, *DeviceManager::get().devices(DeviceType::kCpu, "test").front(),
                {.backend = "shm", .time_limit = testing::kFarAway});
    communicator->barrier()->wait();
    if (job.rank() == 1)
      for (int descriptor = 3; descriptor < 256; ++descriptor) shutdown(descriptor, SHUT_RDWR);
    while (true) communicator->barrier()->wait();
    return std::string();
  });
  for (const int other : {0, 2})
    testing::expect_parts(messages[static_cast<std::size_t>(other)],
                          {"UnavailableError: [membership] rank 1 (process ", " is gone: "});
}

}  // namespace
}  // namespace tandem::connect_test
