/// @file
/// Clusters for ParameterServerStrategy: the servers that workers and parameter servers run. As
/// tf.distribute.Server.
/// @code
/// auto cluster = td::distribute::TFConfigClusterResolver();
/// if (cluster.task_type() == "worker" || cluster.task_type() == "ps")
///   td::distribute::Server(cluster).join();  // until the chief ends the job
/// @endcode
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tandem/cluster_resolver.h"
#include "tandem/errors.h"

namespace tandem::distribute {

/// How the tasks of a cluster know each other and encrypt their connections. All tasks need the
/// same settings.
struct ClusterSecurity {
  /// The job's secret, which every call proves to know. Default: the environment variable
  /// TANDEM_JOB_TOKEN. A cluster on the loopback needs none; it is then open to this user's
  /// processes.
  std::optional<std::string> token{};
  /// Whether connections over TCP use TLS: they are encrypted, and a task proves itself before
  /// others show it that they know the token. Default: the environment variable TANDEM_TLS,
  /// else true. Without files, the tasks make certificates whose root follows from the token, which
  /// has to be random.
  std::optional<bool> tls{};
  std::string certificate_file{};  ///< PEM: this task's certificate, if it serves; may be a chain
  std::string key_file{};          ///< PEM: the key of the certificate, not encrypted
  /// PEM: a certificate that has signed those of the servers, or is that of all. Default: the
  /// certificate of certificate_file.
  std::string root_certificate_file{};
};

/// Options of Server.
struct ServerOptions {
  ClusterSecurity security{};  ///< token and TLS
  /// Local address to listen at. Default: the host of the task's address in the cluster; every
  /// address if that name is the loopback on this machine alone.
  std::string bind_address{};
  /// Directory of this machine in which parameter server I writes snapshots of its variables and of
  /// the updates that it has applied, in ps-I. After a restart it continues from the newest one
  /// that is whole; updates by workers since are lost, unless the server was stopped by SIGTERM or
  /// its destructor, and ClusterStatistics::updates_lost counts them. Snapshots belong to one run
  /// of the chief. They take up to three times the memory of the variables and slots, 1 MiB, and
  /// that of a variable once more while the chief assigns it. Default: the environment variable
  /// TANDEM_PS_SNAPSHOTS, which `tandem run` sets. Without either, a server that is restarted has
  /// lost its variables.
  std::string snapshot_directory{};
  /// Seconds from one snapshot to the next. It is written while updates go on: the first update of
  /// each variable during a snapshot copies that variable.
  double snapshot_seconds = 30.0;
  /// A snapshot is also written after so many updates. 0: by time alone.
  std::int64_t snapshot_updates = 0;
  /// How long the chief may be unreachable, or late at the start, until join() throws.
  std::chrono::milliseconds chief_limit = std::chrono::minutes(10);
  /// How long a worker waits for a parameter server that is restarted or cut off.
  std::chrono::milliseconds server_limit = std::chrono::minutes(2);
};

/// A task of a cluster, as arguments of Server. As those of tf.distribute.Server.
struct ServerTask {
  std::string job_name{};         ///< type of the task: "ps" or "worker"
  int task_index = 0;             ///< index of the task among those of its type
  std::string protocol = "grpc";  ///< no other exists
};

/// The task of a process that does not run the training program: a "ps" task holds variables and
/// applies updates, a "worker" task runs the functions that the chief schedules. As
/// tf.distribute.Server.
///
/// A Server serves one run of the chief. Another chief gets a FailedPreconditionError. Thread-safe.
class Server {
 public:
  /// Starts to listen. Throws InvalidArgumentError for another type of task and for an address that
  /// is not this machine's; AlreadyExistsError if the port is in use; FailedPreconditionError if
  /// other machines can reach the cluster and there is no token, or if another process has the
  /// snapshots; NotFoundError for a missing file; DataLossError if there are snapshots and all are
  /// damaged; UnavailableError without gRPC.
  explicit Server(const ClusterResolver& cluster, const ServerOptions& options = {});
  /// @{
  /// The server of a task of this cluster. Throws InvalidArgumentError for another protocol than
  /// "grpc". As tf.distribute.Server.
  Server(const ClusterSpec& cluster, const ServerTask& task);
  Server(const ClusterSpec& cluster, const std::string& job_name, int task_index)
      : Server(SimpleClusterResolver(cluster, job_name, task_index)) {}
  /// @}
  /// Stops.
  ~Server();
  Server(Server&&) noexcept;             ///< moves
  Server& operator=(Server&&) noexcept;  ///< moves

  /// The port that it listens at, also if the cluster says 0; 0 for a Unix socket.
  std::uint16_t port() const;
  /// Serves until the chief ends the job, which it does when its strategy is destroyed. Throws
  /// UnavailableError if the chief was not heard of for `chief_limit`, or if this task no longer
  /// listens. Under `tandem run` a task ends with the launcher's job in any case. A parameter
  /// server with a directory for snapshots takes SIGTERM meanwhile, unless the program handles it:
  /// it writes a last snapshot before the signal ends the process.
  void join();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

/// Options of InProcessCluster.
struct InProcessClusterOptions {
  int num_workers = 1;     ///< number of workers
  int num_ps = 1;          ///< number of parameter servers
  ServerOptions server{};  ///< of all of them
};
/// A cluster whose workers and parameter servers run in this process, which is the chief: to try
/// parameter servers, and for tests. The tasks listen at free ports of the loopback and share the
/// devices of the process.
/// @code
/// td::distribute::InProcessCluster cluster({.num_workers = 2, .num_ps = 1});
/// td::distribute::ParameterServerStrategy strategy(cluster);
/// @endcode
/// Keep it longer than the strategy and its models. A cluster serves one strategy after another
/// only if it is made anew. As create_in_process_cluster() of TensorFlow's guides.
class InProcessCluster : public ClusterResolver {
 public:
  /// Starts the tasks. Throws InvalidArgumentError without a worker or a server, and the errors of
  /// Server.
  explicit InProcessCluster(const InProcessClusterOptions& options = {});
  /// The same with numbers as arguments.
  InProcessCluster(int num_workers, int num_ps)
      : InProcessCluster(InProcessClusterOptions{.num_workers = num_workers, .num_ps = num_ps}) {}
  const ClusterResolver& cluster_resolver() const { return *this; }  ///< the cluster

 private:
  struct Started;
  static Started start(const InProcessClusterOptions& options);
  explicit InProcessCluster(Started started);

  std::vector<Server> servers_;
};

}  // namespace tandem::distribute
