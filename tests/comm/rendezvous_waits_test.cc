// Where rank 0 listens, and how ranks wait for its address and for each other.
#include <arpa/inet.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <sys/mount.h>

#include <chrono>
#include <cstdlib>
#include <string>

#include "comm/rendezvous/socket.h"
#include "comm/rendezvous_job.h"
#include "support/expects.h"
#include "support/files.h"
#include "support/log_file.h"
#include "support/mount_namespace.h"
#include "support/processes.h"
#include "support/waiting.h"

namespace tandem::rendezvous_waits_test {
namespace {

using testing::ChildProcess;
using testing::refusal;
using testing::Rendezvous;
using testing::start;
using testing::talk_and_leave;
using namespace std::chrono_literals;

// An IPv4 address at which other machines would reach this one; empty without a network.
std::string outer_address() {
  std::string address;
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return address;
  for (const ifaddrs* at = all; at; at = at->ifa_next)
    if (at->ifa_addr && at->ifa_addr->sa_family == AF_INET && !(at->ifa_flags & IFF_LOOPBACK))
      address = inet_ntoa(reinterpret_cast<const sockaddr_in*>(at->ifa_addr)->sin_addr);
  freeifaddrs(all);
  return address;
}

// As in pods of Kubernetes: rank 0's pod may know itself as localhost only, or its name may not be
// known yet. The others reach it at an address of the machine.
TEST_F(Rendezvous, RankZeroListensOnAllOfItsAddresses) {
  setenv("MASTER_PORT", std::to_string(port_).c_str(), 1);
  setenv("WORLD_SIZE", "2", 1);
  setenv("TANDEM_JOB_TOKEN", "secret", 1);
  for (const char* host : {"0.0.0.0", "localhost", "127.0.0.1", "rank-0.invalid"})
    for (const std::string& address : {std::string("127.0.0.1"), outer_address()}) {
      if (address.empty()) continue;
      auto ranks = start(2, [&](int rank) {
        setenv("RANK", std::to_string(rank).c_str(), 1);
        setenv("MASTER_ADDR", rank == 0 ? host : address.c_str(), 1);
        const auto job = rendezvous("env://", {.timeout = testing::kFarAway});
        return talk_and_leave(*job);
      });
      for (ChildProcess& rank : ranks) EXPECT_EQ(rank.result(), "01") << host << ' ' << address;
    }
}

// Without a token, whether others can reach rank 0 depends on the address.
TEST_F(Rendezvous, WaitsForAnAddressOfRankZero) {
  for (int rank = 0; rank < 2; ++rank)
    EXPECT_EQ(refusal(fmt::format("tcp://rank-0.invalid:80?rank={}&world_size=2", rank),
                      {.timeout = 200ms})
                  .find("DeadlineExceededError: [rendezvous] no address is known for "
                        "'rank-0.invalid': "),
              0u);
}

TEST_F(Rendezvous, ALongWaitForRanksIsLogged) {
  setenv("TANDEM_STALL_WARNING", "1", 1);
  const testing::LogFile log;
  for (const int late : {0, 1}) {
    auto ranks = start(2, [&](int rank) {
      if (rank == late) {
        EXPECT_TRUE(log.wait_for(
            rank == 0 ? fmt::format("[rendezvous] rank 0 is missing: the job's rendezvous was not "
                                    "found at 127.0.0.1:{} within ",
                                    port_)
                      : "[rendezvous] rank 1 of 2 did not join within "));
      }
      const auto job = rendezvous(tcp(rank, 2), {.timeout = testing::kFarAway});
      return talk_and_leave(*job);
    });
    for (ChildProcess& rank : ranks) EXPECT_EQ(rank.result(), "01");
  }
}

TEST_F(Rendezvous, ALongWaitForTheFileOfRankZeroIsLogged) {
  setenv("TANDEM_STALL_WARNING", "1", 1);
  const testing::LogFile log;
  auto ranks = start(2, [&](int rank) {
    if (rank == 0) {
      EXPECT_TRUE(
          log.wait_for("[rendezvous] rank 0 is missing: the job was not found by the file"));
    }
    const auto job = rendezvous(file(rank, 2), {.timeout = testing::kFarAway});
    return talk_and_leave(*job);
  });
  for (ChildProcess& rank : ranks) EXPECT_EQ(rank.result(), "01");
}

// As on a cluster whose names become known after its processes have started.
TEST_F(Rendezvous, ANameMayBecomeKnownLater) {
  TANDEM_REQUIRE(testing::enter_mount_namespace(), "namespaces");
  setenv("TANDEM_STALL_WARNING", "1", 1);
  testing::write_file(folder_ / "hosts", "127.0.0.1 localhost\n");
  ASSERT_EQ(mount((folder_ / "hosts").c_str(), "/etc/hosts", nullptr, MS_BIND, nullptr), 0);
  const testing::LogFile log;
  auto ranks = start(2, [&](int rank) {
    const auto job =
        rendezvous(fmt::format("tcp://rank-0.invalid:{}?rank={}&world_size=2", port_, rank),
                   {.timeout = testing::kFarAway});
    return talk_and_leave(*job);
  });
  EXPECT_TRUE(log.wait_for("[rendezvous] no address is known for 'rank-0.invalid': "));
  testing::write_file(folder_ / "hosts", "127.0.0.1 localhost rank-0.invalid\n");
  for (ChildProcess& rank : ranks) EXPECT_EQ(rank.result(), "01");
}

}  // namespace
}  // namespace tandem::rendezvous_waits_test
