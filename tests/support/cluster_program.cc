// A program of a cluster, for tests of launchers and for scripts/soak:
//
//     cluster_program STOP [MAX_STALENESS CALLS_PER_UPDATE]
//
// Each task prints "process PID at ADDRESS". The chief schedules closures, each with one update of
// a variable on each of two servers, and prints "finished N" from time to time. When the file STOP
// exists, it prints "ps:I: N of N updates, version N, N lost" for each server, where a step of
// CALLS_PER_UPDATE closures is one update. Servers write a snapshot after 64 updates.
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <iostream>

#include "ps/cluster.h"
#include "ps/doubling.h"
#include "support/waiting.h"
#include "tandem/cluster.h"

namespace {

using namespace tandem;

using ps::testing::Doubling;

void run_chief(const distribute::ClusterResolver& resolver, const std::filesystem::path& stop,
               const ps::Decisions::Rules& rules) {
  const ps::Cluster cluster(resolver, {.start_limit = std::chrono::minutes(3)});
  const auto coordinator = Doubling().coordinate(cluster, rules);
  int closures = 0;
  do {
    for (int i = 0; i < 60; ++i, ++closures) coordinator->schedule(Doubling::add(1));
    coordinator->join();
    std::cout << "finished " << closures << std::endl;
  } while (!std::filesystem::exists(stop));
  const int steps = closures / static_cast<int>(rules.calls_per_update);
  for (std::uint32_t server = 0; server < Doubling::kServers; ++server) {
    const auto [value, version] = Doubling::value(cluster, server);
    // The chief hears of a server that was restarted since the last call in its next heartbeat.
    const auto lost = [&] { return coordinator->counts().updates_lost.at(server); };
    tandem::testing::eventually(
        [&, value = value] { return value + static_cast<double>(lost()) >= steps; });
    std::cout << "ps:" << server << ": " << value << " of " << steps << " updates, version "
              << version << ", " << lost() << " lost" << std::endl;
  }
}

ps::Decisions::Rules rules_of(int argc, char** argv) {
  if (argc < 4) return {};
  return {.max_staleness = std::strtoull(argv[2], nullptr, 10),
          .calls_per_update = static_cast<std::uint32_t>(std::atoi(argv[3]))};
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const distribute::TFConfigClusterResolver cluster;
    const auto& addresses = cluster.cluster_spec().at(cluster.task_type());
    std::cout << "process " << getpid() << " at "
              << addresses[static_cast<std::size_t>(cluster.task_id())] << std::endl;
    if (cluster.task_type() == "chief")
      run_chief(cluster, argc > 1 ? argv[1] : "/", rules_of(argc, argv));
    else
      distribute::Server(cluster, {.snapshot_updates = 64}).join();
    return 0;
  } catch (const Error& error) {
    std::cerr << error.kind() << ": " << error.what() << std::endl;
    return 2;
  }
}
