// When the progress engine's thread runs, and which clients it skips.
#include "comm/process/progress_engine.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "support/files.h"
#include "support/forked_ranks.h"
#include "support/waiting.h"

namespace tandem::progress_engine_test {
namespace {

using testing::eventually;

// Work that takes a number of rounds.
class Rounds final : public ProgressEngine::Client {
 public:
  ~Rounds() override { unregister(); }
  void start(int rounds) {
    const auto lock = attend();
    left_ += rounds;
    hand_over_to_engine();
  }
  void unregister() { unregister_from_engine(); }
  // Like an owner that waits in a call.
  Attendance hold() { return attend(); }
  int left() const { return left_; }
  int looks() const { return looks_; }

 private:
  bool under_way() const override { return left_ > 0; }
  bool advance_unattended() noexcept override {
    ++looks_;
    --left_;
    return true;
  }
  std::atomic<int> left_{0}, looks_{0};
};

std::ptrdiff_t threads() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/task"),
                       std::filesystem::directory_iterator());
}

// The threads of the process without the engine's. ThreadSanitizer starts one with the program's
// first thread.
#if defined(__SANITIZE_THREAD__)
constexpr std::ptrdiff_t kOthers = 2;
#else
constexpr std::ptrdiff_t kOthers = 1;
#endif

std::ptrdiff_t threads_before() {
  std::thread([] {}).join();
  EXPECT_TRUE(eventually([] { return threads() == kOthers; }));
  return kOthers;
}

TEST(ProgressEngine, ItsThreadLastsAsLongAsItsClients) {
  const auto before = threads_before();
  for (int round = 0; round < 3; ++round) {
    Rounds first, second;
    first.start(0);
    EXPECT_EQ(threads(), before) << "nothing is under way";
    first.start(100);
    second.start(100);
    EXPECT_EQ(threads(), before + 1);
    EXPECT_TRUE(eventually([&] { return first.left() == 0 && second.left() == 0; }));
    first.unregister();
    EXPECT_EQ(threads(), before + 1);
    second.unregister();
    EXPECT_TRUE(eventually([&] { return threads() == before; }));
  }
}

// After long pauses the thread sleeps, after short ones it is awake.
TEST(ProgressEngine, NewWorkWakesItsThread) {
  Rounds client;
  for (int pause : {0, 1, 10, 500, 0, 700}) {
    std::this_thread::sleep_for(std::chrono::milliseconds(pause));
    client.start(3);
    EXPECT_TRUE(eventually([&] { return client.left() == 0; })) << pause;
  }
}

TEST(ProgressEngine, LeavesOwnersAloneThatWait) {
  Rounds client, other;
  client.start(1);
  EXPECT_TRUE(eventually([&] { return client.left() == 0; }));
  const auto lock = client.hold();
  const int looks = client.looks();
  other.start(200);  // the thread is running
  EXPECT_TRUE(eventually([&] { return other.left() == 0; }));
  EXPECT_EQ(client.looks(), looks);
}

// How often the engine's thread has slept.
std::int64_t naps() {
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    if (testing::read_file(task.path() / "comm") != "tandem-progress\n") continue;
    const std::string status = testing::read_file(task.path() / "status");
    const std::string_view key = "\nvoluntary_ctxt_switches:";
    return std::stoll(status.substr(status.find(key) + key.size()));
  }
  return -1;
}

// Its naps would use the cores of a host with many ranks.
TEST(ProgressEngine, SleepsWhileAnOwnerWaitsForLong) {
  Rounds client;
  client.start(1'000'000'000);
  EXPECT_TRUE(eventually([&] { return client.looks() > 0; }));
  int looks = 0;
  {
    const auto lock = client.hold();
    looks = client.looks();
    EXPECT_TRUE(eventually([] {
      const std::int64_t before = naps();
      std::this_thread::sleep_for(std::chrono::milliseconds(400));
      return naps() - before < 20;
    }));
  }
  EXPECT_TRUE(eventually([&] { return client.looks() > looks + 1000; }));
}

TEST(ProgressEngine, NeverLooksAtAClientThatHasUnregistered) {
  Rounds stays;
  for (int round = 0; round < 100; ++round) {
    stays.start(5);
    Rounds gone;
    gone.start(1'000'000);
    if (round % 2 == 0) {
      EXPECT_TRUE(eventually([&] { return gone.looks() > 0; }));
    }
    gone.unregister();
    const int looks = gone.looks();
    stays.start(5);
    EXPECT_TRUE(eventually([&] { return stays.left() == 0; }));
    EXPECT_EQ(gone.looks(), looks);
  }
}

TEST(ProgressEngine, ClientsComeAndGoOnManyThreads) {
  const auto before = threads_before();
  std::vector<std::thread> owners;
  for (int owner = 0; owner < 4; ++owner)
    owners.emplace_back([] {
      for (int round = 0; round < 50; ++round) {
        Rounds client;
        client.start(2);
        EXPECT_TRUE(eventually([&] { return client.left() == 0; }));
      }
    });
  for (std::thread& owner : owners) owner.join();
  EXPECT_TRUE(eventually([&] { return threads() == before; }));
}

#if !defined(__SANITIZE_THREAD__)  // it does not support forks of processes with threads
// A forked process has none of the threads, and may register its own clients.
TEST(ProgressEngine, StartsAnewInAForkedProcess) {
  Rounds parents;
  parents.start(1'000'000'000);
  EXPECT_TRUE(eventually([&] { return parents.looks() > 0; }));
  const ExitCodes codes = run_processes(1, [](int) {
    Rounds client;
    client.start(10);
    EXPECT_TRUE(eventually([&] { return client.left() == 0; }));
  });
  EXPECT_EQ(codes, ExitCodes(1, 0));
}
#endif

}  // namespace
}  // namespace tandem::progress_engine_test
