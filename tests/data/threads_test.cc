// Pipelines that run threads: order, errors, and early destruction.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "data/pipelines.h"
#include "support/tensors.h"
#include "support/waiting.h"
#include "tandem/errors.h"
#include "tandem/math.h"

namespace tandem::threads_test {
namespace {

using data::Dataset;
using data::Example;
using testing::count_up;
using testing::elements_of;
using testing::expect_error;
using testing::numbers;
using testing::values_in;

Example same(const Example& e) { return e; }

Example fail_at_7(const Example& e) {
  if (e[0].item<std::int32_t>() == 7) throw DataLossError("[test] element 7");
  return e;
}

TEST(ParallelMap, KeepsTheOrder) {
  const auto uneven = [](const Example& e) {
    if (e[0].item<std::int32_t>() % 5 == 0)
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    return Example{e[0] + 1.0};
  };
  EXPECT_EQ(elements_of(numbers(100).map(uneven, {.num_parallel_calls = 4})), count_up(1, 101));
  auto any_order =
      elements_of(numbers(100).map(uneven, {.num_parallel_calls = 4, .deterministic = false}));
  std::sort(any_order.begin(), any_order.end());
  EXPECT_EQ(any_order, count_up(1, 101));
}

TEST(ParallelMap, RunsCallsInParallel) {
  // Each call waits until another call runs at the same time.
  std::mutex mutex;
  std::condition_variable changed;
  int inside = 0, met = 0;
  const auto meet = [&](const Example& e) {
    std::unique_lock lock(mutex);
    ++inside;
    if (inside >= 2) ++met;
    changed.notify_all();
    changed.wait_for(lock, testing::kPatience, [&] { return met > 0; });
    --inside;
    return e;
  };
  elements_of(numbers(4).map(meet, {.num_parallel_calls = 2}));
  EXPECT_GT(met, 0);
}

TEST(Prefetch, ProducesElementsAhead) {
  std::atomic<int> made = 0;
  auto iterator = numbers(50)
                      .map([&](const Example& e) {
                        ++made;
                        return e;
                      })
                      .prefetch(5)
                      .iterate();
  EXPECT_EQ(values_in(*iterator.next())[0], 0);
  testing::eventually([&] { return made >= 7; });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(made, 7);  // one consumed, five in the buffer, one held by the producer
  EXPECT_EQ(elements_of(iterator), count_up(1, 50));
}

TEST(Errors, ReachTheConsumerInOrder) {
  const Dataset pipelines[] = {
      numbers(20).map(fail_at_7),
      numbers(20).map(fail_at_7).prefetch(3),
      numbers(20).map(fail_at_7, {.num_parallel_calls = 3}),
      numbers(20)
          .map(fail_at_7, {.num_parallel_calls = 3})
          .prefetch(2)
          .map(same, {.num_parallel_calls = 2})
          .prefetch(1),
      numbers(20).filter([](const Example& e) { return fail_at_7(e).size() == 1; }).prefetch(2),
      numbers(20).map(fail_at_7).cache(),
  };
  for (const Dataset& dataset : pipelines) {
    auto iterator = dataset.iterate();
    for (int i = 0; i < 7; ++i) EXPECT_EQ(values_in(*iterator.next())[0], i);
    expect_error<DataLossError>([&] { iterator.next(); }, "[test] element 7");
    EXPECT_FALSE(iterator.next()) << "an iterator that failed is at its end";
  }
}

TEST(Errors, OfAGeneratorReachTheConsumer) {
  const Dataset dataset = Dataset::from_generator([] {
    return [i = 0]() mutable -> std::optional<Example> {
      if (i == 3) throw std::runtime_error("no more");
      return Example{constant(i++)};
    };
  });
  auto iterator = dataset.batch(2).prefetch(1).iterate();
  EXPECT_TRUE(iterator.next());
  EXPECT_THROW(iterator.next(), std::runtime_error);
}

TEST(LeavingEarly, JoinsTheThreads) {
  std::atomic<int> running = 0;
  const auto tracked = [&](const Example& e) {
    ++running;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    --running;
    return e;
  };
  const Dataset dataset = numbers(1000)
                              .repeat()
                              .map(tracked, {.num_parallel_calls = 3})
                              .prefetch(4)
                              .map(tracked)
                              .prefetch(2);
  for (int taken = 0; taken < 8; ++taken) {
    auto iterator = dataset.iterate();
    for (int i = 0; i < taken; ++i) iterator.next();
    iterator = {};
    EXPECT_EQ(running, 0) << "a thread outlived its iterator";
  }
}

TEST(LeavingEarly, DoesNotWaitForAnElementThatNeverComes) {
  // Nine elements, then a search that never ends.
  const auto endless = [] {
    auto found = std::make_shared<std::atomic<int>>(0);
    return numbers(10).repeat().filter([found](const Example&) { return ++*found <= 9; });
  };
  const Dataset pipelines[] = {
      endless().prefetch(1),
      endless().batch(2).prefetch(1),
      endless().map(same, {.num_parallel_calls = 2}).prefetch(1),
      endless().map(same, {.num_parallel_calls = 2}),
      endless().prefetch(1).map(same, {.num_parallel_calls = 2}).batch(2).prefetch(1),
      Dataset::zip({endless(), numbers(1000)}).prefetch(2).prefetch(2),
  };
  for (const Dataset& dataset : pipelines) {
    auto iterator = dataset.iterate();
    EXPECT_TRUE(iterator.next());
    EXPECT_TRUE(iterator.next());
    std::this_thread::sleep_for(
        std::chrono::milliseconds(30));  // lets the threads begin the search
    iterator = {};                       // would not return
  }
}

TEST(Threads, MayIterateOverOneDataset) {
  const Dataset dataset =
      numbers(200).shuffle(50, {.seed = 1}).map(same).cache().batch(7).prefetch(2);
  const auto expected = elements_of(dataset, 2);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] { EXPECT_EQ(elements_of(dataset, 2), expected); });
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace tandem::threads_test
