#include <fcntl.h>
#include <malloc.h>
#include <sys/file.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cmath>
#include <csignal>
#include <filesystem>
#include <optional>
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
#include "ps/server_service.h"
#include "ps/snapshots.h"
#include "ps/task_connections.h"
#include "ps/task_meter.h"
#include "ps/worker_service.h"
#include "tandem/cluster.h"

namespace tandem::distribute {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kLastReplies{5000};
constexpr milliseconds kListeningPause{10'000}, kSignalPause{100};
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
  if (!(options.snapshot_seconds > 0))
    fail<InvalidArgumentError>("[Server] expected positive snapshot_seconds, got {}",
                               options.snapshot_seconds);
  if (options.snapshot_updates < 0)
    fail<InvalidArgumentError>("[Server] expected snapshot_updates of at least 0, got {}",
                               options.snapshot_updates);
  return cluster;
}

std::int64_t tasks_of(const ClusterResolver& cluster) {
  std::int64_t tasks = 0;
  for (const auto& [type, addresses] : cluster.cluster_spec())
    tasks += static_cast<std::int64_t>(addresses.size());
  return tasks;
}

ps::Snapshots::Options snapshots_of(const ServerOptions& options) {
  constexpr double kLongest = 1e9;  // s
  return {.interval = milliseconds(static_cast<std::int64_t>(
              std::ceil(std::min(options.snapshot_seconds, kLongest) * 1e3))),
          .updates = static_cast<std::uint64_t>(options.snapshot_updates)};
}

std::filesystem::path snapshot_directory_of(const ClusterResolver& cluster,
                                            const ServerOptions& options) {
  if (cluster.task_type() != "ps") return "";
  const std::filesystem::path directory = options.snapshot_directory.empty()
                                              ? env_string("TANDEM_PS_SNAPSHOTS").value_or("")
                                              : options.snapshot_directory;
  if (directory.empty()) return "";
  return directory / fmt::format("ps-{}", cluster.task_id());
}

// Creates a directory for this user if it does not exist, and holds it for this process alone,
// until the process dies or the object is destroyed.
class DirectoryLock {
 public:
  // Throws FailedPreconditionError if another process holds the directory, and as
  // core/file_error.h.
  explicit DirectoryLock(const std::filesystem::path& directory) {
    std::error_code error;
    if (std::filesystem::create_directories(directory, error))
      std::filesystem::permissions(directory, std::filesystem::perms::owner_all, error);
    if (error)
      throw_file_error("[Server] cannot create '" + directory.string() + "'", error.value());
    directory_ = Socket(open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!directory_.is_open())
      throw_file_error("[Server] cannot open '" + directory.string() + "'", errno);
    if (flock(directory_.descriptor(), LOCK_EX | LOCK_NB) != 0)
      fail<FailedPreconditionError>("[Server] '{}' is in use by another process",
                                    directory.string());
  }

 private:
  Socket directory_;  // any descriptor
};

// Takes SIGTERM while it lives, unless the program does. Only the first one, in the process.
class StopSignal {
 public:
  StopSignal() {
    struct sigaction action = {};
    action.sa_handler = [](int) { received = true; };
    action.sa_flags = SA_RESTART | SA_RESETHAND;  // a second one ends the process
    if (sigaction(SIGTERM, nullptr, &former_) == 0 && former_.sa_handler == SIG_DFL)
      taken_ = sigaction(SIGTERM, &action, nullptr) == 0;
  }
  ~StopSignal() {
    if (taken_) sigaction(SIGTERM, &former_, nullptr);
  }
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;

  static inline std::atomic<bool> received{false};

 private:
  struct sigaction former_ = {};
  bool taken_ = false;
};

// A task's content and the calls that it answers.
class Role {
 public:
  virtual ~Role() = default;
  // REQUIRES: before server.start(). The role has to outlive the server.
  virtual void serve(rpc::Server& server) = 0;
  // Sets the numbers of this role that the calls do not show.
  virtual void describe(ps::proto::StatusReply& reply) const = 0;
  // The updates with which the role continues, and with which it has continued (ServerLife).
  virtual std::uint64_t updates() const { return 0; }
  virtual void set_restarts(const std::vector<std::uint64_t>&) {}
  // Whether stop() keeps something for the task that continues.
  virtual bool keeps_state() const { return false; }
  // REQUIRES: the server was stopped.
  virtual void stop() {}
  // The run has ended: no task continues.
  virtual void end() {}
};

class ParameterServerRole final : public Role {
 public:
  ParameterServerRole(const std::filesystem::path& directory, const ServerOptions& options) {
    if (directory.empty()) return;
    lock_.emplace(directory);
    snapshots_.emplace(directory, store_, snapshots_of(options));
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
  std::uint64_t updates() const override { return store_.updates(); }
  void set_restarts(const std::vector<std::uint64_t>& restarts) override {
    store_.set_restarts(restarts);
  }
  bool keeps_state() const override { return snapshots_.has_value(); }
  void stop() override { snapshots_.reset(); }
  void end() override {
    if (snapshots_) snapshots_->end();
  }

 private:
  std::optional<DirectoryLock> lock_;
  ps::ParameterStore store_;
  std::optional<ps::Snapshots> snapshots_;
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
        watch_(cluster.task_type(), cluster.task_id(), snapshot_directory_of(cluster, options),
               role_->updates()),
        server_(ps::measured(connections_.make_server(options.bind_address), meter_)) {
    keep_memory_of_messages();
    require_descriptors(kOwnDescriptors + kDescriptorsPerTask * tasks_of(cluster),
                        fmt::format("the server of {}:{}", cluster.task_type(), cluster.task_id()));
    role_->set_restarts(watch_.restarts());
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
    std::optional<StopSignal> signal;
    if (role_->keeps_state()) signal.emplace();
    const bool run_ended = wait();
    server_->stop(kLastReplies);
    if (run_ended) return role_->end();
    role_->stop();
    logging::info("[Server] the task was stopped by SIGTERM, after its last snapshot");
    signal.reset();
    raise(SIGTERM);
  }

 private:
  // Returns whether the run has ended; else the task was stopped by the signal.
  bool wait() {
    auto next_look = Clock::now() + kListeningPause;
    while (!StopSignal::received) {
      if (watch_.wait(chief_limit_, kSignalPause)) return true;
      if (Clock::now() < next_look) continue;
      server_->check_listening();
      next_look = Clock::now() + kListeningPause;
    }
    return false;
  }

  std::unique_ptr<Role> make_role(const ClusterResolver& cluster, const ServerOptions& options) {
    if (cluster.task_type() == "ps")
      return std::make_unique<ParameterServerRole>(snapshot_directory_of(cluster, options),
                                                   options);
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
Server::Server(const ClusterSpec& cluster, const ServerTask& task)
    : Server(SimpleClusterResolver(cluster, task.job_name, task.task_index)) {
  if (task.protocol != "grpc")
    fail<InvalidArgumentError>("[Server] expected the protocol 'grpc', got '{}'", task.protocol);
}
Server::~Server() = default;
Server::Server(Server&&) noexcept = default;
Server& Server::operator=(Server&&) noexcept = default;

std::uint16_t Server::port() const { return impl_->port(); }
void Server::join() { impl_->join(); }

}  // namespace tandem::distribute
