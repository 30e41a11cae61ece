#include "core/callers.h"

#include <gtest/gtest.h>

#include <latch>
#include <thread>

#include "core/parallel.h"

namespace tandem::callers_test {
namespace {

int share_now(int threads) { return Caller().share(threads); }

// Runs body(i) on `count` threads, which enter one after another and stay inside until all are.
template <class Body>
void in_threads(int count, const Body& body) {
  if (count == 0) return;
  std::thread([&] {
    const Caller caller;
    body(count, caller);
    in_threads(count - 1, body);
  }).join();
}

TEST(Callers, ThreadsThatComputeAtTheSameTimeShareTheCores) {
  EXPECT_EQ(share_now(8), 8);
  const Caller first;
  EXPECT_EQ(first.share(8), 8);
  const int shares[] = {1, 2, 2, 4};  // of the fourth to the first of the others
  in_threads(4, [&](int left, const Caller& caller) {
    EXPECT_EQ(caller.share(8), shares[left - 1]);
    EXPECT_EQ(caller.share(1), 1);
    const Caller nested;
    EXPECT_EQ(nested.share(8), shares[left - 1]);
  });
}

// Another team costs the start and the end of threads.
TEST(Callers, AThreadTakesMoreCoresAgainWhenItHasBeenAloneForSomeCalls) {
  std::latch inside(1), leave(1);
  std::thread other([&] {
    const Caller caller;
    inside.count_down();
    leave.wait();
  });
  inside.wait();
  EXPECT_EQ(share_now(8), 4);
  leave.count_down();
  other.join();
  for (int call = 1; call < 64; ++call) EXPECT_EQ(share_now(8), 4) << call;
  EXPECT_EQ(share_now(8), 8);
}

TEST(Callers, AThreadWithABudgetIsNotCountedAndKeepsToIt) {
  std::latch inside(1), leave(1);
  std::thread other([&] {
    const ThreadBudget budget(2);
    const Caller caller;
    EXPECT_LE(caller.share(8), 2);
    EXPECT_EQ(caller.share(1), 1);
    inside.count_down();
    leave.wait();
  });
  inside.wait();
  EXPECT_EQ(share_now(8), 8);
  leave.count_down();
  other.join();
}

TEST(Callers, SlotsOfThreadsThatHaveEndedAreUsedAgain) {
  for (int i = 0; i < 500; ++i) std::thread([] { EXPECT_EQ(share_now(8), 8); }).join();
}

}  // namespace
}  // namespace tandem::callers_test
