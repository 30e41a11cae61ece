// Warnings of long waits, in one process. process_faults_test.cc tests those of several ranks.
#include "comm/stall.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <vector>

#include "support/errors.h"
#include "support/forked_store.h"

namespace tandem::stall_test {
namespace {

using namespace std::chrono_literals;

const Store::TimePoint kBegin{};

TEST(Stall, IsReportedOnceAMinute) {
  EXPECT_FALSE(is_stalled(kBegin, kBegin, kBegin + 59s));
  EXPECT_TRUE(is_stalled(kBegin, kBegin + 59s, kBegin + 61s));
  EXPECT_FALSE(is_stalled(kBegin, kBegin + 61s, kBegin + 119s));
  EXPECT_TRUE(is_stalled(kBegin, kBegin + 119s, kBegin + 120s));
}

TEST(Stall, IsReportedAsOftenAsTheEnvironmentSays) {
  setenv("TANDEM_STALL_WARNING", "2", 1);
  EXPECT_TRUE(is_stalled(kBegin, kBegin + 1s, kBegin + 2s));
}

TEST(Stall, IsNeverReportedIfTheEnvironmentSaysSo) {
  setenv("TANDEM_STALL_WARNING", "0", 1);
  EXPECT_FALSE(is_stalled(kBegin, kBegin, kBegin + 1000h));
  ForkedStore store;
  EXPECT_NE(testing::error_of<DeadlineExceededError>([&] {
              get_or_warn(store, "key", std::chrono::steady_clock::now(), {});
            }).find("key"),
            std::string::npos);
}

TEST(Stall, IsReportedByTheFirstThatWaits) {
  EXPECT_TRUE(is_first_waiting(0, std::vector<int>{}));
  EXPECT_TRUE(is_first_waiting(0, std::vector<int>{2}));
  EXPECT_TRUE(is_first_waiting(2, std::vector<int>{0, 1, 5}));
  EXPECT_FALSE(is_first_waiting(2, std::vector<int>{0, 5}));
  EXPECT_FALSE(is_first_waiting(2, std::vector<int>{1}));
  EXPECT_FALSE(is_first_waiting(1, std::vector<int>{}));
}

}  // namespace
}  // namespace tandem::stall_test
