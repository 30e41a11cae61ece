// Instances of one program for several callers.
#include "graph/program_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <mutex>
#include <set>
#include <thread>

#include "graph_support.h"

namespace tandem::program_pool_test {
namespace {

using Body = std::function<std::vector<Tensor>(const std::vector<Tensor>&)>;

std::unique_ptr<Program> program_of(const Body& body) {
  const DeviceScope cpu("/cpu:0");
  return std::make_unique<Program>(block_of({ones({2, 2}).cpu()}, body));
}

std::unique_ptr<Program> doubling() {
  return program_of([](const auto& x) { return std::vector{x[0] * 2.0}; });
}

TEST(ProgramPool, ProgramsThatChangeNothingMayRunAtTheSameTime) {
  const DeviceScope cpu("/cpu:0");
  Variable w(ones({2, 2}));
  EXPECT_TRUE(doubling()->concurrent());
  EXPECT_TRUE(program_of([&](const auto& x) {
                return std::vector{nn::relu(matmul(x[0], w))};
              })->concurrent());
}

TEST(ProgramPool, ProgramsThatChangeSomethingMayNot) {
  const DeviceScope cpu("/cpu:0");
  Variable w(ones({2, 2}));
  EXPECT_FALSE(program_of([&](const auto& x) {
                 w.assign_add(x[0]);
                 return std::vector{x[0]};
               })->concurrent());
  EXPECT_FALSE(program_of([](const auto& x) {
                 return std::vector{x[0] + random::uniform({2, 2})};
               })->concurrent());
  EXPECT_FALSE(
      program_of([](const auto& x) {
        return std::vector{cond(
            reduce_sum(x[0]) > 0.0, [&] { return x[0] + 1.0; }, [&] { return x[0] * 2.0; })};
      })->concurrent());
  // A run may write the copy of the variable in the other dtype.
  EXPECT_FALSE(program_of([&](const auto& x) {
                 return std::vector{matmul(cast(x[0], bfloat16), cast(w, bfloat16))};
               })->concurrent());
}

TEST(ProgramPool, MakesAnInstanceOnlyIfAllOthersAreInUse) {
  ProgramPool pool(doubling());
  int made = 0;
  const auto make = [&] {
    ++made;
    return doubling();
  };
  for (int i = 0; i < 2; ++i) {
    const auto first = pool.take(make);
    EXPECT_EQ(made, i);
    const auto second = pool.take(make);
    EXPECT_EQ(made, 1);
    EXPECT_NE(first.operator->(), second.operator->());
    const Tensor x = ones({2, 2}).cpu();
    EXPECT_EQ(second->run({&x, 1})[0].to_vector<float>(), std::vector<float>(4, 2.0f));
  }
}

TEST(ProgramPool, AFailureToMakeAnInstanceLeavesNoneInUse) {
  ProgramPool pool(doubling());
  const auto first = pool.take(doubling);
  const auto fails = []() -> std::unique_ptr<Program> { throw RuntimeError("no"); };
  EXPECT_THROW(pool.take(fails), RuntimeError);
  EXPECT_NE(pool.take(doubling).operator->(), nullptr);
}

TEST(ProgramPool, ManyCallersShareAFewInstancesAndNoneHasTwo) {
  ProgramPool pool(doubling());
  const std::size_t cores = std::max<std::size_t>(2, std::thread::hardware_concurrency());
  std::mutex mutex;
  std::set<Program*> in_use, all;
  std::vector<std::thread> callers;
  for (std::size_t i = 0; i < cores + 3; ++i)
    callers.emplace_back([&] {
      for (int call = 0; call < 200; ++call) {
        const auto taken = pool.take(doubling);
        {
          const std::lock_guard lock(mutex);
          EXPECT_TRUE(in_use.insert(taken.operator->()).second);
          all.insert(taken.operator->());
        }
        std::this_thread::yield();
        const std::lock_guard lock(mutex);
        in_use.erase(taken.operator->());
      }
    });
  for (std::thread& caller : callers) caller.join();
  EXPECT_LE(all.size(), cores);
}

}  // namespace
}  // namespace tandem::program_pool_test
