// Parameter servers and workers in this process, reached by gRPC.
#pragma once

#include <fmt/format.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ps/server_service.h"
#include "ps/strategy.h"
#include "ps/worker_service.h"
#include "rpc/grpc/grpc_transport.h"
#include "tandem/tandem.h"

namespace tandem::ps::testing {

class LocalCluster {
 public:
  LocalCluster(std::size_t servers, std::size_t workers) {
    for (std::size_t i = 0; i < servers; ++i) {
      stores.push_back(std::make_unique<ParameterStore>());
      servers_.push_back(rpc::make_grpc_server({.token = "secret"}));
      serve(*servers_[i], *stores[i]);
      servers_[i]->start();
    }
    workers_.resize(workers);
    for (std::size_t i = 0; i < workers; ++i) start_worker(i, 0);
  }

  distribute::ParameterServerStrategy strategy(
      const distribute::ParameterServerOptions& options = {}) const {
    std::vector<Coordinator::WorkerTask> tasks;
    for (std::size_t i = 0; i < workers_.size(); ++i) {
      std::string name = fmt::format("worker:{}", i);
      auto to_worker = channel(workers_[i].server->port(), name);
      tasks.push_back({.name = std::move(name), .channel = std::move(to_worker)});
    }
    return distribute::ParameterServerStrategy(
        std::make_shared<ParameterServerImpl>(clients(), std::move(tasks), options));
  }

  void stop_worker(std::size_t i) {
    workers_[i].server->stop(std::chrono::milliseconds(0));
    workers_[i].port = workers_[i].server->port();
    workers_[i].server.reset();
  }
  void restart_worker(std::size_t i) { start_worker(i, workers_[i].port); }

  std::vector<std::unique_ptr<ParameterStore>> stores;

 private:
  struct RunningWorker {
    std::unique_ptr<Worker> worker;
    std::unique_ptr<rpc::Server> server;
    std::uint16_t port = 0;
  };

  static std::shared_ptr<rpc::Channel> channel(std::uint16_t port, std::string task) {
    return rpc::make_grpc_channel({.host = "127.0.0.1",
                                   .port = port,
                                   .task = std::move(task),
                                   .caller = "test",
                                   .token = "secret"});
  }

  std::vector<std::shared_ptr<ServerClient>> clients() const {
    std::vector<std::shared_ptr<ServerClient>> made;
    for (std::size_t i = 0; i < servers_.size(); ++i)
      made.push_back(
          std::make_shared<ServerClient>(channel(servers_[i]->port(), fmt::format("ps:{}", i)),
                                         ServerClient::Limits{.call = std::chrono::seconds(20)}));
    return made;
  }

  void start_worker(std::size_t i, std::uint16_t port) {
    RunningWorker& made = workers_[i];
    made.worker = std::make_unique<Worker>(clients());
    made.server = rpc::make_grpc_server({.port = port, .token = "secret"});
    serve(*made.server, *made.worker);
    made.server->start();
  }

  std::vector<std::unique_ptr<rpc::Server>> servers_;
  std::vector<RunningWorker> workers_;
};

}  // namespace tandem::ps::testing
