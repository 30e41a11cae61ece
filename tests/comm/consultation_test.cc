#include "comm/rendezvous/consultation.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <thread>

#include "comm/signature.h"
#include "support/errors.h"
#include "support/forked_store.h"
#include "support/log_file.h"
#include "support/waiting.h"

namespace tandem::consultation_test {
namespace {

using std::chrono::milliseconds;
using testing::any_error_of;

constexpr int kSize = 4;

// Asks rank 0 to double this rank's number.
std::string ask(Store& store, int rank, milliseconds limit) {
  return consult({.store = store,
                  .name = "test",
                  .rank = rank,
                  .size = kSize,
                  .limit = limit,
                  .describe_missing = [](const std::vector<int>& missing,
                                         milliseconds) { return list_ranks(missing); }},
                 std::to_string(rank), [](const std::vector<std::string>& values) {
                   std::vector<std::string> answers;
                   for (const std::string& value : values)
                     answers.push_back(std::to_string(2 * std::stoi(value)));
                   return answers;
                 });
}

TEST(Consultation, AnswersEveryRankAndLeavesNothing) {
  ForkedStore store;
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < kSize; ++rank)
    ranks.emplace_back(
        [&, rank] { EXPECT_EQ(ask(store, rank, testing::kFarAway), std::to_string(2 * rank)); });
  for (std::thread& rank : ranks) rank.join();
  EXPECT_TRUE(store.keys().empty());
}

TEST(Consultation, NamesMissingRanksToAll) {
  ForkedStore store;
  std::vector<std::thread> ranks;
  for (const int rank : {0, 2})
    ranks.emplace_back([&, rank] {
      EXPECT_EQ(any_error_of([&] { ask(store, rank, milliseconds(300)); }),
                "DeadlineExceededError: ranks 1 and 3");
    });
  for (std::thread& rank : ranks) rank.join();
  // A late rank gets the same error.
  EXPECT_EQ(any_error_of([&] { ask(store, 1, testing::kFarAway); }),
            "DeadlineExceededError: ranks 1 and 3");
}

TEST(Consultation, LogsMissingRanksWhileItWaits) {
  setenv("TANDEM_STALL_WARNING", "1", 1);
  ForkedStore store;
  std::vector<std::thread> ranks;
  const auto come = [&](int rank) {
    ranks.emplace_back([&, rank] { ask(store, rank, testing::kFarAway); });
  };
  const testing::LogFile log;
  come(2);
  EXPECT_TRUE(log.wait_for("warning: rank 0\n"));
  come(0);
  EXPECT_TRUE(log.wait_for("warning: ranks 1 and 3\n"));
  come(1);
  come(3);
  for (std::thread& rank : ranks) rank.join();
}

TEST(Consultation, ARankZeroThatDoesNotComeIsMissing) {
  ForkedStore store;
  EXPECT_EQ(any_error_of([&] { ask(store, 2, milliseconds(50)); }),
            "DeadlineExceededError: rank 0");
}

}  // namespace
}  // namespace tandem::consultation_test
