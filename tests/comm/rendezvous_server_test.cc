// A rendezvous server outside the ranks.
#include "tandem/rendezvous.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "comm/rendezvous/local_secret.h"
#include "comm/rendezvous/server_connection.h"
#include "comm/rendezvous/wire.h"
#include "comm/rendezvous_job.h"

namespace tandem::rendezvous_server_test {
namespace {

using comm::RendezvousServer;
using namespace testing;
using namespace std::chrono_literals;

class OutsideServer : public testing::Rendezvous {
 protected:
  // A process that serves until the first job is over.
  ChildProcess serve(int ranks, std::chrono::milliseconds join_limit = kFarAway) const {
    return ChildProcess([=, this] {
      RendezvousServer({.port = port_, .ranks = ranks}).wait(join_limit);
      return "over";
    });
  }
  std::string server_named(pid_t process) const {
    return fmt::format("the rendezvous server (process {} on {})", process, testing::host_name());
  }
  std::unique_ptr<Job> join(int rank, int size, RendezvousOptions options = {}) const {
    options.timeout = kFarAway;
    return rendezvous(outside(rank, size), options);
  }
};

TEST_F(OutsideServer, IsFoundByItsAddress) {
  ChildProcess server = serve(3);
  auto ranks = start(3, [&](int rank) {
    const auto job = join(rank, 3);
    return talk_and_leave(*job);
  });
  for (ChildProcess& rank : ranks) EXPECT_EQ(rank.result(), "012");
  EXPECT_EQ(server.result(), "over");
}

TEST_F(OutsideServer, IsFoundByTheEnvironment) {
  ChildProcess server = serve(2);
  setenv("TANDEM_RENDEZVOUS", fmt::format("127.0.0.1:{}", port_).c_str(), 1);
  setenv("WORLD_SIZE", "2", 1);
  setenv("MASTER_ADDR", "192.0.2.1", 1);  // set for another purpose
  setenv("MASTER_PORT", "9", 1);
  auto ranks = start(2, [](int rank) {
    setenv("RANK", std::to_string(rank).c_str(), 1);
    const auto job = rendezvous("env://", {.timeout = kFarAway});
    const std::string words = talk(*job);
    EXPECT_EQ(job->master(), "192.0.2.1");
    job->shut_down();
    return words;
  });
  for (ChildProcess& rank : ranks) EXPECT_EQ(rank.result(), "01");
  EXPECT_EQ(server.result(), "over");
}

// The server serves the job of all ranks that the launcher started.
TEST_F(OutsideServer, IsNotForAJobOfAnotherSize) {
  setenv("TANDEM_RENDEZVOUS", "192.0.2.1:9", 1);
  setenv("MASTER_ADDR", "127.0.0.1", 1);
  setenv("MASTER_PORT", std::to_string(port_).c_str(), 1);
  setenv("WORLD_SIZE", "4", 1);
  auto ranks = start(2, [](int rank) {
    const auto job =
        rendezvous(fmt::format("env://?rank={}&world_size=2", rank), {.timeout = kFarAway});
    return talk_and_leave(*job);
  });
  for (ChildProcess& rank : ranks) EXPECT_EQ(rank.result(), "01");
}

TEST_F(OutsideServer, ServesJobsOneAfterTheOther) {
  auto ranks = start(3, [&](int rank) {
    std::string words;
    std::shared_ptr<Store> earlier;
    for (int round = 0; round < 5; ++round) {
      const auto job = join(rank, 3);
      // A process that still has an earlier job's store must not write to this one's.
      if (earlier) {
        EXPECT_THROW(earlier->set("from an earlier job", ""), UnavailableError);
      }
      words += talk(*job) + " ";
      EXPECT_THROW(job->store()->get("from an earlier job", Clock::now()), DeadlineExceededError);
      earlier = job->store();
      job->shut_down();
    }
    return words + (::testing::Test::HasFailure() ? "failed" : "well");
  });
  const RendezvousServer server({.port = port_, .ranks = 3});
  for (ChildProcess& rank : ranks) EXPECT_EQ(rank.result(), "012 012 012 012 012 well");
}

TEST_F(OutsideServer, OutlivesRankZero) {
  ChildProcess server = serve(3);
  const testing::Arrivals talked;
  auto ranks = start(3, [&](int rank) {
    const auto job = join(rank, 3);
    talk(*job);
    talked.meet(3);
    if (rank == 0) raise(SIGKILL);
    const std::string error = any_error_of([&] { wait_for_failure(*job->membership()); });
    job->shut_down();
    return error;
  });
  const std::string failure = fmt::format(
      "UnavailableError: [membership] {} is gone: its connection closed without goodbye",
      named(0, ranks[0].id()));
  EXPECT_EQ(ranks[1].result(), failure);
  EXPECT_EQ(ranks[2].result(), failure);
  EXPECT_EQ(server.result(), "over");
}

TEST_F(OutsideServer, LetsRankZeroLeaveBeforeTheOthers) {
  ChildProcess server = serve(2);
  const testing::Arrivals left;
  auto ranks = start(2, [&](int rank) {
    const auto job = join(rank, 2);
    talk(*job);
    if (rank == 1) left.wait_for(1);
    job->shut_down(kFarAway);  // if it waited for rank 1, rank 0's call would not return
    if (rank == 0) left.arrive();
    return std::string(job->membership()->failed() ? "failed" : "well");
  });
  for (ChildProcess& rank : ranks) EXPECT_EQ(rank.result(), "well");
  EXPECT_EQ(server.result(), "over");
}

class OutsideServerEnds : public OutsideServer {
 protected:
  // The errors of the ranks after the server has received a signal.
  void expect(int signal, const std::string& how, std::chrono::milliseconds silence = kFarAway) {
    ChildProcess server = serve(3);
    const testing::Arrivals talked;
    auto ranks = start(3, [&](int rank) {
      const auto job = join(
          rank, 3,
          {.timeout = {}, .token = {}, .bind_address = {}, .heartbeat = 100ms, .silence = silence});
      talk(*job);
      talked.arrive();
      const std::string error = any_error_of([&] { wait_for_failure(*job->membership()); });
      EXPECT_EQ(any_error_of([&] { job->store()->get("never", in(kFarAway)); }), error);
      return error + (::testing::Test::HasFailure() ? " (failed)" : "");
    });
    talked.wait_for(3);
    server.kill(signal);
    for (ChildProcess& rank : ranks)
      EXPECT_EQ(rank.result(),
                "UnavailableError: [membership] " + server_named(server.id()) + " is gone: " + how);
  }
};

TEST_F(OutsideServerEnds, KilledIsNamed) {
  expect(SIGKILL, "[rendezvous] the peer closed the connection");
}

TEST_F(OutsideServerEnds, SilentIsNamed) {
  expect(SIGSTOP, "no message was received for 3000 ms", 3s);
}

TEST_F(OutsideServerEnds, ClosedIsNamed) {
  const testing::Arrivals talked;
  auto ranks = start(2, [&](int rank) {
    const auto job = join(rank, 2);
    talk(*job);
    talked.arrive();
    wait_for_failure(*job->membership());
    return "";
  });
  auto server =
      std::make_unique<RendezvousServer>(comm::RendezvousServerOptions{.port = port_, .ranks = 2});
  talked.wait_for(2);
  server.reset();
  for (ChildProcess& rank : ranks)
    EXPECT_EQ(rank.result(), "UnavailableError: [membership] " + server_named(getpid()) +
                                 " is gone: it was closed");
}

TEST_F(OutsideServer, IsNamedWhenItNeverCame) {
  EXPECT_EQ(refusal(outside(0, 2), {.timeout = 500ms}),
            fmt::format("DeadlineExceededError: [rendezvous] the rendezvous server is missing: the "
                        "job's rendezvous was not found at 127.0.0.1:{0} within 500 ms "
                        "([rendezvous] cannot connect to 127.0.0.1:{0}: Connection refused)",
                        port_));
}

TEST_F(OutsideServer, RefusesARankThatExpectsAnotherSize) {
  RendezvousServer server({.port = port_, .ranks = 3});
  const std::string why = "rank 0 expects a job of 2 ranks, the rendezvous server one of 3";
  EXPECT_EQ(refusal(outside(0, 2)), "InvalidArgumentError: [rendezvous] " + why);
  EXPECT_EQ(any_error_of([&] { server.wait(kFarAway); }),
            fmt::format("AbortedError: [rendezvous] a process ({} on {}) was refused: {}", getpid(),
                        testing::host_name(), why));
}

TEST_F(OutsideServer, NamesTheRanksThatNeverCame) {
  ChildProcess rank1([&] { return refusal(outside(1, 4), {.timeout = kFarAway}); });
  {
    RendezvousServer server({.port = port_, .ranks = 4});
    EXPECT_TRUE(eventually([&] {
      return any_error_of([&] { server.wait(1ms); }) ==
             "DeadlineExceededError: [rendezvous] ranks 0, 2, 3 of 4 did not join within 1 ms";
    }));
  }
  EXPECT_EQ(rank1.result(),
            "UnavailableError: [membership] " + server_named(getpid()) + " is gone: it was closed");
}

TEST_F(OutsideServer, TellsWhyAJobHasFailedThatNoRankHasLeft) {
  ChildProcess server = serve(2);
  auto ranks = start(2, [&](int rank) {
    const auto job = join(rank, 2);
    talk(*job);
    if (rank == 1) job->membership()->report("out of memory");
    wait_for_failure(*job->membership());
    return "";
  });
  ranks[0].result();
  ranks[1].kill(SIGKILL);
  EXPECT_EQ(server.result(), fmt::format("AbortedError: [rendezvous] {} aborted: out of memory",
                                         named(1, ranks[1].id())));
}

// A job that failed before all had joined: late ranks receive the failure, and all ranks retry.
TEST_F(OutsideServer, TakesInAnotherAttempt) {
  const testing::Arrivals listens, failed, done;
  ChildProcess server([&] {
    const RendezvousServer here({.port = port_, .ranks = 2});
    listens.arrive();
    done.wait_for(2);
    return "";
  });
  auto ranks = start(2, [&](int rank) {
    listens.wait_for(1);
    if (rank == 1) failed.wait_for(1);
    const std::string error = refusal(outside(rank, 2), {.timeout = rank == 0 ? 2s : kFarAway});
    if (rank == 0) failed.arrive();
    const auto job = join(rank, 2);
    const std::string words = talk(*job);
    job->shut_down();
    done.arrive();
    return error + "; " + words;
  });
  const std::string rank_0 = named(0, ranks[0].id());
  EXPECT_EQ(ranks[0].result(),
            "DeadlineExceededError: [rendezvous] rank 1 of 2 did not join within 2000 ms; 01");
  EXPECT_EQ(ranks[1].result(), "AbortedError: [membership] " + rank_0 +
                                   " aborted: rank 1 of 2 did not join within 2000 ms; 01");
}

TEST_F(OutsideServer, RefusesOptionsThatCannotBe) {
  const auto error = [](const comm::RendezvousServerOptions& options) {
    return any_error_of([&] { const RendezvousServer server(options); });
  };
  EXPECT_EQ(error({.ranks = 0}),
            "InvalidArgumentError: [rendezvous] expected a job of at least 1 rank, got 0");
  EXPECT_EQ(error({.address = "0.0.0.0"}),
            "FailedPreconditionError: [rendezvous] the rendezvous server would listen at 0.0.0.0, "
            "which other machines can reach: set the environment variable TANDEM_JOB_TOKEN to the "
            "same secret for all ranks");
  EXPECT_NE(error({.address = "192.0.2.1", .token = "t"})
                .find("the rendezvous server has to run where this address is"),
            std::string::npos);
  const RendezvousServer server({.address = "0.0.0.0", .token = "t"});
  EXPECT_EQ(error({.port = server.port()}).find("AlreadyExistsError"), 0u);
  setenv("TANDEM_RENDEZVOUS", "nowhere", 1);
  EXPECT_EQ(refusal("env://?rank=0&world_size=1"),
            "InvalidArgumentError: [rendezvous] TANDEM_RENDEZVOUS: expected HOST:PORT, got "
            "'nowhere'");
}

// One process holds the connections of 1,000 ranks, which all belong to this process.
TEST_F(FewDescriptors, AreRaisedForAThousandRanksOfAnOutsideServer) {
  constexpr int kRanks = 1000;
  ChildProcess host([&] {
    limit(64, 4096);
    RendezvousServer({.port = port_, .ranks = kRanks}).wait(kFarAway);
    return "over";
  });
  limit(4096, 4096);
  const std::vector<std::uint16_t> ports = {port_};
  const std::string secret = local_secret();
  std::vector<ServerConnection> ranks, stores;
  ranks.push_back(find_server("127.0.0.1", ports, secret, TimeLimit(kFarAway)).connection);
  const ServerAddress server = {{"127.0.0.1", port_}, secret};
  while (ranks.size() < kRanks) ranks.emplace_back(server, in(kFarAway));
  for (int rank = 0; rank < kRanks; ++rank) {
    ranks[static_cast<std::size_t>(rank)].send({.type = MessageType::kJoin,
                                                .rank = rank,
                                                .key = "host",
                                                .value = encode(JoinTerms{.size = kRanks})},
                                               in(kFarAway));
    stores.emplace_back(server, in(kFarAway));
    stores.back().send({.type = MessageType::kAdd, .number = 1, .key = "all"}, in(kFarAway));
  }
  for (ServerConnection& rank : ranks) {
    while (rank.receive(in(kFarAway)).value().type != MessageType::kStarted) {
    }
  }
  std::int64_t most = 0;
  for (ServerConnection& store : stores)
    most = std::max(most, store.receive(in(kFarAway)).value().number);
  EXPECT_EQ(most, kRanks);
  for (ServerConnection& rank : ranks) rank.send({.type = MessageType::kGoodbye}, in(kFarAway));
  EXPECT_EQ(host.result(), "over");
}

TEST_F(FewDescriptors, OfAnOutsideServerAreTooFewForAThousandRanks) {
  limit(64, 1024);
  EXPECT_EQ(any_error_of([] { const RendezvousServer server({.ranks = 1000}); }),
            "ResourceExhaustedError: [rendezvous] the host of a job of 1000 ranks needs about 2016 "
            "open files and sockets, but this process may have 1024 (RLIMIT_NOFILE): raise the "
            "hard limit (`ulimit -Hn`, LimitNOFILE)");
}

}  // namespace
}  // namespace tandem::rendezvous_server_test
