#include "core/shared_cores.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>

namespace tandem::shared_cores_test {
namespace {

// A team that computes all the time. Other programs want `busy` of its cores.
struct Team {
  // The cores that the team leaves after these milliseconds.
  int run(std::int64_t milliseconds, double busy) {
    for (std::int64_t i = 0; i < milliseconds; ++i) {
      ++now;
      const double contended = std::max(0.0, busy - cores.others());
      waiting += contended / 2;
      running += size - cores.others() - contended / 2;
      if (cores.is_due(now))
        cores.update(size, now, [&] {
          return SharedCores::Times{.running_ms = static_cast<std::int64_t>(running),
                                    .waiting_ms = static_cast<std::int64_t>(waiting)};
        });
    }
    return cores.others();
  }

  int size = 2;
  SharedCores cores;
  std::int64_t now = 0;
  double running = 0, waiting = 0;
};

TEST(SharedCores, AQuietMachineIsNotShared) {
  Team team, large{.size = 32};
  EXPECT_EQ(team.run(60'000, 0.05), 0);
  EXPECT_EQ(large.run(60'000, 0.5), 0);
}

TEST(SharedCores, AreLeftToOthersWithinSomeMillisecondsOfWork) {
  Team team;
  EXPECT_EQ(team.run(500, 0), 0);
  EXPECT_EQ(team.run(150, 1), 1);
  Team both;
  EXPECT_EQ(both.run(250, 2), 1);  // one is the least
  Team large{.size = 32};
  EXPECT_EQ(large.run(250, 3), 3);
}

TEST(SharedCores, AreTakenAgainWhenTheOthersHaveEnded) {
  Team team;
  EXPECT_EQ(team.run(250, 1), 1);
  EXPECT_EQ(team.run(800, 0), 1);
  EXPECT_EQ(team.run(300, 0), 0);
  EXPECT_EQ(team.run(5'000, 0), 0);
}

TEST(SharedCores, AreTriedLessAndLessOften) {
  Team team;
  const auto next_pause = [&] {
    while (team.run(1, 1) == 0) {
    }
    const std::int64_t begin = team.now;
    while (team.run(1, 1) == 1) {
    }
    return static_cast<double>(team.now - begin);
  };
  for (const double expected : {1'000, 2'000, 4'000, 8'000, 8'000})
    EXPECT_NEAR(next_pause(), expected, 100);
  team.run(9'000, 0);
  EXPECT_NEAR(next_pause(), 1'000, 100);
}

TEST(SharedCores, AnotherTeamIsJudgedByItsOwnTimes) {
  Team team{.size = 4};
  EXPECT_EQ(team.run(250, 2), 2);
  team.size = 2;
  EXPECT_EQ(team.run(1'100, 0), 0);
  EXPECT_EQ(team.run(1'000, 0), 0);
}

}  // namespace
}  // namespace tandem::shared_cores_test
