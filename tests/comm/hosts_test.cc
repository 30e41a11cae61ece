// Jobs with ranks on several hosts, and failures of the network between them.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>
#include <thread>
#include <vector>

#include "comm/fault_job.h"
#include "comm/rendezvous/rendezvous.h"
#include "comm/rendezvous/socket.h"
#include "support/errors.h"
#include "support/expects.h"
#include "support/files.h"
#include "support/hosts.h"
#include "support/processes.h"
#include "support/waiting.h"
#include "tandem/errors.h"

namespace tandem::hosts_test {
namespace {

using testing::ChildProcess;
using testing::Hosts;
using testing::TemporaryDirectory;
using namespace std::chrono_literals;

// Ranks 0 and 1 on the first host, 2 on the second.
std::vector<ChildProcess> start(const Hosts& hosts, const std::function<std::string(Job&)>& body) {
  std::vector<ChildProcess> ranks;
  for (int rank = 0; rank < 3; ++rank)
    ranks.emplace_back([&, rank] {
      hosts.enter(rank / 2);
      const auto job = rendezvous(
          fmt::format("tcp://{}:29500?rank={}&world_size=3", Hosts::address(0), rank),
          {.timeout = testing::kFarAway, .token = "secret", .heartbeat = 100ms, .silence = 5s});
      return body(*job);
    });
  return ranks;
}

TEST(Hosts, HoldAJob) {
  const Hosts hosts;
  TANDEM_REQUIRE(hosts.connected(), "netns");
  auto ranks = start(hosts, [](Job& job) {
    job.store()->set(std::to_string(job.rank()), std::to_string(job.rank() * 11));
    std::string all;
    for (int rank = 0; rank < job.size(); ++rank)
      all += job.store()->get(std::to_string(rank), Clock::now() + testing::kFarAway) + " ";
    job.shut_down();
    return all;
  });
  for (ChildProcess& rank : ranks) EXPECT_EQ(rank.result(), "0 11 22 ");
}

TEST(Hosts, DetectADisconnectedHostBySilence) {
  const Hosts hosts;
  TANDEM_REQUIRE(hosts.connected(), "netns");
  const TemporaryDirectory ready;
  auto ranks = start(hosts, [&](Job& job) {
    testing::write_file(ready / std::to_string(job.rank()), "");
    if (testing::eventually([&] { return job.membership()->failed(); }))
      job.membership()->throw_failure();
    return std::string("nothing");
  });
  ASSERT_TRUE(testing::eventually([&] { return ready.count_files() == 3; }));
  ASSERT_TRUE(hosts.cut(1));
  const pid_t first = ranks[0].id(), third = ranks[2].id();
  char host[256] = {};
  gethostname(host, sizeof(host) - 1);
  const auto expected = [&](int rank, pid_t process) {
    return fmt::format(
        "UnavailableError: [membership] rank {} (process {} on {}) is gone: no "
        "message was received for 5000 ms",
        rank, process, host);
  };
  EXPECT_EQ(ranks[0].result(), expected(2, third));
  EXPECT_EQ(ranks[1].result(), expected(2, third));
  EXPECT_EQ(ranks[2].result(), expected(0, first));
}

TEST(Hosts, NeedAToken) {
  const Hosts hosts;
  TANDEM_REQUIRE(hosts.connected(), "netns");
  ChildProcess rank([&] {
    rendezvous(fmt::format("tcp://{}:29500?rank=0&world_size=2", Hosts::address(0)), {.token = ""});
    return "";
  });
  const std::string result = rank.result();
  EXPECT_EQ(result.find("FailedPreconditionError: [rendezvous] rank 0 would listen at 10.77.0.1, "
                        "which other machines can reach"),
            0u)
      << result;
}

// Connections to one rank need a port each. Ranks that have one are informed of the rank that has
// none.
TEST(Hosts, PortsThatRunOutWhileAGroupConnectsAreATypedErrorOfAll) {
  TANDEM_REQUIRE(has_gloo(), "gloo");
  const Hosts hosts(1);
  TANDEM_REQUIRE(hosts.connected(), "netns");
  std::ofstream("/proc/sys/net/ipv4/ip_local_port_range") << "33000 33007" << std::flush;
  std::ifstream range("/proc/sys/net/ipv4/ip_local_port_range");
  if (int first = 0; !(range >> first) || first != 33000)
    GTEST_SKIP() << "this system does not let a test limit its ports";
  const testing::FaultJob job{.backend = "gloo", .ranks = 6, .address = "127.0.0.1"};
  const ExitCodes codes = run_processes(job.ranks, [&](int rank) {
    const std::string text = testing::error_of<ResourceExhaustedError>([&] { job.join(rank); });
    EXPECT_NE(text.find("this host has no free port"), std::string::npos) << text;
  });
  EXPECT_EQ(codes, ExitCodes(6, 0));
}

}  // namespace
}  // namespace tandem::hosts_test
