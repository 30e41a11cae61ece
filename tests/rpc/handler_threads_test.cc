#include "rpc/service/handler_threads.h"

#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <thread>

#include "support/waiting.h"

namespace tandem::rpc::handler_threads_test {
namespace {

using tandem::testing::eventually;

TEST(HandlerThreads, RunAsManyTasksAtATimeAsTheyMay) {
  std::atomic<int> running = 0, ran = 0;
  std::atomic<bool> ends = false, too_many = false;
  {
    HandlerThreads threads(3, 100);
    for (int i = 0; i < 50; ++i)
      EXPECT_TRUE(threads.submit([&] {
        if (++running > 3) too_many = true;
        eventually([&] { return ends.load(); });
        --running;
        ++ran;
      }));
    EXPECT_TRUE(eventually([&] { return running == 3; }));
    ends = true;
  }
  EXPECT_EQ(ran, 50) << "the destructor waits for all";
  EXPECT_FALSE(too_many);
}

TEST(HandlerThreads, RefuseTasksOfWhichTooManyWait) {
  std::atomic<int> running = 0;
  std::atomic<bool> ends = false;
  HandlerThreads threads(1, 2);
  const auto task = [&] {
    ++running;
    eventually([&] { return ends.load(); });
  };
  EXPECT_TRUE(threads.submit(task));
  EXPECT_TRUE(eventually([&] { return running == 1; }));
  EXPECT_TRUE(threads.submit(task));
  EXPECT_TRUE(threads.submit(task));
  EXPECT_FALSE(threads.submit(task));
  ends = true;
  EXPECT_TRUE(eventually([&] { return running == 3; }));
}

TEST(HandlerThreads, GiveMostTasksThatFollowEachOtherToOneThread) {
  std::map<std::thread::id, int> tasks;
  constexpr int kTasks = 100;
  HandlerThreads threads(7, 10);
  for (int i = 0; i < kTasks; ++i) {
    std::atomic<bool> done = false;
    threads.submit([&] {
      ++tasks[std::this_thread::get_id()];
      done = true;
    });
    eventually([&] { return done.load(); });
    // Most of the time, the thread is idle after that. Taking turns would give each an eighth.
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  const auto most = std::max_element(
      tasks.begin(), tasks.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  EXPECT_GT(most->second, kTasks / 3);
}

// Counts what is written into an eventfd. Submits a task for each, if it is asked to.
class Counter final : public Source {
 public:
  Counter(HandlerThreads& threads, std::function<void()> task)
      : threads_(threads),
        task_(std::move(task)),
        file_(eventfd(0, EFD_NONBLOCK | EFD_SEMAPHORE)) {}

  int descriptor() const override { return file_.descriptor(); }
  void ready() override {
    std::uint64_t one = 0;
    if (read(file_.descriptor(), &one, sizeof(one)) == sizeof(one)) {
      ++count_;
      if (task_ && !threads_.submit_from_source(task_)) ++refused_;
    }
    threads_.arm(*this, false);
  }
  void write_one() const {
    const std::uint64_t one = 1;
    EXPECT_EQ(write(file_.descriptor(), &one, sizeof(one)), ssize_t{sizeof(one)});
  }
  int count() const { return count_; }
  int refused() const { return refused_; }

 private:
  HandlerThreads& threads_;
  const std::function<void()> task_;
  const Socket file_;
  std::atomic<int> count_ = 0, refused_ = 0;
};

TEST(HandlerThreads, ReadFromSourcesWhileAllHandlersAreBusy) {
  std::atomic<int> running = 0;
  std::atomic<bool> ends = false;
  HandlerThreads threads(2, 3);
  const auto source = std::make_shared<Counter>(threads, [&] {
    ++running;
    eventually([&] { return ends.load(); });
  });
  threads.watch(source);
  for (int i = 0; i < 8; ++i) source->write_one();
  EXPECT_TRUE(eventually([&] { return source->count() == 8; }));
  EXPECT_EQ(running, 2);
  EXPECT_EQ(source->refused(), 3) << "of 8, 2 run and 3 wait";
  ends = true;
  EXPECT_TRUE(eventually([&] { return running == 5; }));
}

TEST(HandlerThreads, ForgetSources) {
  HandlerThreads threads(1, 1);
  auto source = std::make_shared<Counter>(threads, nullptr);
  const std::weak_ptr<Source> weak = source;
  threads.watch(source);
  source->write_one();
  EXPECT_TRUE(eventually([&] { return source->count() == 1; }));
  threads.forget(*source);
  threads.forget(*source);
  source->write_one();
  threads.arm(*source, true);
  std::atomic<bool> done = false;
  threads.submit([&] { done = true; });
  EXPECT_TRUE(eventually([&] { return done.load(); }));
  EXPECT_EQ(source->count(), 1);
  source.reset();
  EXPECT_TRUE(eventually([&] { return weak.expired(); }));
}

}  // namespace
}  // namespace tandem::rpc::handler_threads_test
