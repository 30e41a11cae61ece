/// @file
/// The state of the tasks of a cluster and their counters, which `tandem top` shows.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tandem/cluster.h"

namespace tandem::distribute {

/// The state of a task.
enum class TaskState {
  kReady,  ///< it answers, and runs no closure
  kBusy,   ///< it runs a closure
  kLate,   ///< it has not answered in time, or runs a closure for much longer than the last ones
  kGone    ///< no process listens at its address, or nothing was heard of it for long
};
/// "ready"
const char* name_of(TaskState state);

/// A task, at one point in time. Counters are 0 where the task has another role, and for a task
/// that has not answered; they start anew when the task does.
struct TaskStatus {
  std::string type{};                            ///< "worker", "ps", "chief"
  int index = 0;                                 ///< among the tasks of its type
  std::string address{};                         ///< HOST:PORT
  TaskState state = TaskState::kGone;            ///< at this time
  std::string reason{};                          ///< why it is late or gone
  bool answered = false;                         ///< whether the numbers are known
  std::chrono::steady_clock::time_point time{};  ///< when they were
  std::uint64_t incarnation = 0;                 ///< another one after a restart
  std::uint64_t bytes_in = 0;                    ///< received, with those of its own calls
  std::uint64_t bytes_out = 0;                   ///< sent, with those of its own calls
  std::uint64_t closures = 0;                    ///< that a worker has run
  std::uint64_t pulls = 0;                       ///< calls that read variables of a server
  std::uint64_t pushes = 0;                      ///< calls that update them
  std::uint64_t updates = 0;                     ///< that a server has accepted
  std::uint64_t staleness_sum = 0;               ///< of these, in writes since the read
  std::uint64_t staleness_max = 0;               ///< of these
  std::uint64_t variables = 0;                   ///< of a server
  std::uint64_t variable_bytes = 0;              ///< their memory
};

/// Options of ClusterMonitor.
struct ClusterMonitorOptions {
  ClusterSecurity security{};  ///< token and TLS, those of the tasks
  /// How long to wait for the answers of the tasks.
  std::chrono::milliseconds limit = std::chrono::seconds(2);
  /// A task is gone after this time without an answer, or, for the chief, without a sign of life.
  std::chrono::milliseconds gone_after = std::chrono::seconds(30);
};

/// Asks the workers and parameter servers of a cluster what they are doing. It takes no part in
/// their job. Not thread-safe.
class ClusterMonitor {
 public:
  /// Throws InvalidArgumentError for an invalid cluster, one without workers and servers, and times
  /// that are not positive; FailedPreconditionError if other machines can reach the cluster and
  /// there is no token; UnavailableError without gRPC.
  explicit ClusterMonitor(const ClusterSpec& cluster, const ClusterMonitorOptions& options = {});
  ~ClusterMonitor();                                     ///< ends the connections
  ClusterMonitor(ClusterMonitor&&) noexcept;             ///< moves
  ClusterMonitor& operator=(ClusterMonitor&&) noexcept;  ///< moves

  /// Returns the present state of all tasks within the limit: of the chief, which is that of which
  /// the others have heard, the workers and the servers. An evaluator is not asked. Throws
  /// FailedPreconditionError if a task has another token or is not the one that the cluster says.
  std::vector<TaskStatus> poll();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tandem::distribute
