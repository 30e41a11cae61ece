#include <fcntl.h>
#include <malloc.h>
#include <sys/file.h>

#include <cerrno>
#include <filesystem>
#include <system_error>

#include "comm/rendezvous/descriptors.h"
#include "comm/rendezvous/socket.h"
#include "core/env.h"
#include "core/file_error.h"
#include "core/log.h"
#include "core/status.h"
#include "device/allocator.h"
#include "device/device_manager.h"
#include "ps/chief_watch.h"
#include "ps/journal.h"
#include "ps/server_service.h"
#include "ps/task_connections.h"
#include "ps/task_meter.h"
#include "ps/worker_service.h"
#include "tandem/cluster.h"

namespace tandem::distribute {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kLastReplies{5000};
constexpr milliseconds kListeningPause{10'000};
constexpr std::int64_t kDescriptorsPerTask = 4;  // connections in both directions, old and new ones

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

std::int64_t tasks_of(const ClusterResolver& cluster) {
  std::int64_t tasks = 0;
  for (const auto& [type, addresses] : cluster.cluster_spec())
    tasks += static_cast<std::int64_t>(addresses.size());
  return tasks;
}

std::filesystem::path journal_of(const ClusterResolver& cluster, const ServerOptions& options) {
  if (cluster.task_type() != "ps") return "";
  const std::filesystem::path directory = options.journal_directory.empty()
                                              ? env_string("TANDEM_PS_JOURNAL").value_or("")
                                              : options.journal_directory;
  if (directory.empty()) return "";
  return directory / fmt::format("ps-{}", cluster.task_id());
}

// Creates a directory if it does not exist, and holds it for this process alone, until the process
// dies or the object is destroyed.
class DirectoryLock {
 public:
  // Throws FailedPreconditionError if another process holds the directory, and as
  // core/file_error.h.
  explicit DirectoryLock(const std::filesystem::path& directory) {
    std::error_code error;
    std::filesystem::create_directories(directory, error);
    if (error)
      throw_file_error("[Server] cannot create '" + directory.string() + "'", error.value());
    directory_ = Socket(open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!directory_.is_open())
      throw_file_error("[Server] cannot open '" + directory.string() + "'", errno);
    if (flock(directory_.descriptor(), LOCK_EX | LOCK_NB) != 0)
      fail<FailedPreconditionError>("[Server] the journal in '{}' is in use by another process",
                                    directory.string());
  }

 private:
  Socket directory_;  // any descriptor
};

// A task's content and the calls that it answers.
class Role {
 public:
  virtual ~Role() = default;
  // REQUIRES: before server.start(). The role has to outlive the server.
  virtual void serve(rpc::Server& server) = 0;
  // Sets the numbers of this role that the calls do not show.
  virtual void describe(ps::proto::StatusReply& reply) const = 0;
};

class ParameterServerRole final : public Role {
 public:
  explicit ParameterServerRole(const std::filesystem::path& directory) {
    if (directory.empty()) return;
    lock_.emplace(directory);
    journal_.emplace(directory, store_, ps::Journal::Options());
  }
  void serve(rpc::Server& server) override { ps::serve(server, store_); }
  void describe(ps::proto::StatusReply& reply) const override {
    const ps::ParameterStore::Counts counts = store_.counts();
    reply.set_updates(static_cast<std::uint64_t>(counts.applied));
    reply.set_repeated(static_cast<std::uint64_t>(counts.repeated));
    reply.set_staleness_sum(counts.staleness_sum);
    reply.set_staleness_max(counts.staleness_max);
    reply.set_variables(store_.num_variables());
    const AllocatorStats memory = DeviceManager::get().host().allocator().stats();
    reply.set_variable_bytes(static_cast<std::uint64_t>(memory.bytes_of(MemoryTag::kWeights)));
  }

 private:
  std::optional<DirectoryLock> lock_;
  ps::ParameterStore store_;
  std::optional<ps::Journal> journal_;
};

class WorkerRole final : public Role {
 public:
  WorkerRole(const ClusterResolver& cluster, const ps::TaskConnections& connections,
             milliseconds limit, ps::TaskMeter& meter)
      : worker_(servers_of(cluster, connections, limit, meter)) {}
  void serve(rpc::Server& server) override { ps::serve(server, worker_); }
  void describe(ps::proto::StatusReply&) const override {}

 private:
  static std::vector<std::shared_ptr<ps::ServerClient>> servers_of(
      const ClusterResolver& cluster, const ps::TaskConnections& connections, milliseconds limit,
      ps::TaskMeter& meter) {
    std::vector<std::shared_ptr<ps::ServerClient>> servers;
    for (const ps::TaskAddress& task : ps::tasks_of(cluster.cluster_spec(), "ps"))
      servers.push_back(std::make_shared<ps::ServerClient>(
          ps::measured(connections.connect(task), meter), ps::ServerClient::Limits{.call = limit}));
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
        server_(ps::measured(connections_.make_server(options.bind_address), meter_)) {
    keep_memory_of_messages();
    require_descriptors(kOwnDescriptors + kDescriptorsPerTask * tasks_of(cluster),
                        fmt::format("the server of {}:{}", cluster.task_type(), cluster.task_id()));
    role_->serve(*server_);
    ps::serve(*server_, watch_);
    ps::serve_status(*server_, [this](ps::proto::StatusReply& reply) {
      watch_.describe(reply);
      meter_.describe(reply);
      role_->describe(reply);
    });
    server_->start();
    const std::uint16_t port = server_->port();
    logging::info("[Server] {}:{} listens at {}", cluster.task_type(), cluster.task_id(),
                  port == 0 ? "a Unix socket" : fmt::format("port {}", port));
  }

  std::uint16_t port() const { return server_->port(); }

  void join() {
    while (!watch_.wait(chief_limit_, kListeningPause)) server_->check_listening();
    server_->stop(kLastReplies);
  }

 private:
  std::unique_ptr<Role> make_role(const ClusterResolver& cluster, const ServerOptions& options) {
    if (cluster.task_type() == "ps")
      return std::make_unique<ParameterServerRole>(journal_of(cluster, options));
    return std::make_unique<WorkerRole>(cluster, connections_, options.server_limit, meter_);
  }

  const milliseconds chief_limit_;
  const ps::TaskConnections connections_;
  ps::TaskMeter meter_;
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
