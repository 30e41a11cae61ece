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
  // `server_limit`: how long workers wait for a server.
  LocalCluster(std::size_t servers, std::size_t workers,
               std::chrono::milliseconds server_limit = std::chrono::seconds(20))
      : server_limit_(server_limit), servers_(servers), workers_(workers) {
    for (std::size_t i = 0; i < servers; ++i) {
      stores.push_back(std::make_unique<ParameterStore>());
      start_server(i);
    }
    for (std::size_t i = 0; i < workers; ++i) start_worker(i);
  }

  distribute::ParameterServerStrategy strategy(
      const distribute::ParameterServerOptions& options = {}) const {
    return distribute::ParameterServerStrategy(
        std::make_shared<ParameterServerImpl>(clients(), tasks(), options));
  }
  // The workers, for a coordinator.
  std::vector<Coordinator::WorkerTask> tasks() const {
    std::vector<Coordinator::WorkerTask> made;
    for (std::size_t i = 0; i < workers_.size(); ++i)
      made.push_back({.name = fmt::format("worker:{}", i), .channel = channel_to_worker(i)});
    return made;
  }
  std::vector<std::shared_ptr<ServerClient>> clients() const {
    std::vector<std::shared_ptr<ServerClient>> made;
    for (std::size_t i = 0; i < servers_.size(); ++i)
      made.push_back(
          std::make_shared<ServerClient>(channel(servers_[i].port, fmt::format("ps:{}", i)),
                                         ServerClient::Limits{.call = server_limit_}));
    return made;
  }
  std::shared_ptr<rpc::Channel> channel_to_worker(std::size_t i) const {
    return channel(workers_[i].task.port, fmt::format("worker:{}", i));
  }

  Worker& worker(std::size_t i) { return *workers_[i].worker; }

  // A task that is stopped and started again has the same port. A server keeps its store, a worker
  // keeps nothing.
  void stop_worker(std::size_t i) { workers_[i].task.stop(); }
  void start_worker(std::size_t i) {
    workers_[i].worker = std::make_unique<Worker>(clients());
    workers_[i].task.start(*workers_[i].worker);
  }
  void restart_worker(std::size_t i) {
    stop_worker(i);
    start_worker(i);
  }
  void stop_server(std::size_t i) { servers_[i].stop(); }
  void start_server(std::size_t i) { servers_[i].start(*stores[i]); }

  std::vector<std::unique_ptr<ParameterStore>> stores;

 private:
  struct Task {
    std::uint16_t port = 0;
    std::unique_ptr<rpc::Server> server;

    template <class Served>
    void start(Served& served) {
      server = rpc::make_grpc_server({.port = port, .token = "secret"});
      serve(*server, served);
      server->start();
      port = server->port();
    }
    void stop() {
      server->stop(std::chrono::milliseconds(0));
      server.reset();
    }
  };
  struct WorkerTask {
    std::unique_ptr<Worker> worker;
    Task task;
  };

  static std::shared_ptr<rpc::Channel> channel(std::uint16_t port, std::string task) {
    return rpc::make_grpc_channel({.host = "127.0.0.1",
                                   .port = port,
                                   .task = std::move(task),
                                   .caller = "test",
                                   .token = "secret"});
  }

  const std::chrono::milliseconds server_limit_;
  std::vector<Task> servers_;
  std::vector<WorkerTask> workers_;
};

}  // namespace tandem::ps::testing
