// A cluster in one process.
#include <fmt/format.h>

#include "core/status.h"
#include "tandem/cluster.h"

namespace tandem::distribute {

struct InProcessCluster::Started {
  ClusterSpec spec = {{"chief", {"127.0.0.1:1"}}};  // it does not listen
  std::vector<Server> servers;
};

InProcessCluster::Started InProcessCluster::start(const InProcessClusterOptions& options) {
  Started started;
  for (const auto& [type, count] :
       {std::pair{"ps", options.num_ps}, std::pair{"worker", options.num_workers}}) {
    if (count < 1)
      fail<InvalidArgumentError>(
          "[InProcessCluster] expected at least one worker and one parameter server, got {} and {}",
          options.num_workers, options.num_ps);
    std::vector<std::string>& addresses = started.spec[type];
    addresses.assign(static_cast<std::size_t>(count), "127.0.0.1:0");
    // Workers connect to the servers, which therefore come first.
    for (int i = 0; i < count; ++i) {
      started.servers.emplace_back(SimpleClusterResolver(started.spec, type, i), options.server);
      addresses[static_cast<std::size_t>(i)] =
          fmt::format("127.0.0.1:{}", started.servers.back().port());
    }
  }
  return started;
}

InProcessCluster::InProcessCluster(const InProcessClusterOptions& options)
    : InProcessCluster(start(options)) {}

InProcessCluster::InProcessCluster(Started started)
    : ClusterResolver(std::move(started.spec), "chief", 0), servers_(std::move(started.servers)) {}

}  // namespace tandem::distribute
