// Jobs of several processes: how their ranks find each other, and what they learn of a rank that
// dies, gives up, leaves or never comes.
#include "comm/rendezvous/rendezvous.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "comm/rendezvous/cluster_environment.h"
#include "comm/rendezvous/file_store.h"
#include "comm/rendezvous/server_connection.h"
#include "comm/rendezvous/socket.h"
#include "support/errors.h"
#include "support/files.h"
#include "support/processes.h"
#include "support/waiting.h"
#include "tandem/errors.h"

namespace tandem {
namespace {

using testing::any_error_of;
using testing::ChildProcess;
using testing::eventually;
using testing::free_port;
using testing::TemporaryDirectory;
using namespace std::chrono_literals;

Clock::time_point in(std::chrono::milliseconds time) { return Clock::now() + time; }

// Every rank says its own word and hears the others'; in good order, "01..".
std::string talk(Job& job) {
  job.store()->set(fmt::format("word {}", job.rank()), std::to_string(job.rank()));
  std::string words;
  for (int rank = 0; rank < job.size(); ++rank)
    words += job.store()->get(fmt::format("word {}", rank), in(testing::kFarAway));
  return words;
}

// Waits until a rank has failed, and throws what the membership says of it.
[[noreturn]] void wait_for_failure(const Membership& membership) {
  if (eventually([&] { return membership.failed(); })) membership.throw_failure();
  throw std::runtime_error("no rank has failed");
}

// The ranks of a job, each a process.
std::vector<ChildProcess> start(int size, const std::function<std::string(int rank)>& body) {
  std::vector<ChildProcess> ranks;
  for (int rank = 0; rank < size; ++rank) ranks.emplace_back([&, rank] { return body(rank); });
  return ranks;
}

std::string host_name() {
  char name[256] = {};
  gethostname(name, sizeof(name) - 1);
  return name;
}

// How the others name a rank.
std::string named(int rank, pid_t process) {
  return fmt::format("rank {} (process {} on {})", rank, process, host_name());
}

class Rendezvous : public ::testing::Test {
 protected:
  Rendezvous() {
    for (const char* name : {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR",
                             "MASTER_PORT", "TANDEM_JOB_TOKEN", "TORCHELASTIC_USE_AGENT_STORE"})
      unsetenv(name);
  }
  std::string tcp(int rank, int size) const {
    return fmt::format("tcp://127.0.0.1:{}?rank={}&world_size={}", port_, rank, size);
  }
  std::string file(int rank, int size) const {
    return fmt::format("file://{}?rank={}&world_size={}", path().string(), rank, size);
  }
  std::filesystem::path path() const { return folder_ / "job"; }

  const std::uint16_t port_ = free_port();
  const TemporaryDirectory folder_;
};

// The error of a rendezvous in this process.
std::string refusal(const std::string& url, const RendezvousOptions& options = {}) {
  return any_error_of([&] { rendezvous(url, options); });
}

TEST_F(Rendezvous, ByTcpAndByFile) {
  for (const int size : {1, 2, 5})
    for (const bool by_file : {false, true}) {
      auto ranks = start(size, [&](int rank) {
        const auto job = rendezvous(by_file ? file(rank, size) : tcp(rank, size));
        const std::string words = talk(*job);
        job->leave();
        return fmt::format("{} of {}: {}", job->rank(), job->size(), words);
      });
      const std::string all = std::string("01234").substr(0, static_cast<std::size_t>(size));
      for (int rank = 0; rank < size; ++rank)
        EXPECT_EQ(ranks[static_cast<std::size_t>(rank)].result(),
                  fmt::format("{} of {}: {}", rank, size, all));
    }
  EXPECT_EQ(folder_.count_files(), 0u);
}

TEST_F(Rendezvous, ByTheEnvironment) {
  setenv("MASTER_ADDR", "127.0.0.1", 1);
  setenv("MASTER_PORT", std::to_string(port_).c_str(), 1);
  setenv("WORLD_SIZE", "3", 1);
  auto ranks = start(3, [](int rank) {
    setenv("RANK", std::to_string(rank).c_str(), 1);
    const auto job = rendezvous("env://");
    const std::string words = talk(*job);
    job->leave();
    return words;
  });
  for (ChildProcess& rank : ranks) EXPECT_EQ(rank.result(), "012");
}

// Two steps of srun on one host, which tells a name for each and no port.
TEST_F(Rendezvous, UnderSlurm) {
  const auto step = [](const char* number) {
    return start(3, [=](int rank) {
      const std::string me = std::to_string(rank);
      for (const auto& [name, value] : {std::pair{"SLURM_PROCID", me.c_str()},
                                        {"SLURM_LOCALID", me.c_str()},
                                        {"SLURM_NTASKS", "3"},
                                        {"SLURM_JOB_ID", "77"},
                                        {"SLURM_STEP_ID", number},
                                        {"SLURM_NODEID", "0"},
                                        {"SLURM_STEP_NODELIST", "gpu03"},
                                        {"SLURM_STEP_TASKS_PER_NODE", "3"}})
        setenv(name, value, 1);
      const auto job = rendezvous("env://");
      const std::string words = talk(*job);
      job->leave();
      return words;
    });
  };
  auto first = step("0"), second = step("1");
  for (ChildProcess& rank : first) EXPECT_EQ(rank.result(), "012");
  for (ChildProcess& rank : second) EXPECT_EQ(rank.result(), "012");
}

TEST_F(Rendezvous, BesideTheStoreOfTorchrun) {
  // torchrun's own store has the port that it tells.
  const Socket agent = listen_on({"127.0.0.1", 0});
  setenv("MASTER_ADDR", "127.0.0.1", 1);
  setenv("MASTER_PORT", std::to_string(port_of(agent)).c_str(), 1);
  setenv("TORCHELASTIC_USE_AGENT_STORE", "True", 1);
  setenv("WORLD_SIZE", "2", 1);
  // Another program has the first port that follows, a job of somebody else's the second.
  const std::vector<std::uint16_t> ports = cluster_environment().ports;
  const Socket other_program = listen_on({"127.0.0.1", ports[0]});
  ChildProcess other_job([&] {
    rendezvous(fmt::format("tcp://127.0.0.1:{}?rank=0&world_size=2", ports[1]));
    return "";
  });
  auto ranks = start(2, [](int rank) {
    setenv("RANK", std::to_string(rank).c_str(), 1);
    const auto job = rendezvous("env://", {.timeout = testing::kFarAway});
    const std::string words = talk(*job);
    job->leave();
    return words;
  });
  for (ChildProcess& rank : ranks) EXPECT_EQ(rank.result(), "01");
}

TEST_F(Rendezvous, MayBeRepeatedAtTheSamePlace) {
  for (const bool by_file : {false, true}) {
    auto ranks = start(3, [&](int rank) {
      std::string words;
      for (int round = 0; round < 5; ++round) {
        const auto job =
            rendezvous(by_file ? file(rank, 3) : tcp(rank, 3), {.timeout = testing::kFarAway});
        words += talk(*job) + " ";
        job->leave();
      }
      return words;
    });
    for (ChildProcess& rank : ranks) EXPECT_EQ(rank.result(), "012 012 012 012 012 ");
  }
}

TEST_F(Rendezvous, SaysWhatIsMissingInTheWordsOfTorch) {
  const std::string error = "InvalidArgumentError: [rendezvous] Error initializing tandem using ";
  EXPECT_EQ(refusal("env://"),
            error + "env:// rendezvous: environment variable RANK expected, but not set");
  setenv("RANK", "0", 1);
  EXPECT_EQ(refusal("env://"),
            error + "env:// rendezvous: environment variable WORLD_SIZE expected, but not set");
  EXPECT_EQ(refusal("env://?world_size=2"),
            error + "env:// rendezvous: environment variable MASTER_ADDR expected, but not set");
  setenv("MASTER_ADDR", "127.0.0.1", 1);
  EXPECT_EQ(refusal("env://", {.world_size = 2}),
            error + "env:// rendezvous: environment variable MASTER_PORT expected, but not set");
  EXPECT_EQ(refusal("tcp://h:80?world_size=2"),
            error + "tcp:// rendezvous: rank parameter missing");
  EXPECT_EQ(refusal("tcp://h:80?rank=0"),
            error + "tcp:// rendezvous: world size parameter missing");
  EXPECT_EQ(refusal("file:///tmp/f?world_size=2"),
            error + "file:// rendezvous: rank parameter missing");
  EXPECT_EQ(refusal("tcp://h:80?rank=2&world_size=2"),
            "InvalidArgumentError: [rendezvous] expected a rank in [0, 2), got 2");
  EXPECT_EQ(refusal("tcp://h:80?rank=0&world_size=0"),
            "InvalidArgumentError: [rendezvous] expected a world size of at least 1, got 0");
  EXPECT_EQ(refusal("tcp://h:80?rank=0&world_size=2", {.rank = 1}),
            "InvalidArgumentError: [rendezvous] rank is 0 in the URL and 1 in the options");
}

TEST_F(Rendezvous, OfAProcessThatIsThatRankAlreadyIsRefused) {
  setenv("MASTER_ADDR", "127.0.0.1", 1);
  setenv("MASTER_PORT", std::to_string(port_).c_str(), 1);
  setenv("RANK", "0", 1);
  setenv("WORLD_SIZE", "1", 1);
  const auto job = rendezvous("env://");
  EXPECT_EQ(refusal("env://"),
            "FailedPreconditionError: [rendezvous] Unable to perform re-rendezvous using env:// "
            "method: this process is rank 0 of a job already");
  job->leave();
  rendezvous("env://")->leave();
}

TEST_F(Rendezvous, NamesTheRanksThatNeverCame) {
  auto ranks = start(2, [&](int rank) {
    rendezvous(tcp(rank == 0 ? 0 : 2, 4), {.timeout = rank == 0 ? 3s : testing::kFarAway});
    return "";
  });
  EXPECT_EQ(ranks[0].result(),
            "DeadlineExceededError: [rendezvous] ranks 1, 3 of 4 did not join within 3000 ms");
  // And it told those that were there.
  const std::string other = ranks[1].result();
  EXPECT_EQ(other.find("AbortedError: [membership] rank 0 (process "), 0u) << other;
  EXPECT_NE(other.find("gave up: ranks 1, 3 of 4 did not join within 3000 ms"), std::string::npos);
}

TEST_F(Rendezvous, NamesRankZeroWhenItNeverCame) {
  const std::string by_tcp = refusal(tcp(1, 2), {.timeout = 1s});
  EXPECT_EQ(by_tcp,
            fmt::format("DeadlineExceededError: [rendezvous] rank 0 is missing: the job's "
                        "rendezvous was not found at 127.0.0.1:{0} within 1000 ms "
                        "([rendezvous] cannot connect to 127.0.0.1:{0}: Connection refused)",
                        port_));
  EXPECT_EQ(refusal(file(1, 2), {.timeout = 1s}),
            fmt::format("DeadlineExceededError: [rendezvous] rank 0 is missing: the job was not "
                        "found by the file '{}' within 1000 ms (rank 0 has not written to it)",
                        path().string()));
}

TEST_F(Rendezvous, RefusesAWrongTokenOnTheRankThatHasIt) {
  ChildProcess rank0([&] {
    const auto job = rendezvous(tcp(0, 2), {.timeout = testing::kFarAway, .token = "right"});
    return talk(*job);
  });
  EXPECT_EQ(refusal(tcp(1, 2), {.timeout = testing::kFarAway, .token = "wrong"}),
            fmt::format("InvalidArgumentError: [rendezvous] the job at 127.0.0.1:{} has another "
                        "token: TANDEM_JOB_TOKEN must be the same for all ranks of a job",
                        port_));
  ChildProcess file_rank0([&] {
    const auto job = rendezvous(file(0, 2), {.timeout = testing::kFarAway, .token = "right"});
    return talk(*job);
  });
  const std::string by_file = refusal(file(1, 2), {.timeout = testing::kFarAway, .token = "wrong"});
  EXPECT_NE(by_file.find("has another token"), std::string::npos) << by_file;
}

TEST_F(Rendezvous, DoesNotListenToOtherMachinesWithoutAToken) {
  EXPECT_EQ(refusal(tcp(0, 2), {.bind_address = "0.0.0.0"}),
            "FailedPreconditionError: [rendezvous] rank 0 would listen at 0.0.0.0, which other "
            "machines can reach: set the environment variable TANDEM_JOB_TOKEN to the same secret "
            "for all ranks");
  const auto job = rendezvous(tcp(0, 1), {.token = "secret", .bind_address = "0.0.0.0"});
  EXPECT_EQ(talk(*job), "0");
  job->leave();
}

TEST_F(Rendezvous, RefusesANameThatIsTheLoopbackForRanksElsewhere) {
  for (const auto& [name, value] :
       {std::pair("RANK", "0"), std::pair("WORLD_SIZE", "2"), std::pair("LOCAL_WORLD_SIZE", "1"),
        std::pair("MASTER_ADDR", "localhost"), std::pair("MASTER_PORT", "29500")})
    setenv(name, value, 1);
  EXPECT_EQ(
      refusal("env://"),
      "FailedPreconditionError: [rendezvous] MASTER_ADDR: 'localhost' is the loopback on rank "
      "0's machine, where ranks on other machines cannot reach it: use its address, or a "
      "name that is known alike on all");
}

TEST_F(Rendezvous, APortThatIsTakenIsAClearError) {
  const Socket other = listen_on({"127.0.0.1", port_});
  EXPECT_EQ(refusal(tcp(0, 2)),
            fmt::format("AlreadyExistsError: [rendezvous] The server socket has failed to bind to "
                        "127.0.0.1:{} (errno: 98 - Address already in use): another job or program "
                        "listens there; give this job another port",
                        port_));
}

TEST_F(Rendezvous, RefusesARankThatExpectsAnotherSize) {
  ChildProcess rank0([&] { return talk(*rendezvous(tcp(0, 3), {.timeout = testing::kFarAway})); });
  EXPECT_EQ(refusal(tcp(1, 4), {.timeout = testing::kFarAway}),
            "InvalidArgumentError: [rendezvous] rank 1 expects a job of 4 ranks, rank 0 one of 3");
}

TEST_F(Rendezvous, TwoJobsAtOnceDoNotDisturbEachOther) {
  const std::uint16_t other_port = free_port();
  std::vector<ChildProcess> ranks;
  for (int i = 0; i < 4; ++i)
    ranks.emplace_back([&, i] {
      const std::uint16_t port = i < 2 ? port_ : other_port;
      const auto job =
          rendezvous(fmt::format("tcp://127.0.0.1:{}?rank={}&world_size=2", port, i % 2),
                     {.timeout = testing::kFarAway});
      job->store()->add("count", 1);
      talk(*job);
      job->leave();
      return std::string("well");
    });
  for (ChildProcess& rank : ranks) EXPECT_EQ(rank.result(), "well");
  // By one file there is one job at a time.
  ChildProcess owner([&] { return talk(*rendezvous(file(0, 2), {.timeout = testing::kFarAway})); });
  ASSERT_TRUE(
      eventually([&] { return std::filesystem::exists(path()) && FileStore(path()).is_owned(); }));
  EXPECT_EQ(refusal(file(0, 2)), "AlreadyExistsError: [FileStore] '" + path().string() +
                                     "' belongs to another job, which is running");
}

TEST_F(Rendezvous, WhatACrashedJobLeftInTheFileDoesNoHarm) {
  auto crashed = start(2, [&](int rank) {
    const auto job = rendezvous(file(rank, 2));
    talk(*job);
    raise(SIGKILL);
    return "";
  });
  for (ChildProcess& rank : crashed) rank.result();
  EXPECT_EQ(folder_.count_files(), 1u);
  // The other ranks find the leftover before rank 0 comes.
  auto ranks = start(3, [&](int rank) {
    if (rank == 0) std::this_thread::sleep_for(300ms);
    const auto job = rendezvous(file(rank, 3), {.timeout = testing::kFarAway});
    const std::string words = talk(*job);
    job->leave();
    return words;
  });
  for (ChildProcess& rank : ranks) EXPECT_EQ(rank.result(), "012");
}

class Failures : public Rendezvous {
 protected:
  // Three ranks; `act(job)` is what rank `who` does when all have talked. Expects that the others
  // throw this.
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
      " is gone: nothing was heard of it for 5000 ms", 5s);
}

TEST_F(Failures, ASilentRankZeroIsDead) {
  expect(
      0, [](Job&) { raise(SIGSTOP); }, "UnavailableError: [membership] ",
      " is gone: nothing was heard of it for 5000 ms", 5s);
}

TEST_F(Failures, ARankThatGivesUpSaysWhy) {
  const auto give_up = [](Job& job) {
    job.membership()->report("InvalidArgumentError: [MatMul] sizes");
    _exit(3);
  };
  for (const int who : {0, 1})
    expect(who, give_up, "AbortedError: [membership] ",
           " gave up: InvalidArgumentError: [MatMul] sizes");
}

TEST_F(Failures, RankZeroThatLeavesBeforeTheOthersIsNamed) {
  expect(
      0, [](Job& job) { job.leave(50ms); }, "UnavailableError: [membership] ",
      " is gone: it has left the job and taken the rendezvous along");
}

TEST_F(Failures, WakeWhoWaitsForAKeyOfTheDeadRank) {
  auto ranks = start(2, [&](int rank) {
    const auto job = rendezvous(tcp(rank, 2));
    talk(*job);
    if (rank == 1) raise(SIGKILL);
    return job->store()->get("of rank 1", in(testing::kFarAway));
  });
  EXPECT_EQ(ranks[0].result(), "UnavailableError: [membership] " + named(1, ranks[1].id()) +
                                   " is gone: its connection closed without goodbye");
}

TEST_F(Failures, OfARankWhileOthersAreStillToComeAreToldAtOnce) {
  ChildProcess rank0([&] { return refusal(tcp(0, 3), {.timeout = testing::kFarAway}); });
  {
    const std::vector<std::uint16_t> ports = {port_};
    FoundServer rank1 = find_server("127.0.0.1", ports, "", TimeLimit(testing::kFarAway));
    rank1.connection.send(
        {.type = MessageType::kJoin, .rank = 1, .number = 4711, .key = "elsewhere", .value = "3"},
        in(testing::kFarAway));
    for (std::string missing; missing != "2"; std::this_thread::sleep_for(5ms)) {
      rank1.connection.send({.type = MessageType::kHeartbeat}, in(testing::kFarAway));
      missing = rank1.connection.receive(in(testing::kFarAway)).value().value;
    }
  }
  EXPECT_EQ(rank0.result(),
            "UnavailableError: [membership] rank 1 (process 4711 on elsewhere) is "
            "gone: its connection closed without goodbye");
}

TEST_F(Failures, LeavingInAnyOrderIsNone) {
  auto ranks = start(4, [&](int rank) {
    const auto job = rendezvous(tcp(rank, 4), {.heartbeat = 50ms, .silence = testing::kFarAway});
    talk(*job);
    // Rank 0, which carries the rendezvous, is the first to leave.
    std::this_thread::sleep_for(rank * 100ms);
    const bool failed = job->membership()->failed();
    job->store()->set(fmt::format("last word of {}", rank), "");
    job->leave();
    return std::string(failed ? "failed" : "well");
  });
  for (ChildProcess& rank : ranks) EXPECT_EQ(rank.result(), "well");
}

TEST_F(Failures, LeaveDoesNotWaitForTheDead) {
  auto ranks = start(3, [&](int rank) {
    const auto job = rendezvous(tcp(rank, 3));
    talk(*job);
    if (rank == 1) raise(SIGKILL);
    job->leave(std::chrono::hours(1));
    return std::string("left");
  });
  EXPECT_EQ(ranks[0].result(), "left");
  EXPECT_EQ(ranks[2].result(), "left");
}

TEST_F(Failures, OfAJobWhoseRanksAreThreadsOfAProcess) {
  std::vector<std::thread> threads;
  std::vector<std::string> words(3);
  for (int rank = 0; rank < 3; ++rank)
    threads.emplace_back([&, rank] {
      auto job = rendezvous(tcp(rank, 3));
      words[static_cast<std::size_t>(rank)] = talk(*job);
      if (rank == 2) job.reset();  // without goodbye
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
}  // namespace tandem
