// Collectives between hosts, and their failures when a host is disconnected.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <tuple>
#include <vector>

#include "comm/gloo/gloo_backend.h"
#include "comm/rendezvous/rendezvous.h"
#include "core/parallel.h"
#include "device/device_manager.h"
#include "group/connect.h"
#include "support/errors.h"
#include "support/expects.h"
#include "support/files.h"
#include "support/hosts.h"
#include "support/mpirun.h"
#include "support/processes.h"
#include "support/waiting.h"
#include "tandem/errors.h"

namespace tandem::hosts_test {
namespace {

using testing::ChildProcess;
using testing::Hosts;
using testing::TemporaryDirectory;
using namespace std::chrono_literals;

// The silence limit of tests that detect failures by it: longer than a live rank may go without CPU
// time.
constexpr std::chrono::seconds kImpatience{5};

struct Cluster {
  int hosts = 2;
  int ranks_a_host = 1;
  std::string backend = "gloo";
  std::chrono::milliseconds silence = testing::kFarAway;  // after which a rank counts as dead
  int ranks() const { return hosts * ranks_a_host; }
};

// One process per rank. Ranks are assigned to the hosts round-robin, so a host's ranks are not
// consecutive.
std::vector<ChildProcess> start(
    const Hosts& hosts, const Cluster& cluster,
    const std::function<std::string(Communicator&, const std::function<void()>&)>& body) {
  std::vector<ChildProcess> ranks;
  for (int rank = 0; rank < cluster.ranks(); ++rank)
    ranks.emplace_back([&, rank] {
      hosts.enter(rank % cluster.hosts);
      const ThreadBudget one(1);
      const auto job = rendezvous(fmt::format("tcp://{}:29500?rank={}&world_size={}",
                                              Hosts::address(0), rank, cluster.ranks()),
                                  {.timeout = testing::kFarAway,
                                   .token = "secret",
                                   .heartbeat = 100ms,
                                   .silence = cluster.silence});
      DeviceImpl& device = *DeviceManager::get().devices(DeviceType::kCpu, "test").front();
      const auto communicator =
          connect(*job, device, {.backend = cluster.backend, .time_limit = testing::kFarAway});
      return body(*communicator, [&] { job->shut_down(); });
    });
  return ranks;
}

// Sums whose value each rank can compute.
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

// The last host is disconnected while collectives run in an endless loop.
TEST_P(BetweenHosts, ACutCableIsATypedErrorThatNamesThePeer) {
  TANDEM_REQUIRE(has_gloo(), "gloo");
  const Hosts hosts(cluster().hosts);
  TANDEM_REQUIRE(hosts.connected(), "netns");
  const TemporaryDirectory busy;
  Cluster impatient = cluster();
  impatient.silence = kImpatience;
  auto ranks = start(hosts, impatient, [&](Communicator& communicator, const auto&) -> std::string {
    std::vector<float> values(4'000'000, 1.0f);
    const Buffer buffer = {values.data(), 4'000'000, float32};
    communicator.all_reduce({&buffer, 1}, ReduceOp::kMean)->wait();
    testing::write_file(busy / std::to_string(communicator.rank()), "");
    for (;;) communicator.all_reduce({&buffer, 1}, ReduceOp::kMean)->wait();
  });
  ASSERT_TRUE(testing::eventually(
      [&] { return static_cast<int>(busy.count_files()) == cluster().ranks(); }));
  const int last = cluster().hosts - 1;
  ASSERT_TRUE(hosts.cut(last));
  for (int rank = 0; rank < cluster().ranks(); ++rank) {
    const std::string result = ranks[static_cast<std::size_t>(rank)].result();
    // Ranks on the other hosts name one that is cut off; ranks that are cut off name rank 0.
    const bool beyond = rank % cluster().hosts == last;
    EXPECT_TRUE(result.starts_with("UnavailableError") || result.starts_with("AbortedError"))
        << result;
    bool named = false;
    for (int peer = 0; peer < cluster().ranks(); ++peer)
      if (beyond ? peer == 0 : peer % cluster().hosts == last)
        named |= result.find(fmt::format("rank {} (process ", peer)) != std::string::npos;
    EXPECT_TRUE(named) << "rank " << rank << ": " << result;
  }
}

// ---- The same with ranks that mpirun launches, which are numbered host by host.

class BetweenHostsOfMpirun : public ::testing::TestWithParam<std::tuple<std::string, int, int>> {
 protected:
  Cluster cluster() const {
    const auto& [backend, hosts, ranks] = GetParam();
    return {.hosts = hosts, .ranks_a_host = ranks, .backend = backend};
  }
  std::vector<std::string> options(const Hosts& hosts, const TemporaryDirectory& folder) const {
    hosts.write_remote_shell(folder / "shell");
    std::string list;
    for (int host = 0; host < cluster().hosts; ++host)
      list += fmt::format("{}{}:{}", host ? "," : "", Hosts::address(host), cluster().ranks_a_host);
    // All hosts have this machine's name, so Open MPI would treat them as one.
    return {"--mca", "plm_rsh_agent", (folder / "shell").string(), "--mca", "btl", "tcp,self",
            "-H",    std::move(list)};
  }
  // The body of each rank.
  std::string run_rank(
      std::chrono::milliseconds silence,
      const std::function<std::string(Communicator&, const std::function<void()>&)>& body) const {
    const ThreadBudget one(1);
    const int rank = std::atoi(std::getenv("OMPI_COMM_WORLD_RANK"));
    const auto job = rendezvous(
        fmt::format("tcp://{}:29500?rank={}&world_size={}", Hosts::address(0), rank,
                    cluster().ranks()),
        {.timeout = testing::kFarAway, .token = "secret", .heartbeat = 100ms, .silence = silence});
    DeviceImpl& device = *DeviceManager::get().devices(DeviceType::kCpu, "test").front();
    const auto communicator =
        connect(*job, device, {.backend = cluster().backend, .time_limit = testing::kFarAway});
    return body(*communicator, [&] { job->shut_down(); });
  }
};

TEST_P(BetweenHostsOfMpirun, CollectivesGoThrough) {
  if (started_by_mpirun()) {
    const std::string result =
        run_rank(testing::kFarAway, [](Communicator& communicator, const auto& leave) {
          std::string sums = sum_up(communicator);
          communicator.barrier()->wait();
          leave();
          return sums;
        });
    const int count = cluster().ranks(), sum = count * (count + 1) / 2;
    std::string all;
    for (int rank = 0; rank < count; ++rank) all += std::to_string(rank);
    EXPECT_EQ(result, fmt::format("{0} {0} {0} {0} {0} {0} {1}", sum, all));
    return;
  }
  TANDEM_REQUIRE(can_use_mpirun(), "mpi");
  const Hosts hosts(cluster().hosts);
  TANDEM_REQUIRE(hosts.connected(), "netns");
  const TemporaryDirectory folder;
  EXPECT_EQ(run_this_test_by_mpirun(cluster().ranks(), options(hosts, folder)), 0);
}

// Ranks write their results to files, which need no network, and end at the same time: mpirun would
// kill late ones.
TEST_P(BetweenHostsOfMpirun, ACutCableIsATypedErrorThatNamesThePeer) {
  const auto wait_for_files = [](const std::string& folder, const std::string& kind, int count) {
    for (int rank = 0; rank < count; ++rank)
      testing::eventually(
          [&] { return std::filesystem::exists(folder + kind + std::to_string(rank)); });
  };
  if (started_by_mpirun()) {
    const std::string folder = std::getenv("TANDEM_TEST_FOLDER");
    const std::string me = std::getenv("OMPI_COMM_WORLD_RANK");
    auto* values = new std::vector<float>(4'000'000, 1.0f);  // MPI may still write to it
    const std::string result = testing::any_error_of([&] {
      run_rank(kImpatience, [&](Communicator& communicator, const auto&) -> std::string {
        const Buffer buffer = {values->data(), 4'000'000, float32};
        communicator.all_reduce({&buffer, 1}, ReduceOp::kMean)->wait();
        testing::write_file(folder + "/busy" + me, "");
        for (;;) communicator.all_reduce({&buffer, 1}, ReduceOp::kMean)->wait();
      });
    });
    testing::write_file(folder + "/part" + me, result);
    std::filesystem::rename(folder + "/part" + me, folder + "/result" + me);
    wait_for_files(folder, "/result", cluster().ranks());
    _exit(0);
  }
  TANDEM_REQUIRE(can_use_mpirun(), "mpi");
  const Hosts hosts(cluster().hosts);
  TANDEM_REQUIRE(hosts.connected(), "netns");
  const TemporaryDirectory folder;
  const std::string place = (folder / "").string();
  setenv("TANDEM_TEST_FOLDER", place.c_str(), 1);
  ChildProcess mpirun([&] {
    become_mpirun(cluster().ranks(), folder, options(hosts, folder));
    return "";
  });
  wait_for_files(place, "/busy", cluster().ranks());
  const int last = cluster().hosts - 1;
  ASSERT_TRUE(hosts.cut(last));
  wait_for_files(place, "/result", cluster().ranks());
  for (int rank = 0; rank < cluster().ranks(); ++rank) {
    const std::string result = testing::read_file(folder / ("result" + std::to_string(rank)));
    const bool beyond = rank / cluster().ranks_a_host == last;
    EXPECT_TRUE(result.starts_with("UnavailableError") || result.starts_with("AbortedError"))
        << result;
    bool named = false;
    for (int peer = 0; peer < cluster().ranks(); ++peer)
      if (beyond ? peer == 0 : peer / cluster().ranks_a_host == last)
        named |= result.find(fmt::format("rank {} (process ", peer)) != std::string::npos;
    EXPECT_TRUE(named) << "rank " << rank << ": " << result;
  }
  ASSERT_TRUE(hosts.plug_in(last));  // so that mpirun's daemons end
  mpirun.result();
}

INSTANTIATE_TEST_SUITE_P(All, BetweenHostsOfMpirun,
                         ::testing::Values(std::tuple("mpi", 2, 1), std::tuple("mpi", 4, 1),
                                           std::tuple("hierarchical", 2, 2)),
                         [](const auto& info) {
                           return fmt::format("{}{}x{}", std::get<0>(info.param),
                                              std::get<1>(info.param), std::get<2>(info.param));
                         });

INSTANTIATE_TEST_SUITE_P(All, BetweenHosts,
                         ::testing::Values(std::tuple("gloo", 2, 1), std::tuple("gloo", 4, 1),
                                           std::tuple("hierarchical", 2, 2),
                                           std::tuple("hierarchical", 4, 2)),
                         [](const auto& info) {
                           return fmt::format("{}{}x{}", std::get<0>(info.param),
                                              std::get<1>(info.param), std::get<2>(info.param));
                         });

}  // namespace
}  // namespace tandem::hosts_test
