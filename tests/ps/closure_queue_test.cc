#include "ps/closure_queue.h"

#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "core/status.h"

namespace tandem::ps::closure_queue_test {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kSoon{20}, kLimit{20'000};

struct Named final : Closure {
  explicit Named(int number_) : number(number_) {}
  void cancel(const std::exception_ptr& why) noexcept override { cancelled = why; }
  std::string why() const {
    if (!cancelled) return {};
    try {
      std::rethrow_exception(cancelled);
    } catch (const std::exception& error) {
      return error.what();
    }
  }

  const int number;
  std::exception_ptr cancelled;
};

std::shared_ptr<Named> named(int number) { return std::make_shared<Named>(number); }
int number_of(const std::shared_ptr<Closure>& closure) {
  return closure ? static_cast<const Named&>(*closure).number : -1;
}
std::exception_ptr failure(const char* text) {
  return std::make_exception_ptr(InvalidArgumentError(text));
}
std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const std::exception& error) {
    return error.what();
  }
  return {};
}

TEST(ClosureQueue, GivesClosuresInOrder) {
  ClosureQueue queue;
  queue.schedule(named(0));
  queue.schedule(named(1));
  EXPECT_EQ(number_of(queue.take(kLimit)), 0);
  EXPECT_EQ(number_of(queue.take(kLimit)), 1);
  EXPECT_EQ(queue.take(kSoon), nullptr);
}

TEST(ClosureQueue, IsDoneWhenNothingIsQueuedOrRunning) {
  ClosureQueue queue;
  EXPECT_TRUE(queue.done());
  queue.schedule(named(0));
  EXPECT_FALSE(queue.done());
  queue.take(kLimit);
  EXPECT_FALSE(queue.done());
  queue.finished();
  EXPECT_TRUE(queue.done());
  queue.join();
}

TEST(ClosureQueue, LostClosureIsTheNext) {
  ClosureQueue queue;
  queue.schedule(named(0));
  queue.schedule(named(1));
  queue.put_back(queue.take(kLimit));
  EXPECT_EQ(number_of(queue.take(kLimit)), 0);
  EXPECT_EQ(number_of(queue.take(kLimit)), 1);
}

TEST(ClosureQueue, FirstErrorIsThrownOnceAndTheQueueIsUsableAgain) {
  ClosureQueue queue;
  const auto waiting = named(2);
  queue.schedule(named(0));
  queue.schedule(named(1));
  queue.schedule(waiting);
  queue.take(kLimit);
  queue.take(kLimit);
  queue.failed(failure("first"));
  queue.failed(failure("second"));
  EXPECT_EQ(queue.take(kSoon), nullptr);  // nothing starts while an error is pending
  EXPECT_EQ(error_of([&] { queue.join(); }), "first");
  EXPECT_EQ(waiting->why(),
            "The corresponding function is cancelled. Please reschedule the function.");
  EXPECT_TRUE(queue.done());
  queue.schedule(named(3));
  EXPECT_EQ(number_of(queue.take(kLimit)), 3);
}

TEST(ClosureQueue, ErrorIsThrownByScheduleAndByDone) {
  for (const bool by_schedule : {true, false}) {
    ClosureQueue queue;
    queue.schedule(named(0));
    queue.take(kLimit);
    queue.failed(failure("it failed"));
    EXPECT_EQ(error_of([&] { by_schedule ? queue.schedule(named(1)) : void(queue.done()); }),
              "it failed");
    EXPECT_TRUE(queue.done());
  }
}

TEST(ClosureQueue, ErrorIsThrownWhenNothingRunsAnyMore) {
  ClosureQueue queue(10, std::chrono::milliseconds(1));
  queue.schedule(named(0));
  const auto lost = named(1);
  queue.schedule(lost);
  queue.take(kLimit);
  const auto taken = queue.take(kLimit);
  queue.failed(failure("it failed"));
  EXPECT_FALSE(queue.cancelling());
  std::atomic<bool> thrown = false;
  std::thread coordinator([&] {
    EXPECT_EQ(error_of([&] { queue.join(); }), "it failed");
    thrown = true;
  });
  while (!queue.cancelling()) std::this_thread::yield();
  EXPECT_FALSE(thrown);
  queue.put_back(taken);  // its worker was lost: it is cancelled
  coordinator.join();
  EXPECT_EQ(lost->why(),
            "The corresponding function was cancelled while attempting to recover from worker "
            "failure.");
  EXPECT_FALSE(queue.cancelling());
}

TEST(ClosureQueue, ScheduleWaitsWhileTheQueueIsFull) {
  ClosureQueue queue(2);
  queue.schedule(named(0));
  queue.schedule(named(1));
  std::atomic<bool> scheduled = false;
  std::thread coordinator([&] {
    queue.schedule(named(2));
    scheduled = true;
  });
  std::this_thread::sleep_for(kSoon);
  EXPECT_FALSE(scheduled);
  queue.take(kLimit);
  coordinator.join();
  EXPECT_TRUE(scheduled);
}

TEST(ClosureQueue, StopEndsEveryWait) {
  ClosureQueue queue, ended;
  const auto waiting = named(0);
  ended.schedule(waiting);
  ended.stop();
  EXPECT_EQ(waiting->why(), "The coordinator has ended.");
  std::thread worker([&] { EXPECT_EQ(queue.take(kLimit), nullptr); });
  std::this_thread::sleep_for(kSoon);
  queue.stop();
  worker.join();
  EXPECT_TRUE(queue.cancelling());
  EXPECT_THROW(queue.schedule(named(1)), FailedPreconditionError);
}

// Workers that fail and lose closures at random: each closure finishes once.
TEST(ClosureQueue, ManyWorkersFinishEveryClosureOnce) {
  constexpr int kClosures = 2000, kWorkers = 4;
  ClosureQueue queue(64);
  std::vector<std::atomic<int>> finished(kClosures);
  std::atomic<bool> end = false;
  std::vector<std::thread> workers;
  for (int worker = 0; worker < kWorkers; ++worker)
    workers.emplace_back([&, worker] {
      unsigned random = static_cast<unsigned>(worker) + 1;
      while (!end) {
        auto closure = queue.take(kSoon);
        if (!closure) continue;
        random = random * 1664525u + 1013904223u;
        if (random >> 30 == 0) {
          queue.put_back(closure);
        } else {
          ++finished[static_cast<std::size_t>(number_of(closure))];
          queue.finished();
        }
      }
    });
  for (int i = 0; i < kClosures; ++i) queue.schedule(named(i));
  queue.join();
  end = true;
  for (std::thread& worker : workers) worker.join();
  for (const auto& count : finished) EXPECT_EQ(count, 1);
}

}  // namespace
}  // namespace tandem::ps::closure_queue_test
