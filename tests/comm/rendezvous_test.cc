// Jobs of several processes: how their ranks find each other, and what they learn of a rank that
// dies, gives up, leaves or never comes.
#include "comm/rendezvous/rendezvous.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "comm/rendezvous/cluster_environment.h"
#include "comm/rendezvous/file_store.h"
#include "comm/rendezvous/local_secret.h"
#include "comm/rendezvous/server_connection.h"
#include "comm/rendezvous/socket.h"
#include "comm/rendezvous/tcp_server.h"
#include "comm/rendezvous/tcp_store.h"
#include "support/errors.h"
#include "support/expects.h"
#include "support/files.h"
#include "support/mount_namespace.h"
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
                        "token, or is another user's: TANDEM_JOB_TOKEN must be the same for all "
                        "ranks of a job",
                        port_));
  ChildProcess file_rank0([&] {
    const auto job = rendezvous(file(0, 2), {.timeout = testing::kFarAway, .token = "right"});
    return talk(*job);
  });
  const std::string by_file = refusal(file(1, 2), {.timeout = testing::kFarAway, .token = "wrong"});
  EXPECT_NE(by_file.find("has another token"), std::string::npos) << by_file;
}

// On the loopback, where every user can connect.
TEST_F(Rendezvous, WithoutATokenIsForOneUser) {
  TANDEM_REQUIRE(getuid() == 0, "root");
  // Rank 0, whose server the other one needs, leaves last.
  const auto meet_and_leave = [&](int rank) {
    const auto job = rendezvous(tcp(rank, 2), {.timeout = testing::kFarAway});
    const std::string words = talk(*job);
    job->leave();
    return words;
  };
  ChildProcess rank0([&] { return meet_and_leave(0); });
  ChildProcess nobody([&] {
    if (setgid(65534) != 0 || setuid(65534) != 0) return std::string("cannot become nobody");
    return refusal(tcp(1, 2), {.timeout = testing::kFarAway});
  });
  const std::string error = nobody.result();
  std::filesystem::remove_all("/tmp/tandem-65534");
  EXPECT_EQ(error.find("InvalidArgumentError: [rendezvous] the job at 127.0.0.1:"), 0u) << error;
  EXPECT_NE(error.find("has another token, or is another user's"), std::string::npos) << error;
  // Nor does the empty secret open it.
  ChildProcess stranger([&] {
    TcpStore({{"127.0.0.1", port_}, ""}).set("word 0", "of a stranger");
    return std::string("well");
  });
  EXPECT_EQ(stranger.result().find("InvalidArgumentError: "), 0u);
  EXPECT_EQ(meet_and_leave(1), "01");
  EXPECT_EQ(rank0.result(), "01");
}

TEST_F(Rendezvous, TheSecretOfAUserIsOneForAll) {
  const std::string folder = folder_.path() / "secrets";
  const testing::Arrivals ready;
  std::vector<ChildProcess> processes;
  for (int i = 0; i < 8; ++i)
    processes.emplace_back([&] {
      ready.meet(8);
      return local_secret_in(folder);
    });
  const std::string secret = processes.front().result();
  EXPECT_EQ(secret.size(), 32u);
  for (int i = 1; i < 8; ++i) EXPECT_EQ(processes[static_cast<std::size_t>(i)].result(), secret);
  struct stat status = {};
  ASSERT_EQ(stat((folder + "/secret").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder), {}), 1);
}

TEST_F(Rendezvous, TheSecretOfAUserIsNotReadFromAPlaceThatOthersMayUse) {
  const std::string folder = folder_.path() / "open";
  std::filesystem::create_directory(folder);
  chmod(folder.c_str(), 0777);
  EXPECT_NE(testing::error_of<FailedPreconditionError>([&] {
              local_secret_in(folder);
            }).find("has mode 777"),
            std::string::npos);
  chmod(folder.c_str(), 0700);
  std::filesystem::create_symlink("/etc/passwd", folder + "/secret");
  EXPECT_NE(
      testing::error_of<UnavailableError>([&] { local_secret_in(folder); }).find("cannot open it"),
      std::string::npos);
  std::filesystem::create_symlink(folder, folder_.path() / "link");
  testing::error_of<UnavailableError>([&] { local_secret_in(folder_.path() / "link"); });
  TANDEM_REQUIRE(getuid() == 0, "root");
  std::filesystem::remove(folder + "/secret");
  ASSERT_EQ(chown(folder.c_str(), 65534, 65534), 0);
  EXPECT_NE(testing::error_of<FailedPreconditionError>([&] {
              local_secret_in(folder);
            }).find("belongs to user 65534"),
            std::string::npos);
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
  const std::string why = "rank 1 expects a job of 4 ranks, rank 0 one of 3";
  EXPECT_EQ(refusal(tcp(1, 4), {.timeout = testing::kFarAway}),
            "InvalidArgumentError: [rendezvous] " + why);
  // The others learn at once that they would wait in vain, and why.
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

// It is no member, maybe a stranger: it ends no job. But ranks that wait in vain name it.
TEST_F(Rendezvous, NamesAWrongTokenToTheRanksThatWait) {
  ChildProcess rank0([&] { return refusal(tcp(0, 2), {.timeout = 3s, .token = "right"}); });
  refusal(tcp(1, 2), {.timeout = testing::kFarAway, .token = "wrong"});
  EXPECT_EQ(
      rank0.result(),
      "DeadlineExceededError: [rendezvous] rank 1 of 2 did not join within 3000 ms; 1 process "
      "was refused, the first at 127.0.0.1: another token than this job's, or another user");
}

// Each connection takes a while.
class RendezvousSlow : public Rendezvous {};

TEST_F(RendezvousSlow, TriesEachAddressOfAName) {
  TANDEM_REQUIRE(testing::enter_mount_namespace(), "namespaces");
  // At the first address nobody answers: its queue of connections is full.
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
    const std::string words = talk(*job);
    job->leave();
    return words;
  });
  const auto job = rendezvous(fmt::format("tcp://twofold:{}?rank=1&world_size=2", port_),
                              {.timeout = testing::kFarAway});
  EXPECT_EQ(talk(*job), "01");
  job->leave();
  EXPECT_EQ(rank0.result(), "01");
}

// Processes that may have few files and sockets open.
class FewDescriptors : public Rendezvous {
 protected:
  void SetUp() override {
#ifdef __SANITIZE_ADDRESS__
    GTEST_SKIP() << "a sanitizer of undefined behaviour wants a pipe of its own to look at objects";
#endif
  }
  static void limit(rlim_t soft, rlim_t hard) {
    const rlimit limit = {soft, hard};
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  }
};

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
    job->leave();
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
      ranks.back().send({.type = MessageType::kJoin, .rank = rank, .key = "host", .value = "40"},
                        in(testing::kFarAway));
      ranks.emplace_back(ServerAddress{{"127.0.0.1", port_}, ""}, in(1s));
    }
  } catch (const UnavailableError&) {
    // There was no room for another one.
  }
  std::optional<Message> told;
  do told = ranks.front().receive(in(testing::kFarAway));
  while (told && told->type != MessageType::kFailed);
  joined.arrive();
  ASSERT_TRUE(told);
  EXPECT_NE(told->value.find("rank 0 (process 0 on host) gave up: it cannot take in more ranks: "
                             "[rendezvous] this process has all 24 files and sockets open"),
            std::string::npos)
      << told->value;
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
                                   " is gone: nothing was heard of it for 2000 ms");
  ranks[1].kill(SIGKILL);
  setenv("TANDEM_SILENCE_LIMIT", "0", 1);
  EXPECT_EQ(refusal(tcp(0, 1)).find("InvalidArgumentError"), 0u);
  EXPECT_EQ(refusal(tcp(0, 1), {.silence = 0ms}),
            "InvalidArgumentError: [rendezvous] expected a positive silence_limit, got 0 ms");
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
    FoundServer rank1 =
        find_server("127.0.0.1", ports, local_secret(), TimeLimit(testing::kFarAway));
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

// Though rank 0 has ended because of it: its process stays for a moment to tell.
TEST_F(Failures, AreToldToARankThatComesLate) {
  const testing::Arrivals failed;
  ChildProcess rank0([&]() -> std::string {
    refusal(tcp(0, 3), {.timeout = testing::kFarAway});
    failed.arrive();
    std::exit(0);
  });
  {
    const std::vector<std::uint16_t> ports = {port_};
    FoundServer rank1 =
        find_server("127.0.0.1", ports, local_secret(), TimeLimit(testing::kFarAway));
    rank1.connection.send(
        {.type = MessageType::kJoin, .rank = 1, .number = 4711, .key = "elsewhere", .value = "3"},
        in(testing::kFarAway));
    rank1.connection.receive(in(testing::kFarAway));
  }
  failed.wait_for(1);
  EXPECT_EQ(refusal(tcp(2, 3), {.timeout = testing::kFarAway}),
            "UnavailableError: [membership] rank 1 (process 4711 on elsewhere) is gone: its "
            "connection closed without goodbye");
  rank0.result();  // does not stay when it has told all
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
