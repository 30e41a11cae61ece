#include "ps/closure_queue.h"

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "core/status.h"
#include "ps/remote_result.h"
#include "support/processes.h"

namespace tandem::ps::closure_queue_test {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kSoon{20}, kLimit{20'000};

struct Named final : Closure {
  explicit Named(int number_) : number(number_) {}
  void cancel(const std::exception_ptr& why) noexcept override { cancelled = why; }
  bool started() const override { return has_started; }
  std::string why() const {
    if (!cancelled) return {};
    try {
      std::rethrow_exception(cancelled);
    } catch (const std::exception& error) {
      return error.what();
    }
  }

  const int number;
  bool has_started = true;  // if it is put back
  std::exception_ptr cancelled;
};

std::shared_ptr<Named> named(int number) { return std::make_shared<Named>(number); }
int number_of(const std::shared_ptr<Closure>& closure) {
  return closure ? static_cast<const Named&>(*closure).number : -1;
}
std::exception_ptr failure(const char* text) {
  return std::make_exception_ptr(InvalidArgumentError(text));
}
// Those who wait for its result get the error, and find it pending.
void fail(ClosureQueue& queue, const std::exception_ptr& error) {
  const auto closure = named(-1);
  queue.failed(closure, error);
  EXPECT_EQ(closure->cancelled, error);
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
  fail(queue, failure("first"));
  fail(queue, failure("second"));
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
    fail(queue, failure("it failed"));
    EXPECT_EQ(error_of([&] { by_schedule ? queue.schedule(named(1)) : void(queue.done()); }),
              "it failed");
    EXPECT_TRUE(queue.done());
  }
}

// As in TensorFlow: a result may be waited for before anybody throws the error.
TEST(ClosureQueue, WorkersGoOnUntilTheErrorIsThrown) {
  ClosureQueue queue;
  for (int i = 0; i < 3; ++i) queue.schedule(named(i));
  queue.take(kLimit);
  fail(queue, failure("it failed"));
  for (int i = 1; i < 3; ++i) {
    EXPECT_EQ(number_of(queue.take(kLimit)), i);
    queue.finished();
  }
  EXPECT_EQ(error_of([&] { queue.join(); }), "it failed");
}

// A closure that has started may have been applied in part, so another worker completes it.
TEST(ClosureQueue, AClosureThatHasStartedEndsBeforeTheErrorIsThrown) {
  ClosureQueue queue;
  const auto lost = named(1), not_sent = named(2), waiting = named(3);
  not_sent->has_started = false;
  queue.schedule(named(0));
  for (const auto& closure : {lost, not_sent, waiting}) queue.schedule(closure);
  for (int i = 0; i < 3; ++i) queue.take(kLimit);
  fail(queue, failure("it failed"));
  std::thread coordinator([&] { EXPECT_EQ(error_of([&] { queue.join(); }), "it failed"); });
  queue.put_back(lost);
  EXPECT_EQ(number_of(queue.take(kLimit)), 1);
  queue.put_back(not_sent);
  // If that was before join(), another worker takes it.
  while (const auto taken = queue.take(kSoon)) queue.finished();
  queue.finished();
  coordinator.join();
  EXPECT_EQ(lost->why(), "");
}

TEST(ClosureQueue, ClosuresThatDelayAnErrorAreSettledWhenNothingRunsAnyMore) {
  std::atomic<bool> cancelled = false;
  std::vector<int> settled;
  ClosureQueue queue({.end_limit = milliseconds(1)},
                     {.cancel_running = [&] { cancelled = true; },
                      .settle =
                          [&](const ClosureQueue::Closures& closures) {
                            for (const auto& each : closures) settled.push_back(number_of(each));
                          }});
  for (int i = 0; i < 2; ++i) queue.schedule(named(i));
  queue.take(kLimit);
  const auto slow = queue.take(kLimit);
  fail(queue, failure("it failed"));
  EXPECT_FALSE(queue.cancelling());
  std::atomic<bool> thrown = false;
  std::thread coordinator([&] {
    EXPECT_EQ(error_of([&] { queue.join(); }), "it failed");
    thrown = true;
  });
  while (!cancelled) std::this_thread::yield();
  EXPECT_TRUE(queue.cancelling());
  EXPECT_FALSE(thrown);
  queue.put_back(slow);  // its call was cancelled
  coordinator.join();
  EXPECT_EQ(settled, (std::vector<int>{1}));
  EXPECT_FALSE(queue.cancelling());
}

TEST(ClosureQueue, ScheduleWaitsWhileTheQueueIsFull) {
  ClosureQueue queue({.capacity = 2}, {});
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

TEST(ClosureQueue, ScheduleHasALimit) {
  ClosureQueue queue({.capacity = 1, .schedule_limit = milliseconds(1)}, {});
  queue.schedule(named(0));
  EXPECT_EQ(error_of([&] { queue.schedule(named(1)); }),
            "[ClusterCoordinator] 1 calls wait for a worker, and none has started within 1 ms");
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

TEST(ClosureQueue, AForkedProcessGetsAnError) {
  ClosureQueue queue;
  queue.schedule(named(1));
  const RemoteResult result;
  const std::function<void()> waits[] = {[&] { queue.join(); }, [&] { queue.schedule(named(2)); },
                                         [&] { result.wait(kLimit); }};
  for (const auto& wait : waits) {
    tandem::testing::ChildProcess child([&] {
      wait();
      return "";
    });
    EXPECT_NE(child.result().find("this process was forked after its parent had made it"),
              std::string::npos);
  }
  EXPECT_EQ(number_of(queue.take(kSoon)), 1);
  queue.finished();
  queue.join();
}

// Workers that fail and lose closures at random: each closure finishes once.
TEST(ClosureQueue, ManyWorkersFinishEveryClosureOnce) {
  constexpr int kClosures = 2000, kWorkers = 4;
  ClosureQueue queue({.capacity = 64}, {});
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
