// How the ranks of a job learn of a rank that dies, aborts, leaves or does not join.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "comm/rendezvous/local_secret.h"
#include "comm/rendezvous/server_connection.h"
#include "comm/rendezvous/socket.h"
#include "comm/rendezvous/wire.h"
#include "comm/rendezvous_job.h"
#include "tandem/errors.h"

namespace tandem::rendezvous_failures_test {
namespace {

using namespace testing;
using namespace std::chrono_literals;

class Failures : public Rendezvous {
 protected:
  // Three ranks. Rank `who` calls `act(job)` after all have exchanged messages. Expects the others
  // to throw this error.
  void expect(int who, const std::function<void(Job&)>& act, const std::string& start_of_error,
              const std::string& reason, std::chrono::milliseconds silence = testing::kFarAway) {
    const testing::Arrivals talked;
    auto ranks = start(3, [&](int rank) {
      const auto job = rendezvous(tcp(rank, 3), {.heartbeat = 100ms, .silence = silence});
      talk(*job);
      talked.meet(3);
      if (rank == who) act(*job);
      wait_for_failure(*job->membership());
      return "";
    });
    const std::string name = named(who, ranks[static_cast<std::size_t>(who)].id());
    for (int rank = 0; rank < 3; ++rank) {
      if (rank == who) continue;
      EXPECT_EQ(ranks[static_cast<std::size_t>(rank)].result(), start_of_error + name + reason);
    }
  }
};

TEST_F(Failures, AKilledRankIsNamedToTheOthers) {
  expect(
      2, [](Job&) { raise(SIGKILL); }, "UnavailableError: [membership] ",
      " is gone: its connection closed without goodbye");
}

TEST_F(Failures, AKilledRankZeroIsNamedToTheOthers) {
  expect(
      0, [](Job&) { raise(SIGKILL); }, "UnavailableError: [membership] ",
      " is gone: [rendezvous] the peer closed the connection");
}

TEST_F(Failures, ASilentRankIsDead) {
  expect(
      1, [](Job&) { raise(SIGSTOP); }, "UnavailableError: [membership] ",
      " is gone: no message was received for 5000 ms", 5s);
}

TEST_F(Failures, ASilentRankZeroIsDead) {
  expect(
      0, [](Job&) { raise(SIGSTOP); }, "UnavailableError: [membership] ",
      " is gone: no message was received for 5000 ms", 5s);
}

TEST_F(Failures, ASilentRankIsDeadAfterTheLimitOfTheEnvironment) {
  setenv("TANDEM_SILENCE_LIMIT", "2", 1);
  auto ranks = start(2, [&](int rank) {
    const auto job = rendezvous(tcp(rank, 2), {.heartbeat = 100ms});
    talk(*job);
    if (rank == 1) raise(SIGSTOP);
    wait_for_failure(*job->membership());
    return "";
  });
  EXPECT_EQ(ranks[0].result(), "UnavailableError: [membership] " + named(1, ranks[1].id()) +
                                   " is gone: no message was received for 2000 ms");
  ranks[1].kill(SIGKILL);
  setenv("TANDEM_SILENCE_LIMIT", "0", 1);
  EXPECT_EQ(refusal(tcp(0, 1)).find("InvalidArgumentError"), 0u);
  EXPECT_EQ(refusal(tcp(0, 1), {.silence = 0ms}),
            "InvalidArgumentError: [rendezvous] expected a positive silence_limit, got 0 ms");
}

TEST_F(Failures, AnAbortedRankReportsTheReason) {
  const auto abort = [](Job& job) {
    job.membership()->report("InvalidArgumentError: [MatMul] sizes");
    _exit(3);
  };
  for (const int who : {0, 1})
    expect(who, abort, "AbortedError: [membership] ",
           " aborted: InvalidArgumentError: [MatMul] sizes");
}

TEST_F(Failures, ARankThatEndsAfterAFailureTellsTheOthersOfIt) {
  for (const int who : {0, 1}) {
    const testing::Arrivals talked;
    auto ranks = start(3, [&](int rank) {
      auto job = rendezvous(tcp(rank, 3));
      talk(*job);
      talked.meet(3);
      if (rank != who) wait_for_failure(*job->membership());
      job->membership()->note_failure("rank 4 has left the group");
      job->membership()->note_failure("a later one");
      job.reset();
      return "";
    });
    for (const int rank : {1 - who, 2})
      EXPECT_EQ(ranks[static_cast<std::size_t>(rank)].result(),
                "AbortedError: [membership] " +
                    named(who, ranks[static_cast<std::size_t>(who)].id()) +
                    " aborted: rank 4 has left the group");
  }
}

TEST_F(Failures, ALastReasonIsNotReportedAfterAGoodbye) {
  const testing::Arrivals talked, left;
  auto ranks = start(2, [&](int rank) {
    auto job = rendezvous(tcp(rank, 2));
    talk(*job);
    talked.meet(2);
    job->membership()->note_failure("rank 4 has left the group");
    if (rank == 1) {
      job->shut_down();
      job.reset();
    }
    left.meet(2);
    return std::string(job && job->membership()->failed() ? "failed" : "");
  });
  EXPECT_EQ(ranks[0].result(), "");
}

TEST_F(Failures, RankZeroThatLeavesBeforeTheOthersIsNamed) {
  expect(
      0, [](Job& job) { job.shut_down(50ms); }, "UnavailableError: [membership] ",
      " is gone: it left the job and shut down its rendezvous server");
}

TEST_F(Failures, EndWaitsForKeysOfTheDeadRank) {
  auto ranks = start(2, [&](int rank) {
    const auto job = rendezvous(tcp(rank, 2));
    talk(*job);
    if (rank == 1) raise(SIGKILL);
    return job->store()->get("of rank 1", in(testing::kFarAway));
  });
  EXPECT_EQ(ranks[0].result(), "UnavailableError: [membership] " + named(1, ranks[1].id()) +
                                   " is gone: its connection closed without goodbye");
}

// A connection that has joined a job of 3 as rank 1, process 4711 on another host.
FoundServer join_as_rank_1(std::uint16_t port) {
  FoundServer found =
      find_server("127.0.0.1", std::vector{port}, local_secret(), TimeLimit(testing::kFarAway));
  found.connection.send({.type = MessageType::kJoin,
                         .rank = 1,
                         .number = 4711,
                         .key = "elsewhere",
                         .value = "3 30000"},
                        in(testing::kFarAway));
  return found;
}

TEST_F(Failures, OfARankBeforeAllHaveJoinedAreReportedAtOnce) {
  ChildProcess rank0([&] { return refusal(tcp(0, 3), {.timeout = testing::kFarAway}); });
  {
    FoundServer rank1 = join_as_rank_1(port_);
    for (std::string missing; missing != "2"; std::this_thread::sleep_for(5ms)) {
      rank1.connection.send({.type = MessageType::kHeartbeat}, in(testing::kFarAway));
      missing = rank1.connection.receive(in(testing::kFarAway)).value().value;
    }
  }
  EXPECT_EQ(rank0.result(),
            "UnavailableError: [membership] rank 1 (process 4711 on elsewhere) is "
            "gone: its connection closed without goodbye");
}

// Rank 0 has ended because of it, but its process stays for a moment to report it.
TEST_F(Failures, AreReportedToALateRank) {
  const testing::Arrivals failed;
  ChildProcess rank0([&]() -> std::string {
    refusal(tcp(0, 3), {.timeout = testing::kFarAway});
    failed.arrive();
    std::exit(0);
  });
  {
    FoundServer rank1 = join_as_rank_1(port_);
    rank1.connection.receive(in(testing::kFarAway));
  }
  failed.wait_for(1);
  EXPECT_EQ(refusal(tcp(2, 3), {.timeout = testing::kFarAway}),
            "UnavailableError: [membership] rank 1 (process 4711 on elsewhere) is gone: its "
            "connection closed without goodbye");
  rank0.result();  // does not wait after it has informed all ranks
}

TEST_F(Failures, DoNotIncludeLeavingInAnyOrder) {
  auto ranks = start(4, [&](int rank) {
    const auto job = rendezvous(tcp(rank, 4), {.heartbeat = 50ms, .silence = testing::kFarAway});
    talk(*job);
    // Rank 0, which hosts the server, is the first to leave.
    std::this_thread::sleep_for(rank * 100ms);
    const bool failed = job->membership()->failed();
    job->store()->set(fmt::format("last word of {}", rank), "");
    job->shut_down();
    return std::string(failed ? "failed" : "well");
  });
  for (ChildProcess& rank : ranks) EXPECT_EQ(rank.result(), "well");
}

// A process that still uses the store of a finished job does not wait for its server to restart.
TEST_F(Failures, TheStoreOfAFinishedJobIsTriedOnce) {
  const auto job = rendezvous(tcp(0, 1));
  const std::shared_ptr<Store> store = job->store();
  talk(*job);
  job->shut_down(testing::kFarAway);
  std::atomic<int> attempts = 0;
  std::atomic<bool> over = false;
  std::thread stranger([&, listener = listen_on({"127.0.0.1", port_})] {
    while (!over) {
      if (accept_from(listener).is_open())
        ++attempts;  // closes the connection
      else
        std::this_thread::sleep_for(1ms);
    }
  });
  // On the existing connection, and on new ones.
  for (int call = 0; call < 3; ++call) EXPECT_THROW(store->set("kept", "1"), UnavailableError);
  over = true;
  stranger.join();
  EXPECT_GE(attempts, 1);
  EXPECT_LE(attempts, 3);
}

TEST_F(Failures, LeaveDoesNotWaitForTheDead) {
  const testing::Arrivals talked;
  auto ranks = start(3, [&](int rank) {
    const auto job = rendezvous(tcp(rank, 3));
    talk(*job);
    talked.meet(3);
    if (rank == 1) raise(SIGKILL);
    job->shut_down(std::chrono::hours(1));
    return std::string("left");
  });
  EXPECT_EQ(ranks[0].result(), "left");
  EXPECT_EQ(ranks[2].result(), "left");
}

TEST_F(Failures, OfAJobWhoseRanksAreThreadsOfAProcess) {
  const testing::Arrivals talked;
  std::vector<std::thread> threads;
  std::vector<std::string> words(3);
  for (int rank = 0; rank < 3; ++rank)
    threads.emplace_back([&, rank] {
      auto job = rendezvous(tcp(rank, 3));
      words[static_cast<std::size_t>(rank)] = talk(*job);
      talked.meet(3);
      if (rank == 2) job.reset();  // without a goodbye message
      if (!job) return;
      try {
        wait_for_failure(*job->membership());
      } catch (const UnavailableError& error) {
        words[static_cast<std::size_t>(rank)] += error.what();
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(words[1], "012[membership] " + named(2, getpid()) +
                          " is gone: its connection closed without goodbye");
}

}  // namespace
}  // namespace tandem::rendezvous_failures_test
