// A program of a cluster, for tests of launchers: cluster_program STOP
//
// Each task prints "process PID at ADDRESS". The chief schedules closures, each with one update,
// and prints "finished N" from time to time. When the file STOP exists, it prints "N of N updates,
// N lost". Parameter servers write a snapshot after 64 updates.
#include <unistd.h>

#include <filesystem>
#include <iostream>

#include "ps/cluster.h"
#include "ps/doubling.h"
#include "support/waiting.h"
#include "tandem/cluster.h"

namespace {

using namespace tandem;

void run_chief(const distribute::ClusterResolver& resolver, const std::filesystem::path& stop) {
  const ps::Cluster cluster(resolver, {.start_limit = std::chrono::minutes(3)});
  const auto coordinator = ps::testing::Doubling().coordinate(cluster);
  int closures = 0;
  do {
    for (int i = 0; i < 50; ++i, ++closures) coordinator->schedule(ps::testing::Doubling::add(1));
    coordinator->join();
    std::cout << "finished " << closures << std::endl;
  } while (!std::filesystem::exists(stop));
  const auto [value, updates] = ps::testing::Doubling::value(cluster);
  // The chief hears of a server that was restarted since the last call in its next heartbeat.
  const auto lost = [&] { return coordinator->counts().updates_lost.at(1); };
  tandem::testing::eventually([&] { return value + static_cast<double>(lost()) >= closures; });
  std::cout << value << " of " << closures << " updates, version " << updates << ", " << lost()
            << " lost" << std::endl;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const distribute::TFConfigClusterResolver cluster;
    const auto& addresses = cluster.cluster_spec().at(cluster.task_type());
    std::cout << "process " << getpid() << " at "
              << addresses[static_cast<std::size_t>(cluster.task_id())] << std::endl;
    if (cluster.task_type() == "chief")
      run_chief(cluster, argc > 1 ? argv[1] : "/");
    else
      distribute::Server(cluster, {.snapshot_updates = 64}).join();
    return 0;
  } catch (const Error& error) {
    std::cerr << error.kind() << ": " << error.what() << std::endl;
    return 2;
  }
}
