// Which processes may join a job: tokens, and the secret of a user.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <functional>
#include <vector>

#include "comm/rendezvous/local_secret.h"
#include "comm/rendezvous/tcp_store.h"
#include "comm/rendezvous_job.h"
#include "support/errors.h"
#include "support/expects.h"
#include "support/files.h"
#include "support/processes.h"
#include "support/waiting.h"
#include "tandem/errors.h"

namespace tandem::rendezvous_secrets_test {
namespace {

using testing::ChildProcess;
using testing::in;
using testing::refusal;
using testing::Rendezvous;
using testing::talk;
using testing::talk_and_leave;
using namespace std::chrono_literals;

class RendezvousSecrets : public Rendezvous {};

TEST_F(RendezvousSecrets, RefusesAWrongTokenOnTheRankThatHasIt) {
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

// On the loopback any local user can connect.
TEST_F(RendezvousSecrets, WithoutATokenIsForOneUser) {
  TANDEM_REQUIRE(getuid() == 0, "root");
  // Rank 0 leaves last, because the other rank needs its server.
  const auto meet_and_leave = [&](int rank) {
    const auto job = rendezvous(tcp(rank, 2), {.timeout = testing::kFarAway});
    return talk_and_leave(*job);
  };
  ChildProcess rank0([&] { return meet_and_leave(0); });
  ChildProcess other_user([&] {
    if (setgid(65534) != 0 || setuid(65534) != 0) return std::string("cannot change the user");
    return refusal(tcp(1, 2), {.timeout = testing::kFarAway});
  });
  const std::string error = other_user.result();
  std::filesystem::remove_all("/tmp/tandem-65534");
  EXPECT_EQ(error.find("InvalidArgumentError: [rendezvous] the job at 127.0.0.1:"), 0u) << error;
  EXPECT_NE(error.find("has another token, or is another user's"), std::string::npos) << error;
  // An empty secret is refused as well.
  ChildProcess stranger([&] {
    TcpStore({{"127.0.0.1", port_}, ""}).set("word 0", "of a stranger");
    return std::string("well");
  });
  EXPECT_EQ(stranger.result().find("InvalidArgumentError: "), 0u);
  EXPECT_EQ(meet_and_leave(1), "01");
  EXPECT_EQ(rank0.result(), "01");
}

TEST_F(RendezvousSecrets, TheSecretOfAUserIsOneForAll) {
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

TEST_F(RendezvousSecrets, TheSecretOfAUserIsNotReadFromAPlaceThatOthersMayUse) {
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

TEST_F(RendezvousSecrets, DoesNotListenToOtherMachinesWithoutAToken) {
  EXPECT_EQ(refusal(tcp(0, 2), {.bind_address = "0.0.0.0"}),
            "FailedPreconditionError: [rendezvous] rank 0 would listen at 0.0.0.0, which other "
            "machines can reach: set the environment variable TANDEM_JOB_TOKEN to the same secret "
            "for all ranks");
  const auto job = rendezvous(tcp(0, 1), {.token = "secret", .bind_address = "0.0.0.0"});
  EXPECT_EQ(talk(*job), "0");
  job->shut_down();
}

TEST_F(RendezvousSecrets, EveryRankOfSeveralHostsWantsAToken) {
  setenv("MASTER_PORT", "29500", 1);
  setenv("WORLD_SIZE", "2", 1);
  for (const char* rank : {"0", "1"}) {
    setenv("RANK", rank, 1);
    unsetenv("LOCAL_WORLD_SIZE");
    setenv("MASTER_ADDR", "192.0.2.1", 1);
    EXPECT_EQ(refusal("env://", {.timeout = testing::kFarAway}),
              "FailedPreconditionError: [rendezvous] rank 0 would listen at 192.0.2.1, which other "
              "machines can reach: set the environment variable TANDEM_JOB_TOKEN to the same "
              "secret for all ranks");
    setenv("LOCAL_WORLD_SIZE", "1", 1);
    for (const char* host : {"localhost", "unknown.invalid"}) {
      setenv("MASTER_ADDR", host, 1);
      EXPECT_EQ(refusal("env://", {.timeout = testing::kFarAway}),
                "FailedPreconditionError: [rendezvous] the job has 1 ranks on this host and 2 in "
                "all: for ranks on several hosts, set the environment variable TANDEM_JOB_TOKEN "
                "to the same secret for all");
    }
  }
}

// A refused process may not belong to the job, so the job continues; but errors about missing ranks
// mention it.
TEST_F(RendezvousSecrets, NamesAWrongTokenToTheRanksThatWait) {
  ChildProcess rank0([&] { return refusal(tcp(0, 2), {.timeout = 3s, .token = "right"}); });
  refusal(tcp(1, 2), {.timeout = testing::kFarAway, .token = "wrong"});
  EXPECT_EQ(
      rank0.result(),
      "DeadlineExceededError: [rendezvous] rank 1 of 2 did not join within 3000 ms; 1 process "
      "was refused, the first at 127.0.0.1: another token than this job's, or another user");
}

}  // namespace
}  // namespace tandem::rendezvous_secrets_test
