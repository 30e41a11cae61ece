#include <malloc.h>

#include <filesystem>

#include "core/env.h"
#include "core/log.h"
#include "core/status.h"
#include "ps/chief_watch.h"
#include "ps/directory_lock.h"
#include "ps/journal.h"
#include "ps/server_service.h"
#include "ps/task_connections.h"
#include "ps/worker_service.h"
#include "tandem/cluster.h"

namespace tandem::distribute {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kLastReplies{5000};

// Messages of the same large sizes come again and again. By default the system gets their memory
// back each time, and has to clear the pages of the next ones.
void keep_memory_of_messages() {
  constexpr int kLargestKept = 32 << 20;  // glibc's limit
  mallopt(M_MMAP_THRESHOLD, kLargestKept);
  mallopt(M_TRIM_THRESHOLD, 8 * kLargestKept);
}

const ClusterResolver& checked(const ClusterResolver& cluster, const ServerOptions& options) {
  if (cluster.task_type() != "worker" && cluster.task_type() != "ps")
    fail<InvalidArgumentError>("[Server] expected a task of type 'worker' or 'ps', got '{}'",
                               cluster.task_type());
  for (const auto& [name, limit] : {std::pair{"chief_limit", options.chief_limit},
                                    std::pair{"server_limit", options.server_limit}})
    if (limit <= milliseconds(0))
      fail<InvalidArgumentError>("[Server] expected a positive {}, got {} ms", name, limit.count());
  return cluster;
}

std::filesystem::path journal_of(const ClusterResolver& cluster, const ServerOptions& options) {
  if (cluster.task_type() != "ps") return "";
  const std::filesystem::path directory = options.journal_directory.empty()
                                              ? env_string("TANDEM_PS_JOURNAL").value_or("")
                                              : options.journal_directory;
  if (directory.empty()) return "";
  return directory / fmt::format("ps-{}", cluster.task_id());
}

// A task's content and the calls that it answers.
class Role {
 public:
  virtual ~Role() = default;
  // REQUIRES: before server.start(). The role has to outlive the server.
  virtual void serve(rpc::Server& server) = 0;
};

class ParameterServerRole final : public Role {
 public:
  explicit ParameterServerRole(const std::filesystem::path& directory) {
    if (directory.empty()) return;
    lock_.emplace(directory);
    journal_.emplace(directory, store_, ps::Journal::Options());
  }
  void serve(rpc::Server& server) override { ps::serve(server, store_); }

 private:
  std::optional<ps::DirectoryLock> lock_;
  ps::ParameterStore store_;
  std::optional<ps::Journal> journal_;
};

class WorkerRole final : public Role {
 public:
  WorkerRole(const ClusterResolver& cluster, const ps::TaskConnections& connections,
             milliseconds limit)
      : worker_(servers_of(cluster, connections, limit)) {}
  void serve(rpc::Server& server) override { ps::serve(server, worker_); }

 private:
  static std::vector<std::shared_ptr<ps::ServerClient>> servers_of(
      const ClusterResolver& cluster, const ps::TaskConnections& connections, milliseconds limit) {
    std::vector<std::shared_ptr<ps::ServerClient>> servers;
    for (const ps::TaskAddress& task : ps::tasks_of(cluster.cluster_spec(), "ps"))
      servers.push_back(std::make_shared<ps::ServerClient>(
          connections.connect(task), ps::ServerClient::Limits{.call = limit}));
    return servers;
  }

  ps::Worker worker_;
};

}  // namespace

class Server::Impl {
 public:
  Impl(const ClusterResolver& cluster, const ServerOptions& options)
      : chief_limit_(options.chief_limit),
        connections_(checked(cluster, options), options.security),
        role_(make_role(cluster, options)),
        watch_(cluster.task_type(), cluster.task_id(), journal_of(cluster, options)),
        server_(connections_.make_server(options.bind_address)) {
    keep_memory_of_messages();
    role_->serve(*server_);
    ps::serve(*server_, watch_);
    server_->start();
    logging::info("[Server] {}:{} listens at port {}", cluster.task_type(), cluster.task_id(),
                  server_->port());
  }

  std::uint16_t port() const { return server_->port(); }

  void join() {
    watch_.wait(chief_limit_);
    server_->stop(kLastReplies);
  }

 private:
  std::unique_ptr<Role> make_role(const ClusterResolver& cluster, const ServerOptions& options) {
    if (cluster.task_type() == "ps")
      return std::make_unique<ParameterServerRole>(journal_of(cluster, options));
    return std::make_unique<WorkerRole>(cluster, connections_, options.server_limit);
  }

  const milliseconds chief_limit_;
  const ps::TaskConnections connections_;
  const std::unique_ptr<Role> role_;
  ps::ChiefWatch watch_;
  const std::unique_ptr<rpc::Server> server_;  // uses the others
};

Server::Server(const ClusterResolver& cluster, const ServerOptions& options)
    : impl_(std::make_unique<Impl>(cluster, options)) {}
Server::~Server() = default;
Server::Server(Server&&) noexcept = default;
Server& Server::operator=(Server&&) noexcept = default;

std::uint16_t Server::port() const { return impl_->port(); }
void Server::join() { impl_->join(); }

}  // namespace tandem::distribute
