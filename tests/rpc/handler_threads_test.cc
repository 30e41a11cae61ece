#include "rpc/service/handler_threads.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>

#include "support/waiting.h"

namespace tandem::rpc::handler_threads_test {
namespace {

using tandem::testing::eventually;

// Events are functions. The destructor waits for the threads.
class Threads {
 public:
  Threads(int handlers, int waiting) {
    threads_.emplace(handlers, waiting, [this] { return take(); });
  }
  ~Threads() {
    {
      const std::lock_guard lock(mutex_);
      closed_ = true;
    }
    changed_.notify_all();
  }

  void add_event(std::function<void()> event) {
    {
      const std::lock_guard lock(mutex_);
      events_.push_back(std::move(event));
    }
    changed_.notify_one();
  }
  // An event that submits the task.
  void add_task(std::function<void()> task) {
    add_event([this, task = std::move(task)] {
      if (!threads_->submit(task)) ++refused_;
    });
  }
  int refused() const { return refused_; }

 private:
  bool take() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return closed_ || !events_.empty(); });
    if (events_.empty()) return false;
    const std::function<void()> event = std::move(events_.front());
    events_.pop_front();
    lock.unlock();
    event();
    return true;
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> events_;
  bool closed_ = false;
  std::atomic<int> refused_ = 0;
  std::optional<HandlerThreads> threads_;  // the last member: they use the others
};

TEST(HandlerThreads, RunAsManyTasksAtATimeAsTheyMay) {
  std::atomic<int> running = 0, ran = 0;
  std::atomic<bool> ends = false, too_many = false;
  {
    Threads threads(3, 100);
    for (int i = 0; i < 50; ++i)
      threads.add_task([&] {
        if (++running > 3) too_many = true;
        eventually([&] { return ends.load(); });
        --running;
        ++ran;
      });
    EXPECT_TRUE(eventually([&] { return running == 3; }));
    ends = true;
  }
  EXPECT_EQ(ran, 50) << "the destructor waits for all";
  EXPECT_FALSE(too_many);
}

TEST(HandlerThreads, TakeEventsWhileAllHandlersAreBusy) {
  std::atomic<int> running = 0, taken = 0;
  std::atomic<bool> ends = false;
  Threads threads(2, 3);
  const auto task = [&] {
    ++running;
    eventually([&] { return ends.load(); });
  };
  for (int i = 0; i < 2; ++i) threads.add_task(task);
  EXPECT_TRUE(eventually([&] { return running == 2; }));
  for (int i = 0; i < 6; ++i) threads.add_task(task);
  for (int i = 0; i < 8; ++i) threads.add_event([&] { ++taken; });
  EXPECT_TRUE(eventually([&] { return taken == 8; }));
  EXPECT_EQ(running, 2);
  EXPECT_EQ(threads.refused(), 3) << "of 8, 2 run and 3 wait";
  ends = true;
  EXPECT_TRUE(eventually([&] { return running == 5; }));
}

}  // namespace
}  // namespace tandem::rpc::handler_threads_test
