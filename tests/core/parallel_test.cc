#include "core/parallel.h"

#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <vector>

#include "support/errors.h"

namespace tandem::parallel_test {
namespace {

using testing::error_of;

TEST(Parallel, EveryElementOnce) {
  ThreadBudget budget(4);
  for (const std::int64_t count : {0, 1, 3, 4, 1000, 1023}) {
    std::vector<std::atomic<int>> seen(static_cast<std::size_t>(count));
    parallel_for(count, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) seen[static_cast<std::size_t>(i)]++;
    });
    for (const auto& each : seen) EXPECT_EQ(each.load(), 1);
  }
}

TEST(Parallel, SmallLoopsStayOnTheCallingThread) {
  ThreadBudget budget(4);
  int calls = 0;
  parallel_for(100, 100, [&](std::int64_t begin, std::int64_t end) {
    ++calls;
    EXPECT_EQ(begin, 0);
    EXPECT_EQ(end, 100);
  });
  EXPECT_EQ(calls, 1);
}

// The first error in the range, whatever the number of threads and their order.
TEST(Parallel, ErrorsOfTheLowestRangeComeOut) {
  for (const int threads : {1, 2, 4}) {
    ThreadBudget budget(threads);
    std::atomic<std::int64_t> done{0};
    const auto check = [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        if (i % 30 == 29) throw InvalidArgumentError(std::to_string(i));
        ++done;
      }
    };
    for (int again = 0; again < 20; ++again)
      EXPECT_EQ(error_of<InvalidArgumentError>([&] { parallel_for(100, 1, check); }), "29");
    done = 0;
    parallel_for(20, 1, check);
    EXPECT_EQ(done.load(), 20);
  }
}

TEST(Parallel, BudgetsNest) {
  const int all = intra_op_threads();
  EXPECT_EQ(all, available_cores());
  {
    ThreadBudget outer(3);
    EXPECT_EQ(intra_op_threads(), 3);
    {
      ThreadBudget inner(0);
      EXPECT_EQ(intra_op_threads(), 1);
    }
    EXPECT_EQ(intra_op_threads(), 3);
  }
  EXPECT_EQ(intra_op_threads(), all);
}

}  // namespace
}  // namespace tandem::parallel_test
