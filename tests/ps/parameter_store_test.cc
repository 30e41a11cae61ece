#include "ps/parameter_store.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "ps/in_process.h"
#include "support/tensors.h"

namespace tandem::ps::parameter_store_test {
namespace {

using tandem::testing::expect_error;

// The update v += value, as function 0, update 0.
void add_assign_add(ParameterStore& store, std::int64_t size) {
  store.add_update(0, 0, testing::assign_add(size));
}

TEST(ParameterStore, ReadsAndAssigns) {
  ParameterStore store;
  store.create(3, "v", constant({1.0f, 2.0f}));
  EXPECT_EQ(store.read(3).value.to_vector<float>(), (std::vector<float>{1, 2}));
  EXPECT_EQ(store.read(3).version, 0u);
  const Tensor before = store.read(3).value;
  store.assign(3, constant({5.0f, 6.0f}));
  EXPECT_EQ(store.read(3).value.to_vector<float>(), (std::vector<float>{5, 6}));
  EXPECT_EQ(store.read(3).version, 1u);
  EXPECT_EQ(before.to_vector<float>(), (std::vector<float>{1, 2}));
}

TEST(ParameterStore, DoesNotShareMemoryWithTheInitialValue) {
  ParameterStore store;
  const Tensor value = zeros({4});
  store.create(3, "v", value);
  add_assign_add(store, 4);
  const Tensor one = ones({4});
  store.apply(0, 0, 0, {&one, 1}, {});
  EXPECT_EQ(value.to_vector<float>(), std::vector<float>(4, 0));
}

TEST(ParameterStore, CreatesOnce) {
  ParameterStore store;
  store.create(3, "v", constant({1.0f, 2.0f}));
  store.create(3, "v", constant({7.0f, 7.0f}));  // a repeated call
  EXPECT_EQ(store.read(3).value.to_vector<float>(), (std::vector<float>{1, 2}));
  expect_error<AlreadyExistsError>(
      [&] { store.create(3, "v", zeros({3})); },
      "variable 3 exists with shape (2,) and dtype float32, and was created again with (3,)");
}

TEST(ParameterStore, UnknownVariablesAndUpdatesAreErrors) {
  ParameterStore store;
  expect_error<NotFoundError>([&] { store.read(3); }, "there is no variable 3 here");
  expect_error<NotFoundError>([&] { store.assign(3, zeros({1})); }, "there is no variable 3 here");
  expect_error<NotFoundError>([&] { add_assign_add(store, 2); }, "there is no variable 3 here");
  expect_error<NotFoundError>([&] { store.apply(4, 1, 0, {}, {}); },
                              "update 1 of function 4 is not known here");
  store.create(3, "v", zeros({2}));
  expect_error<InvalidArgumentError>(
      [&] { store.assign(3, zeros({3})); },
      "expected a value of shape (2,) and dtype float32 for variable 'v', got (3,)");
  expect_error<InvalidArgumentError>(
      [&] { add_assign_add(store, 5); },
      "expected an update of shape (2,) and dtype float32 for variable 'v', got (5,)");
}

TEST(ParameterStore, UpdateOfAClosureIsAppliedOnce) {
  ParameterStore store;
  store.create(3, "v", zeros({2}));
  add_assign_add(store, 2);
  const Tensor one = ones({2});
  EXPECT_FALSE(store.apply(0, 0, 5, {&one, 1}, {}).repeated);
  EXPECT_TRUE(store.apply(0, 0, 5, {&one, 1}, {}).repeated);
  EXPECT_FALSE(store.apply(0, 0, 4, {&one, 1}, {}).repeated);
  EXPECT_EQ(store.apply(0, 0, 6, {&one, 1}, {}).version, 2u);
  EXPECT_EQ(store.read(3).value.to_vector<float>(), (std::vector<float>{3, 3}));
  EXPECT_EQ(store.num_remembered(), 3u);
  store.finish(testing::finished_below(6));
  EXPECT_TRUE(store.apply(0, 0, 4, {&one, 1}, {}).repeated);  // forgotten, but finished
  EXPECT_EQ(store.num_remembered(), 1u);
  EXPECT_EQ(store.read(3).value.to_vector<float>(), (std::vector<float>{3, 3}));
}

// One that hangs is an exception, so that the store forgets those after it.
TEST(ParameterStore, RemembersOnlyClosuresThatHaveNotFinished) {
  ParameterStore store;
  store.create(3, "v", zeros({2}));
  add_assign_add(store, 2);
  const Tensor one = ones({2});
  const auto is_repeated = [&](std::uint64_t closure) {
    return store.apply(0, 0, closure, {&one, 1}, {}).repeated;
  };
  for (std::uint64_t closure = 1; closure < 100; ++closure) EXPECT_FALSE(is_repeated(closure));
  store.finish(testing::finished_below(90, {0, 50}));
  store.finish(testing::finished_below(40, {0, 7}));  // an earlier message that was late
  EXPECT_FALSE(is_repeated(0));
  EXPECT_EQ(store.num_remembered(), 12u);  // 0, 50 and those from 90
  for (const std::uint64_t closure : {0, 7, 50, 89, 90}) EXPECT_TRUE(is_repeated(closure));
  store.finish(testing::finished_below(40));
  store.finish(testing::finished_below(100, {50, 99}));
  EXPECT_TRUE(is_repeated(0));
  EXPECT_EQ(store.num_remembered(), 2u);
}

TEST(ParameterStore, FailedUpdateChangesNothingAndMayBeRepeated) {
  ParameterStore store;
  store.create(3, "v", zeros({2}));
  add_assign_add(store, 2);
  const Tensor wrong = ones({7}), one = ones({2});
  EXPECT_THROW(store.apply(0, 0, 0, {&wrong, 1}, {}), InvalidArgumentError);
  EXPECT_EQ(store.read(3).version, 0u);
  EXPECT_FALSE(store.apply(0, 0, 0, {&one, 1}, {}).repeated);
}

// Readers see all of an update or nothing of it.
TEST(ParameterStore, ConcurrentReadsAreWhole) {
  constexpr std::int64_t kSize = 50'000;
  constexpr int kUpdates = 200;
  ParameterStore store;
  store.create(3, "v", zeros({kSize}));
  add_assign_add(store, kSize);
  std::atomic<bool> done = false, torn = false;
  std::vector<std::thread> readers;
  for (int reader = 0; reader < 2; ++reader)
    readers.emplace_back([&] {
      while (!done) {
        const ParameterStore::Read read = store.read(3);
        for (const float element : read.value.to_vector<float>())
          if (element != static_cast<float>(read.version)) torn = true;
      }
    });
  std::vector<std::thread> writers;
  for (std::uint64_t writer = 0; writer < 2; ++writer)
    writers.emplace_back([&, writer] {
      const Tensor one = ones({kSize});
      for (std::uint64_t i = 0; i < kUpdates; ++i) store.apply(0, 0, 2 * i + writer, {&one, 1}, {});
    });
  for (std::thread& thread : writers) thread.join();
  done = true;
  for (std::thread& thread : readers) thread.join();
  EXPECT_FALSE(torn);
  EXPECT_EQ(store.read(3).version, 2u * kUpdates);
  EXPECT_EQ(store.read(3).value.to_vector<float>()[kSize - 1], 2.0f * kUpdates);
}

TEST(ParameterStore, CountsStaleness) {
  ParameterStore store;
  store.create(3, "v", zeros({2}));
  add_assign_add(store, 2);
  const Tensor one = ones({2});
  const auto apply = [&](std::uint64_t closure, std::uint64_t version) {
    return store.apply(0, 0, closure, {&one, 1}, {}, version);
  };
  EXPECT_EQ(apply(0, 0).staleness, 0u);
  EXPECT_EQ(apply(1, 0).staleness, 1u);
  EXPECT_EQ(apply(2, 7).staleness, 0u);  // of a state that a restart has lost
  EXPECT_TRUE(apply(2, 0).repeated);
  EXPECT_EQ(store.read(3).value.to_vector<float>(), std::vector<float>(2, 3));
  const ParameterStore::Counts counts = store.counts();
  EXPECT_EQ(counts.applied, 3);
  EXPECT_EQ(counts.repeated, 1);
  EXPECT_EQ(counts.staleness_sum, 1u);
  EXPECT_EQ(counts.staleness_max, 1u);
}

}  // namespace
}  // namespace tandem::ps::parameter_store_test
