// Collectives between hosts, and what becomes of them when a cable is taken out.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <thread>
#include <tuple>
#include <vector>

#include "comm/gloo/gloo_backend.h"
#include "comm/rendezvous/rendezvous.h"
#include "core/parallel.h"
#include "device/device_manager.h"
#include "group/connect.h"
#include "support/expects.h"
#include "support/files.h"
#include "support/hosts.h"
#include "support/processes.h"
#include "tandem/errors.h"

namespace tandem {
namespace {

using testing::ChildProcess;
using testing::Hosts;
using testing::TemporaryDirectory;
using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

struct Cluster {
  int hosts = 2;
  int ranks_a_host = 1;
  std::string backend = "gloo";
  int ranks() const { return hosts * ranks_a_host; }
};

// A process a rank; ranks go round the hosts, so that a host's are not one behind the other.
std::vector<ChildProcess> start(
    const Hosts& hosts, const Cluster& cluster,
    const std::function<std::string(Communicator&, const std::function<void()>&)>& body) {
  std::vector<ChildProcess> ranks;
  for (int rank = 0; rank < cluster.ranks(); ++rank)
    ranks.emplace_back([&, rank] {
      hosts.enter(rank % cluster.hosts);
      const ThreadBudget one(1);
      const auto job =
          rendezvous(fmt::format("tcp://{}:29500?rank={}&world_size={}", Hosts::address(0), rank,
                                 cluster.ranks()),
                     {.timeout = 60s, .token = "secret", .heartbeat = 100ms, .silence = 2s});
      Device& device = *DeviceManager::get().devices(DeviceType::kCpu, "test").front();
      const auto communicator =
          connect(*job, device, {.backend = cluster.backend, .time_limit = 30s});
      return body(*communicator, [&] { job->leave(); });
    });
  return ranks;
}

// Sums whose value each rank can tell.
std::string sum_up(Communicator& communicator) {
  std::string result;
  for (std::int64_t count : {3, 10'000, 3'000'000}) {
    std::vector<float> values(static_cast<std::size_t>(count),
                              static_cast<float>(communicator.rank() + 1));
    const Buffer buffer = {values.data(), count, float32};
    communicator.all_reduce({&buffer, 1}, ReduceOp::kSum)->wait();
    result += fmt::format("{} {} ", values.front(), values.back());
    communicator.broadcast({&buffer, 1}, communicator.size() - 1)->wait();
  }
  int mine = communicator.rank();
  std::vector<int> all(static_cast<std::size_t>(communicator.size()));
  communicator.exchange(&mine, sizeof(mine), all.data());
  return result + fmt::format("{}", fmt::join(all, ""));
}

class BetweenHosts : public ::testing::TestWithParam<std::tuple<std::string, int, int>> {
 protected:
  Cluster cluster() const {
    const auto& [backend, hosts, ranks] = GetParam();
    return {.hosts = hosts, .ranks_a_host = ranks, .backend = backend};
  }
};

TEST_P(BetweenHosts, CollectivesGoThrough) {
  TANDEM_REQUIRE(has_gloo(), "gloo");
  const Hosts hosts(cluster().hosts);
  TANDEM_REQUIRE(hosts.connected(), "netns");
  auto ranks = start(hosts, cluster(), [](Communicator& communicator, const auto& leave) {
    const std::string result = sum_up(communicator);
    communicator.barrier()->wait();
    leave();
    return result;
  });
  const int count = cluster().ranks(), sum = count * (count + 1) / 2;
  std::string all;
  for (int rank = 0; rank < count; ++rank) all += std::to_string(rank);
  for (ChildProcess& rank : ranks)
    EXPECT_EQ(rank.result(), fmt::format("{0} {0} {0} {0} {0} {0} {1}", sum, all));
}

// The last host's cable is taken out while collectives go on without end.
TEST_P(BetweenHosts, ACutCableIsATypedErrorThatNamesThePeer) {
  TANDEM_REQUIRE(has_gloo(), "gloo");
  const Hosts hosts(cluster().hosts);
  TANDEM_REQUIRE(hosts.connected(), "netns");
  const TemporaryDirectory busy;
  auto ranks = start(hosts, cluster(), [&](Communicator& communicator, const auto&) {
    std::vector<float> values(4'000'000, 1.0f);
    const Buffer buffer = {values.data(), 4'000'000, float32};
    communicator.all_reduce({&buffer, 1}, ReduceOp::kMean)->wait();
    testing::write_file(busy / std::to_string(communicator.rank()), "");
    const auto end = Clock::now() + 60s;
    while (Clock::now() < end) communicator.all_reduce({&buffer, 1}, ReduceOp::kMean)->wait();
    return std::string("nothing");
  });
  while (static_cast<int>(busy.count_files()) < cluster().ranks()) std::this_thread::sleep_for(1ms);
  const int last = cluster().hosts - 1;
  ASSERT_TRUE(hosts.cut(last));
  const auto begin = Clock::now();
  for (int rank = 0; rank < cluster().ranks(); ++rank) {
    const std::string result = ranks[static_cast<std::size_t>(rank)].result();
    // Those on the other hosts name one behind the cable; those behind it, rank 0.
    const bool beyond = rank % cluster().hosts == last;
    EXPECT_TRUE(result.starts_with("UnavailableError") || result.starts_with("AbortedError"))
        << result;
    bool named = false;
    for (int peer = 0; peer < cluster().ranks(); ++peer)
      if (beyond ? peer == 0 : peer % cluster().hosts == last)
        named |= result.find(fmt::format("rank {} (process ", peer)) != std::string::npos;
    EXPECT_TRUE(named) << "rank " << rank << ": " << result;
  }
  EXPECT_LT(Clock::now() - begin, 20s);
}

INSTANTIATE_TEST_SUITE_P(All, BetweenHosts,
                         ::testing::Values(std::tuple("gloo", 2, 1), std::tuple("gloo", 4, 1),
                                           std::tuple("hierarchical", 2, 2),
                                           std::tuple("hierarchical", 4, 2)),
                         [](const auto& info) {
                           return fmt::format("{}{}x{}", std::get<0>(info.param),
                                              std::get<1>(info.param), std::get<2>(info.param));
                         });

}  // namespace
}  // namespace tandem
