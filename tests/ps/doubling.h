// A function whose variable is on parameter server 1, for tests with real tasks.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "ps/cluster.h"
#include "ps/coordinator.h"
#include "ps/in_process.h"
#include "ps/server_client.h"
#include "ps/split.h"

namespace tandem::ps::testing {

// The function v += x; return 2 x.
class Doubling {
 public:
  Doubling() {
    Variable v(zeros({2}), {.name = "v"});
    const auto traced = trace(
        [&](const auto& inputs) {
          v.assign_add(inputs[0]);
          return std::vector<Tensor>{inputs[0] * 2.0};
        },
        {zeros({2})});
    function_ = split(
        *traced, [](const Resource& variable) { return one_shard(kId, variable.spec().shape); });
  }

  // Creates v = 0 and the update on the servers, and adds the function to a coordinator.
  std::unique_ptr<Coordinator> coordinate(const Cluster& cluster) const {
    ServerClient server = server_of(cluster);
    const ServerClient::NewVariable v{.id = kId, .name = "v", .value = zeros({2})};
    server.create({&v, 1}).wait();
    const std::pair<std::uint32_t, const proto::Part*> update{0,
                                                              &function_.message.updates(0).part()};
    server.add_updates(0, {&update, 1}).wait();
    std::vector<Coordinator::WorkerTask> workers;
    for (const Cluster::Task& task : cluster.workers())
      workers.push_back({.name = task.name, .channel = task.channel});
    std::vector<std::shared_ptr<ServerClient>> servers;
    for (const Cluster::Task& task : cluster.servers())
      servers.push_back(std::make_shared<ServerClient>(task.channel, ServerClient::Limits()));
    auto coordinator =
        std::make_unique<Coordinator>(std::move(workers), std::move(servers),
                                      Coordinator::Options{.lost_updates = cluster.lost_updates()});
    coordinator->add_function(0, function_.message);
    return coordinator;
  }
  static FunctionRun add(double x) { return {.function = 0, .arguments = {full({2}, x)}}; }
  // v and the number of updates.
  static std::pair<double, std::uint64_t> value(const Cluster& cluster) {
    const ParameterStore::Read read = server_of(cluster).read({&kId, 1}).wait()[0];
    return {read.value.to_vector<float>()[0], read.version};
  }

 private:
  static constexpr VariableId kId = variable_id(1, 3);

  static ServerClient server_of(const Cluster& cluster) {
    return {cluster.servers()[1].channel, {.call = std::chrono::minutes(2)}};
  }

  SplitFunction function_;
};

}  // namespace tandem::ps::testing
