// How the ranks of a job find each other.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <optional>
#include <thread>
#include <vector>

#include "comm/rendezvous/cluster_environment.h"
#include "comm/rendezvous/file_store.h"
#include "comm/rendezvous/server_connection.h"
#include "comm/rendezvous/socket.h"
#include "comm/rendezvous/tcp_server.h"
#include "comm/rendezvous_job.h"
#include "support/errors.h"
#include "support/expects.h"
#include "support/files.h"
#include "support/mount_namespace.h"
#include "support/processes.h"
#include "support/waiting.h"
#include "tandem/errors.h"

namespace tandem::rendezvous_test {
namespace {

using namespace testing;
using namespace std::chrono_literals;

TEST_F(Rendezvous, ByTcpAndByFile) {
  for (const int size : {1, 2, 5})
    for (const bool by_file : {false, true}) {
      auto ranks = start(size, [&](int rank) {
        const auto job = rendezvous(by_file ? file(rank, size) : tcp(rank, size));
        const std::string words = talk(*job);
        job->shut_down();
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
    return talk_and_leave(*job);
  });
  for (ChildProcess& rank : ranks) EXPECT_EQ(rank.result(), "012");
}

// Two steps of srun on one host, which sets a name for each and no port.
TEST_F(Rendezvous, StepsOfSlurmAreJobsOfTheirOwn) {
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
      return talk_and_leave(*job);
    });
  };
  auto first = step("0"), second = step("1");
  for (ChildProcess& rank : first) EXPECT_EQ(rank.result(), "012");
  for (ChildProcess& rank : second) EXPECT_EQ(rank.result(), "012");
}

TEST_F(Rendezvous, BesideTheStoreOfTorchrun) {
  // torchrun's own store uses the port that it sets.
  const Socket agent = listen_on({"127.0.0.1", 0});
  setenv("MASTER_ADDR", "127.0.0.1", 1);
  setenv("MASTER_PORT", std::to_string(port_of(agent)).c_str(), 1);
  setenv("TORCHELASTIC_USE_AGENT_STORE", "True", 1);
  setenv("WORLD_SIZE", "2", 1);
  // Another program uses the first derived port, and another job the second.
  const std::vector<std::uint16_t> ports = cluster_environment().ports;
  const Socket other_program = listen_on({"127.0.0.1", ports[0]});
  ChildProcess other_job([&] {
    rendezvous(fmt::format("tcp://127.0.0.1:{}?rank=0&world_size=2", ports[1]));
    return "";
  });
  auto ranks = start(2, [](int rank) {
    setenv("RANK", std::to_string(rank).c_str(), 1);
    const auto job = rendezvous("env://", {.timeout = testing::kFarAway});
    return talk_and_leave(*job);
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
        job->shut_down();
      }
      return words;
    });
    for (ChildProcess& rank : ranks) EXPECT_EQ(rank.result(), "012 012 012 012 012 ");
  }
}

TEST_F(Rendezvous, NamesMissingParametersAsTorchDoes) {
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

// The other ranks would look for rank 0 until their time limit.
TEST_F(Rendezvous, AtAnyPortIsRefused) {
  for (const char* rank : {"0", "1"}) {
    const std::string error =
        "InvalidArgumentError: [rendezvous] expected the port of rank 0, got 0";
    EXPECT_EQ(refusal(std::string("tcp://127.0.0.1:0?world_size=2&rank=") + rank).find(error), 0u);
    for (const auto& [name, value] : {std::pair{"MASTER_ADDR", "127.0.0.1"},
                                      {"MASTER_PORT", "0"},
                                      {"RANK", rank},
                                      {"WORLD_SIZE", "2"}})
      setenv(name, value, 1);
    EXPECT_EQ(refusal("env://").find(error), 0u);
  }
}

// As in a pod of Kubernetes that knows itself as localhost. Nothing says that the other rank is not
// on this machine.
TEST_F(Rendezvous, ARankZeroAtTheLoopbackSaysSo) {
  for (const auto& [name, value] :
       {std::pair{"MASTER_ADDR", "localhost"}, {"RANK", "0"}, {"WORLD_SIZE", "2"}})
    setenv(name, value, 1);
  setenv("MASTER_PORT", std::to_string(port_).c_str(), 1);
  const std::string hint =
      "rank 1 of 2 did not join within 500 ms; rank 0 listens on MASTER_ADDR, 'localhost', which "
      "ranks on other machines cannot reach";
  EXPECT_NE(refusal("env://", {.timeout = 500ms}).find(hint), std::string::npos);
  setenv("LOCAL_WORLD_SIZE", "2", 1);
  EXPECT_EQ(refusal("env://", {.timeout = 500ms}).find(hint), std::string::npos);
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
  job->shut_down();
  rendezvous("env://")->shut_down();
}

TEST_F(Rendezvous, NamesTheRanksThatNeverCame) {
  auto ranks = start(2, [&](int rank) {
    rendezvous(tcp(rank == 0 ? 0 : 2, 4), {.timeout = rank == 0 ? 3s : testing::kFarAway});
    return "";
  });
  EXPECT_EQ(ranks[0].result(),
            "DeadlineExceededError: [rendezvous] ranks 1, 3 of 4 did not join within 3000 ms");
  // It informed the ranks that had joined.
  const std::string other = ranks[1].result();
  EXPECT_EQ(other.find("AbortedError: [membership] rank 0 (process "), 0u) << other;
  EXPECT_NE(other.find("aborted: ranks 1, 3 of 4 did not join within 3000 ms"), std::string::npos);
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
  const std::string why = "rank 1 expects a job of 4 ranks, rank 0 one of 3";
  EXPECT_EQ(refusal(tcp(1, 4), {.timeout = testing::kFarAway}),
            "InvalidArgumentError: [rendezvous] " + why);
  // The others get the error at once instead of waiting in vain.
  EXPECT_EQ(rank0.result(), fmt::format("AbortedError: [membership] a process ({} on {}) was "
                                        "refused: {}",
                                        getpid(), host_name(), why));
}

TEST_F(Rendezvous, RefusesASecondProcessOfOneNumber) {
  const testing::Arrivals refused;
  auto ranks = start(3, [&](int process) {
    const std::string error =
        refusal(tcp(process == 2 ? 1 : process, 3), {.timeout = testing::kFarAway});
    if (error.starts_with("InvalidArgumentError")) refused.arrive();
    return error;
  });
  std::vector<std::string> errors;
  for (ChildProcess& rank : ranks) errors.push_back(rank.result());
  std::sort(errors.begin(), errors.end());
  EXPECT_EQ(errors[0].find("AbortedError: [membership] a process ("), 0u) << errors[0];
  EXPECT_EQ(errors[0], errors[1]);
  EXPECT_NE(errors[0].find(" was refused: rank 1 (process "), std::string::npos);
  EXPECT_EQ(errors[2].find("InvalidArgumentError: [rendezvous] rank 1 (process "), 0u) << errors[2];
  EXPECT_NE(errors[2].find(" is in the job already"), std::string::npos);
}

// Each connection takes a while.
class RendezvousSlow : public Rendezvous {};

TEST_F(RendezvousSlow, TriesEachAddressOfAName) {
  TANDEM_REQUIRE(testing::enter_mount_namespace(), "namespaces");
  // The first address does not respond: its queue of connections is full.
  const Socket silent(socket(AF_INET, SOCK_STREAM, 0));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(0x7f000002);
  address.sin_port = htons(port_);
  ASSERT_EQ(bind(silent.descriptor(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  ASSERT_EQ(listen(silent.descriptor(), 0), 0);
  std::vector<Socket> queue;
  for (int i = 0; i < 8; ++i) queue.push_back(start_connecting({"127.0.0.2", port_}));
  testing::write_file(folder_ / "hosts", "127.0.0.2 twofold\n127.0.0.1 twofold\n");
  ASSERT_EQ(mount((folder_ / "hosts").c_str(), "/etc/hosts", nullptr, MS_BIND, nullptr), 0);
  ChildProcess rank0([&] {
    const auto job = rendezvous(tcp(0, 2), {.timeout = testing::kFarAway});
    return talk_and_leave(*job);
  });
  const auto job = rendezvous(fmt::format("tcp://twofold:{}?rank=1&world_size=2", port_),
                              {.timeout = testing::kFarAway});
  EXPECT_EQ(talk(*job), "01");
  job->shut_down();
  EXPECT_EQ(rank0.result(), "01");
}

TEST_F(FewDescriptors, OfRankZeroAreTooFewForAllRanks) {
  limit(32, 32);
  EXPECT_EQ(refusal(tcp(0, 24)),
            "ResourceExhaustedError: [rendezvous] rank 0, the host of a job of 24 ranks, needs "
            "about 64 open files and sockets, but this process may have 32 (RLIMIT_NOFILE): raise "
            "the hard limit (`ulimit -Hn`, LimitNOFILE)");
}

TEST_F(FewDescriptors, AreRaisedAsFarAsTheyMayBe) {
  auto ranks = start(20, [&](int rank) {
    limit(10, 80);
    const auto job = rendezvous(tcp(rank, 20), {.timeout = testing::kFarAway});
    const auto words = talk(*job);
    job->shut_down();
    return words;
  });
  for (ChildProcess& rank : ranks) EXPECT_EQ(rank.result(), "012345678910111213141516171819");
}

TEST_F(FewDescriptors, EndARankAtOnce) {
  limit(8, 8);
  EXPECT_EQ(refusal(tcp(1, 2), {.timeout = testing::kFarAway}),
            "ResourceExhaustedError: [rendezvous] rank 1 of a job needs about 16 open files and "
            "sockets, but this process may have 8 (RLIMIT_NOFILE): raise the hard limit (`ulimit "
            "-Hn`, LimitNOFILE)");
}

// All ranks that have joined learn the cause, and none is reported missing.
TEST_F(FewDescriptors, ThatRunOutWhileRanksJoinEndTheJob) {
  const testing::Arrivals joined;
  ChildProcess host([&] {
    TcpServer server({.port = port_, .size = 40});
    limit(24, 24);
    joined.wait_for(1);
    return "";
  });
  const std::vector<std::uint16_t> ports = {port_};
  std::vector<ServerConnection> ranks;
  ranks.push_back(
      std::move(find_server("127.0.0.1", ports, "", TimeLimit(testing::kFarAway)).connection));
  try {
    for (int rank = 0;; ++rank) {
      ranks.back().send(
          {.type = MessageType::kJoin, .rank = rank, .key = "host", .value = "40 30000"},
          in(testing::kFarAway));
      ranks.emplace_back(ServerAddress{{"127.0.0.1", port_}, ""}, in(1s));
    }
  } catch (const UnavailableError&) {
    // There was no room for another one.
  }
  std::optional<WireMessage> failure;
  do failure = ranks.front().receive(in(testing::kFarAway));
  while (failure && failure->type != MessageType::kFailed);
  joined.arrive();
  ASSERT_TRUE(failure);
  EXPECT_NE(failure->value.find("rank 0 (process 0 on host) aborted: it cannot take in more ranks: "
                                "[rendezvous] this process has all 24 files and sockets open"),
            std::string::npos)
      << failure->value;
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
      job->shut_down();
      return std::string("well");
    });
  for (ChildProcess& rank : ranks) EXPECT_EQ(rank.result(), "well");
  // One file serves one job at a time.
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
  // The other ranks read the old contents before rank 0 arrives.
  auto ranks = start(3, [&](int rank) {
    if (rank == 0) std::this_thread::sleep_for(300ms);
    const auto job = rendezvous(file(rank, 3), {.timeout = testing::kFarAway});
    return talk_and_leave(*job);
  });
  for (ChildProcess& rank : ranks) EXPECT_EQ(rank.result(), "012");
}

}  // namespace
}  // namespace tandem::rendezvous_test
