#include "device/emulated/emulated_stream.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "core/parallel.h"
#include "device/device_manager.h"
#include "support/errors.h"
#include "support/waiting.h"
#include "tandem/errors.h"

namespace tandem::emulated_stream_test {
namespace {

using testing::error_of;
using namespace std::chrono_literals;

constexpr auto kMostTasks = static_cast<std::int64_t>(EmulatedStream::kMostTasks);

// A task that blocks until it is opened.
class Gate {
 public:
  std::function<void()> task() {
    return [open = open_] {
      while (!open->load()) std::this_thread::sleep_for(100us);
    };
  }
  void open() { open_->store(true); }

 private:
  std::shared_ptr<std::atomic<bool>> open_ = std::make_shared<std::atomic<bool>>(false);
};

TEST(EmulatedStream, RunsInOrderOnItsOwnThread) {
  EmulatedStream stream(1, "test");
  EXPECT_EQ(stream.execution(), Stream::Execution::kDeferred);
  std::vector<int> order;
  std::thread::id where;
  for (int i = 0; i < 1000; ++i)
    stream.enqueue([&, i] {
      order.push_back(i);
      where = std::this_thread::get_id();
    });
  stream.synchronize();
  ASSERT_EQ(order.size(), 1000u);
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(order[static_cast<std::size_t>(i)], i);
  EXPECT_EQ(where, stream.thread_id());
  EXPECT_NE(where, std::this_thread::get_id());
}

TEST(EmulatedStream, DefersWork) {
  EmulatedStream stream(1, "test");
  Gate gate;
  stream.enqueue(gate.task());
  int value = 0;
  stream.enqueue([&] { value = 1; });
  const StreamEvent event = stream.record();
  EXPECT_FALSE(event.done());
  EXPECT_EQ(value, 0);
  gate.open();
  event.wait();
  EXPECT_TRUE(event.done());
  EXPECT_EQ(value, 1);
}

TEST(EmulatedStream, EventsStandForWhatWasEnqueuedBefore) {
  EmulatedStream stream(1, "test");
  const StreamEvent none = stream.record();
  EXPECT_TRUE(none.done());
  Gate gate;
  stream.enqueue([] {});
  const StreamEvent before = stream.record();
  stream.enqueue(gate.task());
  const StreamEvent after = stream.record();
  before.wait();
  EXPECT_FALSE(after.done());
  gate.open();
  stream.synchronize();
  EXPECT_TRUE(after.done());
  EXPECT_TRUE(StreamEvent().done());
  StreamEvent().wait();
}

TEST(EmulatedStream, FreesWhatATaskHeldBeforeItIsDone) {
  EmulatedStream stream(1, "test");
  auto held = std::make_shared<int>(1);
  const std::weak_ptr<int> watch = held;
  stream.enqueue([held = std::move(held)] {});
  stream.synchronize();
  EXPECT_TRUE(watch.expired());
}

TEST(EmulatedStream, RunsTasksWithItsTeam) {
  EmulatedStream stream(3, "test");
  int threads = 0;
  stream.enqueue([&] { threads = intra_op_threads(); });
  stream.synchronize();
  EXPECT_EQ(threads, 3);
}

TEST(EmulatedStream, ThrowsTheFirstExceptionOnce) {
  EmulatedStream stream(1, "test");
  bool later = false;
  stream.enqueue([] { throw InvalidArgumentError("first"); });
  stream.enqueue([] { throw InvalidArgumentError("second"); });
  stream.enqueue([&] { later = true; });
  EXPECT_EQ(error_of<InvalidArgumentError>([&] { stream.synchronize(); }), "first");
  EXPECT_TRUE(later);  // later tasks still run
  stream.synchronize();
  stream.enqueue([] { throw NotFoundError("third"); });
  const StreamEvent event = stream.record();
  EXPECT_EQ(error_of<NotFoundError>([&] { event.wait(); }), "third");
  event.wait();
  stream.synchronize();
}

TEST(EmulatedStream, AnEventThrowsOnlyWhatCameBeforeIt) {
  EmulatedStream stream(1, "test");
  stream.enqueue([] {});
  const StreamEvent before = stream.record();
  stream.enqueue([] { throw NotFoundError("after"); });
  stream.drain();
  before.wait();
  EXPECT_EQ(error_of<NotFoundError>([&] { stream.synchronize(); }), "after");
}

// A thread that enqueues is blocked at the limit.
TEST(EmulatedStream, BoundsTheTasksUnderWay) {
  EmulatedStream stream(1, "test");
  Gate gate;
  std::atomic<std::int64_t> enqueued{0};
  std::int64_t most = 0, done = 0;
  stream.enqueue(gate.task());
  std::thread host([&] {
    for (int i = 0; i < 5000; ++i) {
      stream.enqueue([&] { most = std::max(most, enqueued.load() - done++); });
      ++enqueued;
    }
  });
  EXPECT_TRUE(testing::eventually([&] { return enqueued.load() + 1 >= kMostTasks; }));
  gate.open();
  host.join();
  stream.synchronize();
  EXPECT_EQ(done, 5000);
  EXPECT_LE(most, kMostTasks + 1);
}

TEST(EmulatedStream, BoundsTheBytesUnderWay) {
  EmulatedStream stream(1, "test");
  constexpr std::size_t kBytes = EmulatedStream::kMostBytes / 4;
  Gate gate;
  std::atomic<int> enqueued{0};
  int most = 0, done = 0;
  stream.enqueue(gate.task());
  std::thread host([&] {
    for (int i = 0; i < 40; ++i) {
      // A task above the limit waits until the queue is empty.
      stream.enqueue([&] { most = std::max(most, enqueued.load() - done++); },
                     i == 20 ? 8 * kBytes : kBytes);
      ++enqueued;
    }
  });
  EXPECT_TRUE(testing::eventually([&] { return enqueued.load() >= 4; }));
  gate.open();
  host.join();
  stream.synchronize();
  EXPECT_EQ(done, 40);
  EXPECT_LE(most, 5);
}

// The stream that a task enqueues on may wait for that task.
TEST(EmulatedStream, TasksEnqueueWithoutABound) {
  EmulatedStream stream(1, "test"), other(1, "other");
  Gate gate;
  other.enqueue(gate.task());
  std::int64_t done = 0;
  stream.enqueue([&] {
    for (std::int64_t i = 0; i < 2 * kMostTasks; ++i) {
      stream.enqueue([&] { ++done; });
      other.enqueue([] {});
    }
    gate.open();
  });
  stream.synchronize();
  other.synchronize();
  stream.synchronize();
  EXPECT_EQ(done, 2 * kMostTasks);
}

TEST(EmulatedStream, WaitsForOtherStreams) {
  EmulatedStream a(1, "a"), b(1, "b");
  Gate gate;
  int value = 0;
  a.enqueue(gate.task());
  a.enqueue([&] { value = 7; });
  b.wait(a.record());
  int seen = 0;
  b.enqueue([&] { seen = value; });
  const StreamEvent end = b.record();
  EXPECT_FALSE(end.done());
  gate.open();
  end.wait();
  EXPECT_EQ(seen, 7);
  b.wait(b.record());  // already in order
  b.wait(StreamEvent());
  b.synchronize();
}

TEST(EmulatedStream, FailuresTravelAlongEvents) {
  EmulatedStream a(1, "a"), b(1, "b");
  a.enqueue([] { throw NotFoundError("on a"); });
  b.wait(a.record());
  EXPECT_EQ(error_of<NotFoundError>([&] { b.synchronize(); }), "on a");
  a.synchronize();
}

TEST(EmulatedStream, ATaskThatWaitsForItselfIsAnErrorNotAHang) {
  EmulatedStream stream(1, "test");
  stream.enqueue([&] { stream.synchronize(); });
  EXPECT_EQ(error_of<InternalError>([&] { stream.synchronize(); }),
            "[Stream] a task waits for its own stream, which would never end");
  stream.enqueue([&] { stream.drain(); });  // no effect on the stream's own thread
  stream.synchronize();
}

TEST(EmulatedStream, FinishesItsWorkWhenDestroyed) {
  std::atomic<int> count{0};
  {
    EmulatedStream stream(1, "test");
    for (int i = 0; i < 100; ++i) stream.enqueue([&] { ++count; });
  }
  EXPECT_EQ(count.load(), 100);
}

TEST(EmulatedStream, TasksOfSeveralThreadsAllRun) {
  EmulatedStream stream(1, "test");
  std::int64_t sum = 0;  // only the stream's thread touches it
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 2000; ++i) {
        stream.enqueue([&] { ++sum; });
        if (i % 100 == 0) stream.synchronize();
        if (i % 77 == 0) stream.record().wait();
      }
    });
  for (std::thread& thread : threads) thread.join();
  stream.synchronize();
  EXPECT_EQ(sum, 8000);
}

TEST(EmulatedStream, StreamsThatWaitForEachOtherMakeProgress) {
  EmulatedStream a(1, "a"), b(1, "b");
  int value = 0;
  for (int i = 0; i < 500; ++i) {
    a.enqueue([&] { ++value; });
    b.wait(a.record());
    b.enqueue([&] { ++value; });
    a.wait(b.record());
  }
  a.synchronize();
  EXPECT_EQ(value, 1000);
}

TEST(EmulatedStreamDeathTest, TheProcessEndsWithWorkInTheQueue) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        config::set_emulated_gpus(1);
        Stream& stream = DeviceManager::get().devices("test").back()->stream();
        static std::atomic<int> started{0};
        for (int i = 0; i < 200; ++i)  // fewer than wait for room in the queue
          stream.enqueue([] {
            ++started;
            std::this_thread::sleep_for(10ms);
          });
        stream.enqueue([] { std::_Exit(4); });  // would run if the exit waited for the queue
        while (started == 0) std::this_thread::yield();
        // Hides from the compiler that the call does not return, so that the test's objects stay
        // reachable for LeakSanitizer.
        void (*volatile end)(int) = std::exit;
        end(3);
      },
      ::testing::ExitedWithCode(3), "");
}

// Models a library's caches, which the first kernel creates.
struct UsedByATask {
  ~UsedByATask() {
    if (used) std::_Exit(5);
  }
  std::atomic<bool> used{true};
};

TEST(EmulatedStreamDeathTest, WhatATaskUsesOutlivesTheTask) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        static std::atomic<bool> started{false};
        static auto* stream = new EmulatedStream(1, "test");
        stream->enqueue([] {
          static UsedByATask statics;
          started = true;
          std::this_thread::sleep_for(200ms);
          statics.used = false;
        });
        while (!started) std::this_thread::yield();
        std::exit(3);
      },
      ::testing::ExitedWithCode(3), "");
}

TEST(EmulatedStreamDeathTest, WaitingWhileTheProcessEndsIsAnError) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        static EmulatedStream* stream = nullptr;
        std::atexit([] {  // runs after the streams stopped
          try {
            stream->enqueue([] {});
            stream->synchronize();
          } catch (const UnavailableError& e) {
            std::fprintf(stderr, "%s\n", e.what());
            std::_Exit(4);
          }
        });
        stream = new EmulatedStream(1, "test");
        stream->enqueue([] {});
        stream->synchronize();
        std::exit(3);
      },
      ::testing::ExitedWithCode(4), "waiting for a device while the process exits");
}

}  // namespace
}  // namespace tandem::emulated_stream_test
