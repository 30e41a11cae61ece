#include <gtest/gtest.h>

#include <atomic>

#include "data/pipelines.h"
#include "support/tensors.h"
#include "tandem/amp.h"
#include "tandem/array.h"
#include "tandem/autodiff.h"
#include "tandem/device.h"
#include "tandem/errors.h"
#include "tandem/math.h"
#include "tandem/random.h"

namespace tandem::dataset_iteration_test {
namespace {

using data::Dataset;
using data::Example;
using namespace testing;

using Values = std::vector<std::int32_t>;

Example add_one(const Example& e) { return {e[0] + 1.0}; }

// --- iteration ---

TEST(Iteration, BeginsANewEpochEachTime) {
  const Dataset dataset = numbers(30).shuffle(30, {.seed = 4});
  for (std::uint64_t epoch = 0; epoch < 3; ++epoch) {
    Values seen;
    const Dataset copy = dataset;  // shares the count
    for (const Example& e : copy) seen.push_back(values_in(e)[0]);
    EXPECT_EQ(seen, elements_of(dataset, epoch));
  }
}

TEST(Iteration, ContinuesFromAPosition) {
  const Dataset dataset = numbers(40).shuffle(40, {.seed = 4}).map(add_one).batch(3).prefetch(2);
  auto iterator = dataset.iterate({.epoch = 6});
  for (int i = 0; i < 5; ++i) iterator.next();
  const data::IterateOptions position = iterator.position();
  EXPECT_EQ(position, (data::IterateOptions{.epoch = 6, .skip = 5}));
  EXPECT_EQ(batches_of(dataset.iterate(position)), batches_of(iterator));
}

TEST(Iteration, DoesNotMapSkippedElements) {
  std::atomic<int> calls = 0;
  const auto counting = [&](const Example& e) {
    ++calls;
    return e;
  };
  const Dataset dataset =
      numbers(100).shuffle(50, {.seed = 1}).map(counting).repeat().batch(8).prefetch(1).take(20);
  auto iterator = dataset.iterate({.skip = 19});
  EXPECT_TRUE(iterator.next());
  EXPECT_FALSE(iterator.next());
  EXPECT_LE(calls, 3 * 8);  // one batch is consumed, two more are prefetched
}

TEST(Iteration, ThrowsIfThereIsNoNextElement) {
  auto iterator = numbers(1).iterate();
  EXPECT_EQ(iterator.next()[0].item<std::int32_t>(), 0);
  expect_error<OutOfRangeError>([&] { iterator.next()[0]; },
                                "[Iterator] the dataset has no next element");
}

TEST(Iteration, OverTheRestOfAnIterator) {
  auto iterator = numbers(5).iterate();
  iterator.next();
  Values rest;
  for (const Example& e : iterator) rest.push_back(values_in(e)[0]);
  EXPECT_EQ(rest, count_up(1, 5));
}

TEST(Iteration, DerivesShufflesFromTheProcessSeed) {
  const auto order = [](std::uint64_t seed) {
    random::set_seed(seed);
    return elements_of(numbers(50).shuffle(50));
  };
  EXPECT_EQ(order(1), order(1));
  EXPECT_NE(order(1), order(2));
  // Two shuffles of one pipeline have different seeds.
  random::set_seed(1);
  const Values twice = elements_of(numbers(50).shuffle(50).shuffle(50));
  const Values once = order(1);
  Values composed;
  for (const std::int32_t i : once) composed.push_back(once[static_cast<std::size_t>(i)]);
  EXPECT_NE(twice, composed);
}

TEST(Iteration, RunsOnTheCpuWithoutRecording) {
  Tensor weight = constant({2.0});
  weight.set_requires_grad();
  const Dataset dataset = numbers(4).map([&](const Example& e) {
    EXPECT_FALSE(grad_enabled());
    return Example{cast(e[0], float32) * weight};
  });
  const DeviceScope elsewhere("/gpu:0");
  for (const int calls : {1, 2}) {
    for (auto iterator =
             dataset.map([](const Example& e) { return e; }, {.num_parallel_calls = calls})
                 .prefetch(1)
                 .iterate();
         const auto e = iterator.next();) {
      EXPECT_FALSE(e[0].requires_grad());
      EXPECT_NE(e[0].device().find("device:CPU:0"), std::string::npos);
    }
  }
  EXPECT_TRUE(grad_enabled());
}

TEST(Iteration, RunsWithoutTheAutocastOfTheConsumer) {
  const auto squared = [](const Example& e) {
    const Tensor row = reshape(cast(e[0], float32), {1, 1});
    return Example{matmul(row, row)};
  };
  const amp::autocast lowers(bfloat16);
  for (const int calls : {1, 2}) {
    auto iterator = numbers(4).map(squared, {.num_parallel_calls = calls}).iterate();
    while (const auto e = iterator.next()) EXPECT_EQ(e[0].dtype(), float32) << calls;
  }
  EXPECT_EQ(amp::autocast_dtype(), bfloat16);
}

TEST(Map, RandomOperationsRepeat) {
  const auto noisy = [](const Example& e) {
    return Example{random::uniform_int({2}, 0, 1'000'000) + e[0] * 0.0};
  };
  const Dataset one = numbers(20).map(noisy);
  const Dataset many = numbers(20).map(noisy, {.num_parallel_calls = 4});
  const Values expected = elements_of(one, 3);
  EXPECT_EQ(elements_of(one, 3), expected);
  EXPECT_EQ(elements_of(many, 3), expected);
  EXPECT_NE(elements_of(one, 4), expected);
  EXPECT_EQ(elements_of(one.iterate({.epoch = 3, .skip = 15})),
            Values(expected.end() - 10, expected.end()));
  // The caller's own generator is not advanced.
  const auto before = random::get_state();
  elements_of(one);
  EXPECT_EQ(random::get_state(), before);
}

TEST(Cache, ComputesEachElementOnce) {
  std::atomic<int> calls = 0;
  const Dataset dataset = numbers(10)
                              .map([&](const Example& e) {
                                ++calls;
                                return add_one(e);
                              })
                              .cache();
  EXPECT_EQ(elements_of(dataset.take(4)), count_up(1, 5));
  EXPECT_EQ(calls, 4);
  EXPECT_EQ(elements_of(dataset), count_up(1, 11));
  EXPECT_EQ(elements_of(dataset, 1), count_up(1, 11));
  EXPECT_EQ(calls, 10);
}

}  // namespace
}  // namespace tandem::dataset_iteration_test
