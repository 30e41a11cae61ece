// A function with a variable on each of two parameter servers, for tests with real tasks.
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

// The function v += x; w += x; return 2 x. v is on server 0, w on server 1.
class Doubling {
 public:
  static constexpr std::uint32_t kServers = 2;

  Doubling() {
    Variable v(zeros({2}), {.name = "v"}), w(zeros({2}), {.name = "w"});
    const auto traced = trace(
        [&](const auto& inputs) {
          v.assign_add(inputs[0]);
          w.assign_add(inputs[0]);
          return std::vector<Tensor>{inputs[0] * 2.0};
        },
        {zeros({2})});
    function_ = split(*traced, [](const Resource& variable) {
      return one_shard(id_on(variable.name() == "v" ? 0 : 1), variable.spec().shape);
    });
  }

  // Creates the variables with zeros and the updates on the servers, and adds the function to a
  // coordinator.
  std::unique_ptr<Coordinator> coordinate(const Cluster& cluster,
                                          const Decisions::Rules& rules = {}) const {
    for (std::uint32_t i = 0; i < kServers; ++i) {
      const ServerClient::NewVariable made{.id = id_on(i), .name = "v", .value = zeros({2})};
      client_of(cluster, i).create({&made, 1}).wait();
    }
    std::uint32_t index = 0;
    for (const proto::Update& update : function_.message.updates()) {
      const std::pair<std::uint32_t, const proto::Part*> indexed{index++, &update.part()};
      client_of(cluster, server_of(update)).add_updates(0, {&indexed, 1}).wait();
    }
    std::vector<Coordinator::WorkerTask> workers;
    for (const Cluster::Task& task : cluster.workers())
      workers.push_back({.name = task.name, .channel = task.channel});
    std::vector<std::shared_ptr<ServerClient>> servers;
    for (const Cluster::Task& task : cluster.servers())
      servers.push_back(std::make_shared<ServerClient>(task.channel, ServerClient::Limits()));
    auto coordinator = std::make_unique<Coordinator>(
        std::move(workers), std::move(servers),
        Coordinator::Options{.rules = rules, .lost_updates = cluster.lost_updates()});
    coordinator->add_function(0, function_.message);
    return coordinator;
  }
  static FunctionRun add(double x) { return {.function = 0, .arguments = {full({2}, x)}}; }
  // The variable of a server and the number of its updates.
  static std::pair<double, std::uint64_t> value(const Cluster& cluster, std::uint32_t server = 1) {
    const VariableId id = id_on(server);
    const ParameterStore::Read read = client_of(cluster, server).read({&id, 1}).wait()[0];
    return {read.value.to_vector<float>()[0], read.version};
  }

 private:
  static VariableId id_on(std::uint32_t server) { return variable_id(server, 3); }
  static ServerClient client_of(const Cluster& cluster, std::size_t server) {
    return {cluster.servers()[server].channel, {.call = std::chrono::minutes(2)}};
  }

  SplitFunction function_;
};

}  // namespace tandem::ps::testing
